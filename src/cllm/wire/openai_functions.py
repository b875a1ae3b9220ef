"""Calls of tools as calls of functions, for a client in the words before there were tools.

Such a client knows one call to an answer, without an id: it is told of the first and of no other.
An answer that came with a call of a function is as it came. Looks at replies only; what such a
client asks is for `openai_legacy`.
"""

from collections.abc import Iterator
from typing import Any

from cllm.core.message import ToolCall
from cllm.core.reply import PartAdded, ReplyEvent, ReplyFinished, ToolCallDelta
from cllm.wire.openai_beside import FUNCTION_CALL, beside

NO_ARGUMENTS = "{}"


def asks_with_functions(parameters: dict[str, Any]) -> bool:
    """Whether a request in OpenAI's words offers functions, and no tools."""
    return bool(parameters.get("functions")) and not parameters.get("tools")


class FunctionCalls:
    """The events of one stream as such a client can be told them."""

    def __init__(self) -> None:
        self._index: int | None = None
        self._named = False
        self._argued = False

    def told(self, event: ReplyEvent) -> Iterator[ReplyEvent]:
        """What is told in the place of an event; mostly the event itself."""
        match event:
            case ToolCallDelta():
                yield from self._piece(event.index, event.name, event.arguments)
            case PartAdded(part=ToolCall() as call):
                yield from self._piece(event.index, call.name, call.arguments)
            case ReplyFinished():
                if self._index is not None and not self._argued:
                    yield from self._piece(self._index, None, NO_ARGUMENTS)
                yield event
            case _:
                yield event

    def _piece(self, index: int, name: str | None, arguments: str) -> Iterator[ReplyEvent]:
        if self._index is None:
            self._index = index
        if index != self._index:
            return
        fields: dict[str, str] = {}
        # Clients join the pieces of every field, so a name is said once.
        if name and not self._named:
            fields["name"] = name
        if arguments:
            fields["arguments"] = arguments
        self._named, self._argued = self._named or bool(name), self._argued or bool(arguments)
        if fields:
            yield beside(FUNCTION_CALL, fields)

"""A turn of several rounds: the model asks for tools, they are used, and it is asked again.

The results go back to the model as messages of the same turn. Knows tools by a port; what one does
is not known here.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Protocol

import msgspec

from cllm.core.message import Message, ToolCall
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent, ReplyFinished
from cllm.wire.translate import parts_of

AskPrompt = Callable[[Prompt], AsyncGenerator[ReplyEvent, None]]
LIMIT_REACHED = "Not run: the limit of calls in this turn is reached. Answer with what is known."


class ToolBox(Protocol):
    """Tools that cllm itself can use for the model.

    `definitions` are in OpenAI's words. At `most_uses` the model is asked a last time, without.
    """

    definitions: list[dict[str, Any]]
    most_uses: int

    async def use(self, call: ToolCall) -> str:
        """Use the tool that is asked for; a refusal and a failure are results too."""
        ...


class RoundEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The model asked for tools and they were used; it is asked again with their results."""

    reply: ReplyFinished
    results: tuple[Message, ...]

    @property
    def messages(self) -> tuple[Message, ...]:
        return (self.reply.message, *self.results)


async def ask_in_rounds(
    ask: AskPrompt, prompt: Prompt, tools: ToolBox
) -> AsyncGenerator[ReplyEvent | RoundEnded, None]:
    """The events of all rounds; the last is the reply that asks for no tool of ours."""
    uses = 0
    while True:
        may_use = uses < tools.most_uses
        asked = with_tools(prompt, tools) if may_use else prompt
        paused: ReplyFinished | None = None
        async with aclosing(ask(asked)) as events:
            async for event in events:
                if may_use and isinstance(event, ReplyFinished) and _calls(event):
                    paused = event
                else:
                    yield event
        if paused is None:
            return
        calls = _calls(paused)
        results = [await _result(call, tools, uses + n) for n, call in enumerate(calls)]
        uses += len(calls)
        ended = RoundEnded(reply=paused, results=tuple(results))
        yield ended
        prompt = prompt.going_on(ended.messages)


def with_tools(prompt: Prompt, tools: ToolBox) -> Prompt:
    """The prompt with our tools beside those that it has."""
    own = prompt.parameters.get("tools")
    offered = [*(own if isinstance(own, list) else []), *tools.definitions]
    return msgspec.structs.replace(prompt, parameters={**prompt.parameters, "tools": offered})


def _calls(reply: ReplyFinished) -> list[ToolCall]:
    return [part for part in parts_of(reply.message) if isinstance(part, ToolCall)]


async def _result(call: ToolCall, tools: ToolBox, number: int) -> Message:
    text = LIMIT_REACHED if number >= tools.most_uses else await tools.use(call)
    fields = {"role": "tool", "tool_call_id": call.id, "content": text}
    return Message(role="tool", raw=msgspec.json.encode(fields))

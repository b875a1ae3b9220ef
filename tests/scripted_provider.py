"""A provider that replies from a script and records its prompts."""

from collections.abc import AsyncGenerator, Iterable, Sequence

from cllm.core.errors import CllmError
from cllm.core.message import plain_message
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent, ReplyFinished, TextDelta, Usage

ScriptEntry = str | CllmError | Sequence[ReplyEvent | CllmError]


def text_reply_events(text: str, *, usage: Usage | None = None) -> list[ReplyEvent]:
    """The events of a text reply, word by word."""
    words = text.split(" ")
    pieces = [words[0], *(f" {word}" for word in words[1:])]
    finished = ReplyFinished(
        message=plain_message("assistant", text), stop_reason="end", usage=usage, model="scripted"
    )
    return [*(TextDelta(text=piece) for piece in pieces if piece), finished]


class ScriptedProvider:
    """Replies with the next line of its script, or raises it if it is an error.

    After the end of the script it repeats the last message of the prompt.
    """

    name = "scripted"

    def __init__(self, script: Iterable[ScriptEntry] = ()) -> None:
        self.prompts: list[Prompt] = []
        self.prepared = 0
        self.closed = False
        self._script = iter(script)

    async def prepare(self) -> None:
        self.prepared += 1

    async def ask(self, prompt: Prompt) -> AsyncGenerator[ReplyEvent, None]:
        self.prompts.append(prompt)
        for event in self._next_events(prompt):
            if isinstance(event, CllmError):
                raise event
            yield event

    def _next_events(self, prompt: Prompt) -> Sequence[ReplyEvent | CllmError]:
        line = next(self._script, prompt.messages[-1].text)
        if isinstance(line, CllmError):
            return [line]
        return text_reply_events(line) if isinstance(line, str) else line

    async def close(self) -> None:
        self.closed = True

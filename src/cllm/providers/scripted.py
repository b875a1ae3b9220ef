"""A provider that answers from a script: for tests, and for trying things without a model.

It keeps the prompts it was asked, so that what would have been sent can be looked at.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence

from cllm.core.errors import CllmError
from cllm.core.message import plain_message
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent, ReplyFinished, TextDelta, Usage

Line = str | CllmError | Sequence[ReplyEvent | CllmError]


def spoken(text: str, *, usage: Usage | None = None) -> list[ReplyEvent]:
    """The events of a plain answer, word by word."""
    words = text.split(" ")
    pieces = [words[0], *(f" {word}" for word in words[1:])]
    finished = ReplyFinished(
        message=plain_message("assistant", text), stop_reason="end", usage=usage, model="scripted"
    )
    return [*(TextDelta(text=piece) for piece in pieces if piece), finished]


class ScriptedProvider:
    """Answers each question with the next line of its script; an error in it is raised there.

    Once the script is at its end the answer is what the user said last.
    """

    name = "scripted"

    def __init__(self, script: Iterable[Line] = ()) -> None:
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
        return spoken(line) if isinstance(line, str) else line

    async def close(self) -> None:
        self.closed = True

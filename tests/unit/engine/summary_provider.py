"""A provider that also answers requests for summaries, and helpers to call it."""

from typing import Any

from tests.scripted_provider import ScriptedProvider, text_reply_events

from cllm.core.prompt import Prompt
from cllm.core.reply import Usage
from cllm.window.strategies import ByTokens, Summarise

LONG = "word " * 150
SMALL = Summarise(tokens=ByTokens(max_tokens=1000), summary_tokens=100)


def summarise(_model: str) -> Summarise:
    return SMALL


def is_summary_request(prompt: Prompt) -> bool:
    return prompt.messages[-1].text.startswith("Summarise our conversation")


def system_text(prompt: Prompt) -> str | None:
    return None if prompt.system is None else prompt.system.text


def texts(prompt: Prompt) -> list[str]:
    return [message.text for message in prompt.messages]


class SummaryProvider(ScriptedProvider):
    """Answers messages with a short text and summary requests with a summary."""

    def __init__(self, *, summary: Any = None, usage: Usage | None = None) -> None:
        super().__init__()
        self._summary = summary
        self._usage = usage
        self.summaries = 0

    def _next_events(self, prompt):
        if not is_summary_request(prompt):
            return text_reply_events(f"answer {prompt.messages[-1].text[:8]}")
        self.summaries += 1
        if self._summary is not None:
            return self._summary
        return text_reply_events(f"Summary {self.summaries}.", usage=self._usage)

    @property
    def summary_requests(self) -> list[Prompt]:
        return [prompt for prompt in self.prompts if is_summary_request(prompt)]


async def say(running, request) -> list[Any]:
    return [event async for event in running.run_turn(request)]


async def make(running, request) -> list[Any]:
    return [event async for event in running.compact(request)]

"""What an answer in OpenAI's words carries beside its message, on its way through our events.

Log probabilities, annotations, audio and the choices after the first have no part of their own.
In a stream they travel as unknown parts, under the name of the field in which they stood, and only
an OpenAI client is shown them. Only the first choice is the reply that is kept; that is said.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cllm.core.message import Unknown
from cllm.core.notice import Notice
from cllm.core.reply import Noticed, PartAdded, ReplyFinished

LOGPROBS, CHOICES = "logprobs", "choices"
IN_DELTA = ("annotations", "audio", "tool_calls")
OF_ANSWER = ("service_tier", "system_fingerprint")


def beside(field: str, value: Any) -> PartAdded:
    """An event that carries a field which is no part of the message."""
    raw = msgspec.json.encode(value)
    return PartAdded(part=Unknown(dialect="openai", raw=raw, field=field))


def more_choices() -> Noticed:
    """That there is more than one answer, of which one is kept."""
    return Noticed(
        notice=Notice(
            code="choices_not_kept",
            path="choices[1]",
            message="The answer has several choices; only the first is kept as the reply.",
        )
    )


class Gathered(msgspec.Struct):
    """What came beside the pieces of a streamed message."""

    head: dict[str, Any] = msgspec.field(default_factory=dict)
    logprobs: dict[str, list[Any]] = msgspec.field(default_factory=dict)
    annotations: list[Any] = msgspec.field(default_factory=list)
    audio: dict[str, Any] = msgspec.field(default_factory=dict)
    reasoning_details: list[Any] = msgspec.field(default_factory=list)

    def add_logprobs(self, given: Any) -> None:
        for name, tokens in given.items() if isinstance(given, dict) else ():
            if isinstance(tokens, list):
                self.logprobs.setdefault(name, []).extend(tokens)

    def add_audio(self, given: Mapping[str, Any]) -> None:
        """Pieces of data and transcript are joined; id and expiry come once."""
        for name, value in given.items():
            before = self.audio.get(name)
            joined = isinstance(before, str) and isinstance(value, str) and name != "id"
            self.audio[name] = f"{before}{value}" if joined else value

    def of_message(self) -> dict[str, Any]:
        """The fields of the message that no event of its own stands for; empty ones too."""
        return {
            "annotations": self.annotations,
            "audio": self.audio,
            "reasoning_details": self.reasoning_details,
        }

    def whole(self, *, message: bytes, finish_reason: str | None, usage: Any) -> bytes:
        """The answer as it would have come in one piece."""
        choice = {
            "index": 0,
            "message": msgspec.Raw(message),
            "logprobs": self.logprobs or None,
            "finish_reason": finish_reason,
        }
        head = {name: value for name, value in self.head.items() if value is not None}
        answer = {**head, "object": "chat.completion", "choices": [choice]}
        return msgspec.json.encode(answer | ({} if usage is None else {"usage": usage}))


class _Own(msgspec.Struct):
    service_tier: Any = None
    system_fingerprint: Any = None
    usage: Any = None


def said_of_answer(finished: ReplyFinished) -> tuple[dict[str, Any], dict[str, Any]]:
    """What OpenAI's protocol said of an answer as a whole, and its own counts; else nothing."""
    if finished.raw is None or finished.message.dialect != "openai":
        return {}, {}
    own = msgspec.json.decode(finished.raw, type=_Own)
    said = {name: value for name in OF_ANSWER if (value := getattr(own, name)) is not None}
    return said, own.usage if isinstance(own.usage, dict) else {}


def with_message(body: bytes, message: Mapping[str, Any]) -> bytes:
    """A whole answer with another message in its first choice."""
    fields = msgspec.json.decode(body)
    fields[CHOICES][0]["message"] = message
    return msgspec.json.encode(fields)

"""Usage, errors and other fields of answers besides the message.

Further choices, log probabilities and unknown fields are streamed as unknown parts under their
field name, to OpenAI clients only. Only the first choice is saved.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from cllm.core.message import Unknown
from cllm.core.notice import Notice
from cllm.core.reply import Noticed, PartAdded, ReplyFinished, Usage
from cllm.wire.errors import Count, ErrorDetails, is_context_overflow, is_out_of_quota
from cllm.wire.reasoning import DETAILS, StreamedDetails

LOGPROBS, CHOICES = "logprobs", "choices"
TOOL_CALLS, FUNCTION_CALL = "tool_calls", "function_call"
UNMERGED_FIELDS = frozenset({"id", "type", "index", "role"})
# The fields of a chunk that are encoded anew; `obfuscation` is padding of one chunk.
CHUNK_FIELDS = frozenset(
    {CHOICES, "created", "error", "id", "model", "object", "obfuscation", "usage"}
)
NULL = b"null"
STATUS = re.compile(r"[45]\d\d")
STATUS_FIELDS = ("code", "status_code", "status")
STATUSES_BY_TYPE: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "overloaded_error": 529,
}
TOO_LONG_CODES = ("context_length_exceeded", "exceed_context_size_error")


def extra_field(field: str, value: Any) -> PartAdded:
    """Return an event for a field that is not part of the message."""
    raw = msgspec.json.encode(value)
    return PartAdded(part=Unknown(dialect="openai", raw=raw, field=field))


def extra_choices_notice() -> Noticed:
    return Noticed(
        notice=Notice(
            code="choices_not_kept",
            path="choices[1]",
            message="The response has several choices; only the first is saved as the reply.",
        )
    )


class _Pieces:
    """A text in pieces: joining at every new piece would take quadratic time."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = list(pieces)


def merge_fields(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Merge pieces of fields as OpenAI's clients do. Modifies `more`; see `join_pieces`."""
    for name, value in more.items():
        before = into.get(name)
        if isinstance(value, str) and name not in UNMERGED_FIELDS:
            if isinstance(before, _Pieces):
                before.pieces.append(value)
            else:
                into[name] = _Pieces(before, value) if isinstance(before, str) else _Pieces(value)
        elif isinstance(before, list) and isinstance(value, list):
            before += value
        elif isinstance(before, dict) and isinstance(value, dict):
            merge_fields(before, value)
        elif value is not None:
            into[name] = value


def join_pieces(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _join_value(value) for name, value in fields.items()}


def _join_value(value: Any) -> Any:
    if isinstance(value, _Pieces):
        return "".join(value.pieces)
    return join_pieces(value) if isinstance(value, dict) else value


class StreamedFields(msgspec.Struct):
    """The fields of a streamed answer besides the message's text and calls."""

    head: dict[str, Any] = msgspec.field(default_factory=dict)
    logprobs: dict[str, list[Any]] = msgspec.field(default_factory=dict)
    fields: dict[str, Any] = msgspec.field(default_factory=dict)
    details: StreamedDetails = msgspec.field(default_factory=StreamedDetails)

    def add_logprobs(self, logprobs: Any) -> None:
        for name, tokens in logprobs.items() if isinstance(logprobs, dict) else ():
            if isinstance(tokens, list):
                self.logprobs.setdefault(name, []).extend(tokens)

    def add(self, name: str, value: Any) -> None:
        if name == DETAILS and isinstance(value, list):
            self.details.add(value)
        else:
            merge_fields(self.fields, {name: value})

    def whole(self, *, message: bytes, finish_reason: str | None, usage: Any) -> bytes:
        """Return the reply as one body.

        The message, which can be long, is inserted as bytes: encoding it again takes half
        as much memory again.
        """
        head = {name: value for name, value in self.head.items() if value is not None}
        start = msgspec.json.encode({**head, "object": "chat.completion"})[:-1]
        end = {"logprobs": self.logprobs or None, "finish_reason": finish_reason}
        rest = msgspec.json.encode(end)[1:]
        counts = b"" if usage is None else b',"usage":' + msgspec.json.encode(usage)
        before = start + b',"choices":[{"index":0,"message":'
        return b"".join((before, message, b",", rest, b"]", counts, b"}"))


def other_fields(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a reply or chunk such as `service_tier`, `x_groq` or `citations`."""
    return {name: value for name, value in answer.items() if name not in CHUNK_FIELDS}


def get_answer_fields(finished: ReplyFinished) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the reply's other fields of OpenAI's protocol, and its usage fields."""
    if finished.raw is None or finished.message.dialect != "openai":
        return {}, {}
    answer = msgspec.json.decode(finished.raw, type=dict[str, msgspec.Raw])
    fields = {name: value for name, value in other_fields(answer).items() if bytes(value) != NULL}
    usage = msgspec.json.decode(answer.get("usage", NULL))
    return fields, usage if isinstance(usage, dict) else {}


def replace_message(body: bytes, message: Mapping[str, Any]) -> bytes:
    fields = msgspec.json.decode(body)
    fields[CHOICES][0]["message"] = message
    return msgspec.json.encode(fields)


class UsageDetails(msgspec.Struct):
    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    total_tokens: Count | None = None
    prompt_tokens_details: UsageDetails | None = None
    completion_tokens_details: UsageDetails | None = None
    prompt_cache_hit_tokens: Count | None = None
    cached_tokens: Count | None = None


def decode_usage(reported: Any) -> Usage | None:
    """Decode token counts; None if they are missing or invalid.

    Servers count differently. Our five numbers are disjoint, add up to the totals and are never
    negative.
    """
    try:
        usage = msgspec.convert(reported, _Usage | None)
    except msgspec.ValidationError:
        return None
    if usage is None or usage.prompt_tokens is None:
        return None
    prompt = usage.prompt_tokens
    details = usage.prompt_tokens_details or UsageDetails()
    cached_counts = (details.cached_tokens, usage.prompt_cache_hit_tokens, usage.cached_tokens)
    read = min(next((count for count in cached_counts if count is not None), 0), prompt)
    write = min(details.cache_write_tokens or 0, prompt - read)
    output, reasoning = _output_counts(usage)
    return Usage(
        input=prompt - read - write,
        cache_read=read,
        cache_write=write,
        output=output,
        reasoning=reasoning,
    )


def _output_counts(usage: _Usage) -> tuple[int, int]:
    """Return output and reasoning tokens; some servers do not include the latter in the former."""
    completion = usage.completion_tokens or 0
    reasoning = (usage.completion_tokens_details or UsageDetails()).reasoning_tokens or 0
    if usage.total_tokens == (usage.prompt_tokens or 0) + completion + reasoning:
        return completion, reasoning
    reasoning = min(reasoning, completion)
    return completion - reasoning, reasoning


def encode_usage(usage: Usage) -> dict[str, Any]:
    """Encode token counts; OpenAI's totals include the details."""
    prompt = usage.input + usage.cache_read + usage.cache_write
    completion = usage.output + usage.reasoning
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def decode_error(body: bytes) -> ErrorDetails:
    """Decode an error body of any shape; empty if it is not JSON."""
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ErrorDetails()
    if isinstance(decoded, list) and decoded:
        # Gemini's OpenAI-compatible endpoint sends a list with one error.
        decoded = decoded[0]
    if not isinstance(decoded, dict):
        return ErrorDetails()
    return error_details(decoded.get("error", decoded))


def _find_status(error: Mapping[str, Any], kind: str, code: str) -> int | None:
    """Return the status that an error states, or the one of its code or type."""
    values = (str(error.get(name)) for name in STATUS_FIELDS)
    stated = next((int(value) for value in values if STATUS.fullmatch(value)), None)
    return stated or STATUSES_BY_TYPE.get(code) or STATUSES_BY_TYPE.get(kind)


def error_details(error: Any) -> ErrorDetails:
    if isinstance(error, str):
        error = {"message": error}
    if not isinstance(error, dict):
        return ErrorDetails()
    message, kind, code, param = (
        "" if error.get(name) is None else str(error[name])
        for name in ("message", "type", "code", "param")
    )
    has_code = kind in TOO_LONG_CODES or code in TOO_LONG_CODES
    return ErrorDetails(
        message=message,
        type=kind,
        code=code,
        param=param,
        status=_find_status(error, kind, code),
        too_long=has_code or is_context_overflow(message),
        out_of_quota=is_out_of_quota(message, kind, code),
    )

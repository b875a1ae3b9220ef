"""Errors of the codecs, and names that every protocol shares."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
NO_NAMES: Mapping[str, str] = {}
TOKENS = re.compile(r"\b(\d{1,12}) tokens > (\d{1,12})\b")
TOKENS_AND_LIMIT = re.compile(r"\b(\d{1,12}) \+ (\d{1,12}) > (\d{1,12})\b")
# Messages about a prompt above the context window, by service.
OVERFLOW_PATTERNS = (
    r"prompt (?:is )?too long",  # Anthropic, Vertex, Ollama
    r"input is too long for requested model",  # Bedrock
    r"too many (?:input tokens|tokens in the prompt)",  # Bedrock Titan, Cohere
    r"number of input tokens exceeds",  # Bedrock Nova
    r"maximum context length",  # OpenAI, vLLM, DeepSeek, Mistral, OpenRouter
    r"context length is only",  # vLLM
    r"longer than the (?:maximum model|model's context) length",  # vLLM, SGLang
    r"exceeds? the (?:available |model's )?context (?:length|size|window)",  # llama.cpp, Ollama
    r"greater than the context length",  # LM Studio
    r"input token count .{0,40}exceeds the maximum",  # Gemini
    r"maximum prompt length is \d",  # xAI
    r"reduce the length of the (?:input|messages|prompt)",  # Groq, Cerebras
    r"request too large for ",  # a rate limit in tokens: Groq, OpenAI
    r"inputs` tokens \+ `max_new_tokens` must be",  # TGI
)
OVERFLOW_TEXT = re.compile("|".join(OVERFLOW_PATTERNS), re.IGNORECASE)
CONTEXT_LIMIT = re.compile(r"context length is (?:only )?(\d{1,12})\b")
REQUESTED_OUTPUT = re.compile(
    r"\b(\d{1,12}) in the completion|requested (\d{1,12}) output|is too large: (\d{1,12})\b"
)
# Types and codes of errors about an account without quota, credit or a means of payment.
QUOTA_NAMES = frozenset(
    {
        "billing_error",
        "billing_hard_limit_reached",
        "billing_not_active",
        "exceeded_current_quota_error",
        "insufficient_balance",
        "insufficient_credits",
        "insufficient_quota",
        "serviceQuotaExceededException",
    }
)
# The same in messages of services without such a code: Anthropic, xAI, OpenRouter, Bedrock.
QUOTA_TEXT = re.compile(
    r"credit balance is too low|available credits|spending limit|key limit exceeded"
    r"|too many tokens per day",
    re.IGNORECASE,
)

MISSING_FIELD = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
INVALID_CHOICE = re.compile(r"Invalid enum value (.*)", re.DOTALL)
WRONG_TYPE = re.compile(r"Expected `([^`]+)`((?: of length)?(?: [<>]=? \S+)?)(?:, got `[^`]+`)?")
TYPE_NAMES: Mapping[str, str] = {
    "array": "an array",
    "bool": "true or false",
    "float": "a number",
    "int": "an integer",
    "object": "an object",
    "str": "a string",
}


class MalformedError(ValueError):
    """Bytes that do not follow their protocol."""


def check_utf8(data: bytes) -> None:
    """Raise UnicodeDecodeError for invalid UTF-8, which msgspec does not check in Raw values."""
    str(data, "utf-8")


class NotExpressibleError(MalformedError):
    """Content that a protocol cannot express and that cannot be left out."""


class FieldError(MalformedError):
    """An invalid field of a request; `path` names it, empty for the whole body."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem

    def __reduce__(self) -> tuple[type["FieldError"], tuple[str, str]]:
        return type(self), (self.path, self.problem)


def describe_problem(text: str) -> str:
    """Return the text of a msgspec.ValidationError, without its path, as a user reads it."""
    if match := MISSING_FIELD.fullmatch(text):
        return f"'{match[1]}' is required"
    if match := UNKNOWN_FIELD.fullmatch(text):
        return f"unknown field '{match[1]}'"
    if match := INVALID_CHOICE.fullmatch(text):
        return f"{match[1]} is not one of the allowed values"
    if match := WRONG_TYPE.fullmatch(text):
        types = " or ".join(TYPE_NAMES.get(name, name) for name in match[1].split(" | "))
        return f"must be {types}{match[2]}"
    return text


class ErrorDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of an error body or event; empty where it has none.

    `status` is the HTTP status of an error of this type. `data` is its machine-readable
    details. `out_of_quota`: the account has no quota or credit left.
    """

    message: str = ""
    type: str = ""
    code: str = ""
    param: str = ""
    status: int | None = None
    too_long: bool = False
    out_of_quota: bool = False
    data: dict[str, Any] | None = None


class ReportedError(MalformedError):
    """The provider sent an error instead of a reply, or in the middle of one."""

    def __init__(self, details: ErrorDetails) -> None:
        super().__init__(details.message or details.type or "an error without a message")
        self.details = details


def is_out_of_quota(message: str, *names: str) -> bool:
    """Whether an error with this message, type and code is about quota or billing."""
    return not QUOTA_NAMES.isdisjoint(names) or QUOTA_TEXT.search(message) is not None


def is_context_overflow(message: str) -> bool:
    """Whether an error message reports a prompt that exceeds the context window.

    A limit on the reply that is too high by itself does not count: a larger window does not
    help.
    """
    if _has_more(TOKENS, message) or _has_more(TOKENS_AND_LIMIT, message):
        return True
    if OVERFLOW_TEXT.search(message) is None:
        return False
    limit, requested = CONTEXT_LIMIT.search(message), REQUESTED_OUTPUT.search(message)
    if limit is None or requested is None:
        return True
    return int(requested[requested.lastindex or 1]) < int(limit[1])


def _has_more(pattern: re.Pattern[str], message: str) -> bool:
    match = pattern.search(message)
    if match is None:
        return False
    *counts, limit = map(int, match.groups())
    return sum(counts) > limit

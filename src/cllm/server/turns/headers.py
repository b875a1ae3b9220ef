"""What a request's headers ask for, read and checked. It looks nothing up."""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec
from starlette.datastructures import Headers

from cllm.core.conversation import is_valid_id
from cllm.core.secret import CallersKey, Secret
from cllm.server.http.errors import RefusedError

CONVERSATION = "X-Conversation-ID"
TURN = "X-Turn-ID"
NOTICE = "X-CLLM-Notice"
PROVIDER = "X-Provider"
CONFLICT = "X-On-Conflict"
STRICT = "X-CLLM-Strict"
IDEMPOTENCY = "Idempotency-Key"
RETRIES = "x-stainless-retry-count"
CALLERS_KEY = "x-anthropic-api-key"
CALLERS_TOKEN = "ANTHROPIC_AUTH_TOKEN"  # noqa: S105 - the name of a header

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
FILES = "files:"
LONGEST_KEY = 255
COUNT = re.compile(r"[0-9]{1,3}", re.ASCII)
TOKENS = "sk-ant-oat"
SECRET = re.compile(r"[\x21-\x7e]{1,4096}")
YES = ("1", "true", "yes", "on")
NO = ("", "0", "false", "no", "off")

OnConflict = Literal["reject", "queue", "branch"]
CONFLICTS: dict[str, OnConflict] = {"reject": "reject", "queue": "queue", "branch": "branch"}


class Stateless(msgspec.Struct, frozen=True):
    """Nothing is kept."""


class Begin(msgspec.Struct, frozen=True):
    """A new conversation."""


class Continue(msgspec.Struct, frozen=True):
    """A conversation that is there: by its id, in the server's store or among the files."""

    ref: str
    in_files: bool = False


Mode = Stateless | Begin | Continue
STATELESS = Stateless()
BEGIN = Begin()


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a client says beside its body.

    `retries` is how often its library has asked before, where it is one that counts.
    """

    mode: Mode = STATELESS
    provider: str | None = None
    on_conflict: OnConflict = "reject"
    strict: bool | None = None
    idempotency_key: str | None = None
    retries: int | None = None
    callers_key: CallersKey | None = None


PLAIN = Wish()
OURS = {
    name.lower().encode(): name
    for name in (
        CONVERSATION,
        PROVIDER,
        CONFLICT,
        STRICT,
        IDEMPOTENCY,
        CALLERS_KEY,
        CALLERS_TOKEN,
    )
}


def read_wish(headers: Headers) -> Wish:
    """What the headers ask for; RefusedError for one that says nothing we know."""
    # Each that is looked up by its name is looked for in all of them.
    given = {
        OURS[name]: value.decode("latin-1") for name, value in reversed(headers.raw) if name in OURS
    }
    if not given:
        return PLAIN
    return Wish(
        mode=_mode(given.get(CONVERSATION)),
        provider=_provider(given.get(PROVIDER)),
        on_conflict=_conflict(given.get(CONFLICT)),
        strict=_strict(given.get(STRICT)),
        idempotency_key=_key(given.get(IDEMPOTENCY)),
        retries=_retries(headers.get(RETRIES)),
        callers_key=_callers_key(given),
    )


def _mode(value: str | None) -> Mode:
    if value is None:
        return STATELESS
    value = value.strip()
    if value in ("", "null"):
        return BEGIN
    if UUID.fullmatch(value):
        return Continue(value.lower())
    if value.startswith(FILES) and is_valid_id(value.removeprefix(FILES)):
        return Continue(value.removeprefix(FILES), in_files=True)
    raise RefusedError(
        "invalid_conversation_id",
        f"{CONVERSATION} must be the UUID of a conversation, or empty for a new one.",
        param=CONVERSATION,
    )


def _provider(value: str | None) -> str | None:
    if value is None or not value.strip():
        return None
    if NAME.fullmatch(value.strip()) is None:
        raise _invalid(PROVIDER, "the name of a provider, such as openai")
    return value.strip()


def _conflict(value: str | None) -> OnConflict:
    if value is None or not value.strip():
        return "reject"
    chosen = CONFLICTS.get(value.strip().lower())
    if chosen is None:
        raise _invalid(CONFLICT, "reject, queue or branch")
    return chosen


def _strict(value: str | None) -> bool | None:
    if value is None:
        return None
    word = value.strip().lower()
    if word not in YES + NO:
        raise _invalid(STRICT, "true or false")
    return word in YES


def _key(value: str | None) -> str | None:
    if value is None or not value.strip():
        return None
    if len(value) > LONGEST_KEY:
        raise _invalid(IDEMPOTENCY, f"at most {LONGEST_KEY} characters long")
    return value.strip()


def _retries(value: str | None) -> int | None:
    """A count that a library adds by itself; one that makes no sense is not the caller's fault."""
    if value is None or COUNT.fullmatch(value.strip()) is None:
        return None
    return int(value)


def _callers_key(given: Mapping[str, str]) -> CallersKey | None:
    """The key that the caller brings: an API key, or a token by its header or its beginning."""
    for name in (CALLERS_KEY, CALLERS_TOKEN):
        value = given.get(name, "").strip()
        if not value:
            continue
        if SECRET.fullmatch(value) is None:
            raise _invalid(name, "a key of printable characters without spaces")
        token = name == CALLERS_TOKEN or value.startswith(TOKENS)
        return CallersKey(secret=Secret(value), token=token)
    return None


def _invalid(header: str, expected: str) -> RefusedError:
    return RefusedError("invalid_header", f"{header} must be {expected}.", param=header)

"""Reads and validates the request headers that control a turn."""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec
from starlette.datastructures import Headers

from cllm.core.conversation import FILES_PREFIX, is_valid_id
from cllm.core.notice import Notice
from cllm.core.secret import CallersKey, Secret
from cllm.server.http.errors import ApiError
from cllm.wire.responses.ids import ResponseKey, read_conversation_id

CONVERSATION = "X-Conversation-ID"
TURN = "X-Turn-ID"
NOTICE = "X-CLLM-Notice"
PROVIDER = "X-Provider"
CONFLICT = "X-On-Conflict"
STRICT = "X-CLLM-Strict"
HISTORY = "X-CLLM-History"
SWITCH_MODEL = "X-CLLM-Switch-Model"
IDEMPOTENCY = "Idempotency-Key"
ROUTING_MODE = "X-Routing-Mode"
RETRIES = "x-stainless-retry-count"
CALLERS_KEY = "x-anthropic-api-key"
CALLERS_TOKEN = "ANTHROPIC_AUTH_TOKEN"  # noqa: S105 - the name of a header

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
LIKE_UUID = re.compile(r"[0-9a-f]+(-[0-9a-f]+){4}", re.IGNORECASE | re.ASCII)
"""A UUID with a typing error is not a name."""
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
MAX_KEY_LENGTH = 255
RETRY_COUNT = re.compile(r"[0-9]{1,3}", re.ASCII)
OAUTH_PREFIX = "sk-ant-oat"
SECRET = re.compile(r"[\x21-\x7e]{1,4096}")
YES = ("1", "true", "yes", "on")
NO = ("", "0", "false", "no", "off")

DELETED_RESPONSES = "cllm_deleted_responses"
"""The metadata of a conversation that lists the turns whose responses are deleted."""

OnConflict = Literal["reject", "queue", "branch"]
CONFLICTS: dict[str, OnConflict] = {"reject": "reject", "queue": "queue", "branch": "branch"}
HistoryMode = Literal["auto", "full", "append"]
HISTORY_MODES: dict[str, HistoryMode] = {"auto": "auto", "full": "full", "append": "append"}
AUTO = "auto"
RESERVED_NAMES = (AUTO, "null", "search", "events", "import")


class Stateless(msgspec.Struct, frozen=True): ...


class StartConversation(msgspec.Struct, frozen=True): ...


class FindConversation(msgspec.Struct, frozen=True):
    """Find the conversation by the history in the request, or start a new one."""


class ContinueConversation(msgspec.Struct, frozen=True):
    """`is_name`: create a conversation of this name if none exists."""

    ref: str
    in_files: bool = False
    is_name: bool = False


class ContinueResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Continue after the turn of this response. Without `saves`, only its history is read.

    `truncates`: send the window of the history instead of all of it.
    """

    response: ResponseKey
    saves: bool = True
    truncates: bool = False


Mode = Stateless | StartConversation | FindConversation | ContinueConversation | ContinueResponse
STATELESS = Stateless()
START_CONVERSATION = StartConversation()
FIND_CONVERSATION = FindConversation()


class RequestHeaders(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the headers. `retries` is the count of the client's SDK.

    `switches_model`: a continued conversation changes to the model of the request; False: it uses
    its own model; None: it uses the model of the request for this turn.
    """

    mode: Mode = STATELESS
    provider: str | None = None
    on_conflict: OnConflict = "reject"
    strict: bool | None = None
    history: HistoryMode = "auto"
    switches_model: bool | None = None
    idempotency_key: str | None = None
    retries: int | None = None
    callers_key: CallersKey | None = None
    notices: tuple[Notice, ...] = ()

    @property
    def names_conversation(self) -> bool:
        """Whether the client starts or continues a conversation itself."""
        return not isinstance(self.mode, Stateless | FindConversation)


NO_HEADERS = RequestHeaders()
NAMES = (
    CONVERSATION,
    PROVIDER,
    CONFLICT,
    STRICT,
    HISTORY,
    SWITCH_MODEL,
    IDEMPOTENCY,
    RETRIES,
    CALLERS_KEY,
    CALLERS_TOKEN,
    ROUTING_MODE,
)
PASSTHROUGH = "passthrough"
"""The only routing mode of older deployments that this server has."""
ROUTING_MODE_IGNORED = Notice(
    code="header_ignored",
    path=ROUTING_MODE,
    message="This server has no routing modes; the request is sent directly to the model.",
)
HEADER_NAMES = {name.lower().encode(): name for name in NAMES}


def read_turn_headers(headers: Headers) -> RequestHeaders:
    # One pass; a lookup by name searches all headers.
    values = {
        HEADER_NAMES[name]: value.decode("latin-1").strip()
        for name, value in reversed(headers.raw)
        if name in HEADER_NAMES
    }
    if not values:
        return NO_HEADERS
    retries = values.get(RETRIES, "")
    return RequestHeaders(
        mode=STATELESS if CONVERSATION not in values else read_mode(values[CONVERSATION]),
        provider=_read_provider(values.get(PROVIDER)),
        on_conflict=_read_conflict(values.get(CONFLICT)),
        strict=_read_flag(STRICT, values),
        history=_read_history(values.get(HISTORY)),
        switches_model=_read_flag(SWITCH_MODEL, values),
        idempotency_key=_read_idempotency_key(values.get(IDEMPOTENCY)),
        # Sent by an SDK: an invalid value is not the caller's mistake.
        retries=int(retries) if RETRY_COUNT.fullmatch(retries) else None,
        callers_key=_read_callers_key(values),
        notices=_check_routing_mode(values.get(ROUTING_MODE)),
    )


def read_mode(value: str, *, param: str = CONVERSATION) -> Mode:
    """Return the conversation that a value names; `param` is the header or parameter."""
    if value in ("", "null"):
        return START_CONVERSATION
    if UUID.fullmatch(value):
        return ContinueConversation(value.lower())
    if openai_id := read_conversation_id(value):
        return ContinueConversation(openai_id)
    if value == AUTO:
        return FIND_CONVERSATION
    if value.startswith(FILES_PREFIX) and is_valid_id(value.removeprefix(FILES_PREFIX)):
        return ContinueConversation(value.removeprefix(FILES_PREFIX), in_files=True)
    is_reserved = value.lower() in RESERVED_NAMES or LIKE_UUID.fullmatch(value) is not None
    if is_valid_id(value) and not is_reserved:
        return ContinueConversation(value, is_name=True)
    raise ApiError(
        "invalid_conversation_id",
        f"{param} must be the UUID or name of a conversation (1 to 128 letters, digits, "
        "'-' or '_'), `auto` to find it by the history, or empty to start a new one.",
        param=param,
    )


def _read_provider(value: str | None) -> str | None:
    if value and NAME.fullmatch(value) is None:
        raise _invalid_header(PROVIDER, "the name of a provider, such as openai")
    return value or None


def _read_conflict(value: str | None) -> OnConflict:
    choice = CONFLICTS.get(value.lower()) if value else "reject"
    if choice is None:
        raise _invalid_header(CONFLICT, "reject, queue or branch")
    return choice


def _read_flag(header: str, values: Mapping[str, str]) -> bool | None:
    value = values.get(header)
    if value is None:
        return None
    if value.lower() not in YES + NO:
        raise _invalid_header(header, "true or false")
    return value.lower() in YES


def _read_history(value: str | None) -> HistoryMode:
    mode = HISTORY_MODES.get(value.lower()) if value else "auto"
    if mode is None:
        raise _invalid_header(HISTORY, "auto, full or append")
    return mode


def _read_idempotency_key(value: str | None) -> str | None:
    if value and len(value) > MAX_KEY_LENGTH:
        raise _invalid_header(IDEMPOTENCY, f"at most {MAX_KEY_LENGTH} characters long")
    return value or None


def _read_callers_key(values: Mapping[str, str]) -> CallersKey | None:
    for name in (CALLERS_KEY, CALLERS_TOKEN):
        value = values.get(name)
        if not value:
            continue
        if SECRET.fullmatch(value) is None:
            raise _invalid_header(name, "a key of printable characters without spaces")
        token = name == CALLERS_TOKEN or value.startswith(OAUTH_PREFIX)
        return CallersKey(secret=Secret(value), token=token)
    return None


def _check_routing_mode(value: str | None) -> tuple[Notice, ...]:
    is_ignored = bool(value) and value != PASSTHROUGH
    return (ROUTING_MODE_IGNORED,) if is_ignored else ()


def _invalid_header(header: str, expected: str) -> ApiError:
    return ApiError("invalid_header", f"{header} must be {expected}.", param=header)

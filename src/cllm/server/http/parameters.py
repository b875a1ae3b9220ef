"""Query parameters and JSON bodies; invalid ones raise FieldError.

Docstrings of body types appear in the OpenAPI description.
"""

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from starlette.requests import Request

from cllm.core.conversation import MAX_TITLE_LENGTH, Policy, check_title
from cllm.core.errors import InvalidTextError
from cllm.core.ports import ArchiveFilter, Origin, UsageBy
from cllm.server.http.errors import ApiError
from cllm.server.http.limits import read_body
from cllm.server.state import ApiRequest
from cllm.wire.errors import MISSING_FIELD, UNKNOWN_FIELD, FieldError, describe_problem

MAX_INTEGER = 2**31 - 1
MAX_METADATA_BYTES = 16 * 1024
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
FIELD_ERROR = re.compile(r"(.*) - at `\$\.?(.*)`", re.DOTALL)

T = TypeVar("T")
Q = TypeVar("Q", bound=msgspec.Struct)
PageSize = Annotated[int, msgspec.Meta(ge=1, le=100)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]
StoreName = Literal["files"]
# Extra schemas are for the description only: these values have other errors.
Sequence = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1, "maximum": MAX_INTEGER})]
SearchText = Annotated[
    str, msgspec.Meta(min_length=1, max_length=1000, extra_json_schema={"pattern": r"\S"})
]
Timestamp = Annotated[
    str, msgspec.Meta(extra_json_schema={"anyOf": [{"format": "date"}, {"format": "date-time"}]})
]


Title = Annotated[
    str,
    msgspec.Meta(
        description="Surrounding white space is removed; a blank title is no title.",
        extra_json_schema={"maxLength": MAX_TITLE_LENGTH},
    ),
]
Metadata = Annotated[
    dict[str, Any], msgspec.Meta(description=f"At most {MAX_METADATA_BYTES} bytes as JSON.")
]


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`cursor` is the `next_cursor` of the previous page; `offset` then counts from there.

    `source` selects the conversations recorded from a client; `side` adds side conversations.
    `model` is a part of the model's name, `since` a date or time, `origin` the interface.
    """

    limit: PageSize = 50
    offset: Count = 0
    archive_filter: ArchiveFilter = "active"
    source: str | None = None
    side: bool = False
    model: str | None = None
    since: str | None = None
    origin: Origin | None = None
    store: StoreName | None = None
    cursor: str | None = None


class DetailQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`after` (a sequence number) and `limit` select a page; `variants` adds turns off the path."""

    variants: bool = False
    after: Count = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = None


class DeleteQuery(msgspec.Struct, frozen=True, kw_only=True):
    permanent: bool = False


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    q: SearchText
    limit: PageSize = 20
    offset: Count = 0
    archive_filter: ArchiveFilter = "active"
    store: StoreName | None = None


class ExportQuery(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal["json", "markdown", "html"] = "json"


class UsageQuery(
    msgspec.Struct, frozen=True, kw_only=True, rename={"since": "from", "until": "to"}
):
    """`from` and `to` are dates (`2026-11-15`) or ISO 8601 times; `to` includes its whole day."""

    since: Timestamp | None = None
    until: Timestamp | None = None
    by: UsageBy = "day"


class NewBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: Title | None = None
    metadata: Metadata = msgspec.field(default_factory=dict)
    system_policy: Policy | None = None


class ChangeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Omitted fields are unchanged; `metadata` replaces all metadata."""

    title: Title | msgspec.UnsetType | None = msgspec.UNSET
    metadata: Metadata | msgspec.UnsetType = msgspec.UNSET
    archived: bool | msgspec.UnsetType = msgspec.UNSET


class BranchBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    branch_at_sequence: Sequence


def read_query(request: Request, kind: type[Q]) -> Q:
    parameters = request.query_params
    for field in msgspec.structs.fields(kind):
        values = parameters.getlist(field.encode_name)
        if len(values) > 1:
            raise FieldError(field.encode_name, "set more than once; send it once")
        if field.default is None and values and values[0].lower() == "null":
            raise FieldError(field.encode_name, "cannot be null; omit it instead")
    try:
        return msgspec.convert(dict(parameters), kind, strict=False)
    except msgspec.ValidationError as error:
        raise _field_error(error) from None


async def read_json(request: ApiRequest, kind: type[T]) -> T:
    return decode(await read_body(request, request.server.body_quota), kind)


def decode(body: bytes, kind: type[T]) -> T:
    try:
        str(body, "utf-8")
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _field_error(error) from None
    except UnicodeDecodeError:
        raise FieldError("", "The body is not UTF-8") from None
    except (msgspec.DecodeError, RecursionError):
        raise FieldError("", "The body is not valid JSON") from None


def _field_error(error: msgspec.ValidationError) -> FieldError:
    match = FIELD_ERROR.fullmatch(str(error))
    path, text = ("", str(error)) if match is None else (match[2], match[1])
    for pattern, problem in ((MISSING_FIELD, "is required"), (UNKNOWN_FIELD, "unknown field")):
        if field := pattern.fullmatch(text):
            return FieldError(f"{path}.{field[1]}".lstrip("."), problem)
    return FieldError(path, describe_problem(text))


def read_title(title: str | None) -> str | None:
    try:
        return check_title(title)
    except InvalidTextError as error:
        raise FieldError("title", str(error)) from None


def check_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    size = len(msgspec.json.encode(metadata))
    if size > MAX_METADATA_BYTES:
        raise FieldError("metadata", f"has {size} bytes as JSON; use at most {MAX_METADATA_BYTES}")
    return metadata


def read_sequence(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_INTEGER))
    return check_sequence(int(text) if is_number else 0, "sequence_number")


def check_sequence(number: int, param: str) -> int:
    if not 1 <= number <= MAX_INTEGER:
        raise ApiError(
            "invalid_sequence_number",
            "A sequence number is an integer of at least 1; GET the conversation to see its "
            "numbers.",
            param=param,
        )
    return number


def read_timestamp(text: str | None, *, field: str, end: bool = False) -> datetime | None:
    """Return a time; for a date its start, or with `end` the start of the next day."""
    if text is None:
        return None
    try:
        if ISO_DATE.fullmatch(text):
            day = date.fromisoformat(text) + timedelta(days=1 if end else 0)
            return datetime.combine(day, time(), UTC)
        # In a query, a plus sign is decoded as a space.
        timestamp = datetime.fromisoformat(text.replace(" ", "+") if "T" in text.upper() else text)
        return (
            timestamp.replace(tzinfo=UTC) if timestamp.tzinfo is None else timestamp.astimezone(UTC)
        )
    except (ValueError, OverflowError):
        raise FieldError(field, "neither a date such as 2026-11-15 nor an ISO 8601 time") from None

"""Reads `server.side_requests`: rules for the side requests of agents."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cllm.history.side_requests import SideRule
from cllm.settings.layers import LayeredSettings

KEY = "server.side_requests"
MAX_RULES = 100

_Text = Annotated[str, Meta(min_length=1, description="a text that is not empty")]
_Flag = Annotated[bool, Meta(description="true or false")]


class _SideRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[
        str,
        Meta(
            pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$",
            description="a name of at most 64 lower-case letters, digits, `-` and `_`",
        ),
    ]
    record: _Flag = True
    client: _Text | None = None
    headers: Annotated[
        dict[str, _Text], Meta(description="a mapping of header names to texts")
    ] = {}
    no_tools: _Flag = False
    response_format: _Flag = False
    system_contains: _Text | None = None
    user_equals: _Text | None = None
    user_starts_with: _Text | None = None
    user_contains: _Text | None = None


def read_side_requests(rows: Any, layered: LayeredSettings) -> tuple[SideRule, ...]:
    if rows is None:
        return ()
    if not isinstance(rows, list) or len(rows) > MAX_RULES:
        expected = f"a list of at most {MAX_RULES} mappings, each with `name` and a condition"
        raise layered.expectation_error(KEY, expected)
    return tuple(_read_rule(row, f"{KEY}.{number}", layered) for number, row in enumerate(rows))


def _read_rule(content: Any, where: str, layered: LayeredSettings) -> SideRule:
    expected = "a mapping such as {name: title, record: false, user_starts_with: Write a title}"
    row = layered.decode(content, _SideRequest, where, expected=expected)
    headers = {name.lower(): text for name, text in row.headers.items()}
    rule = SideRule(**{**msgspec.structs.asdict(row), "headers": headers})
    if not rule.has_condition:
        conditions = ", ".join(_SideRequest.__struct_fields__[2:])
        raise layered.error_at(where, f"needs a condition; use one of {conditions}")
    return rule

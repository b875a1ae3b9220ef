"""Anthropic's counts of tokens, read as ours: disjoint, and adding up."""

from typing import Annotated, Any

import msgspec

from cllm.core.reply import Usage

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _OutputDetails(msgspec.Struct):
    thinking_tokens: Count | None = None


class _Usage(msgspec.Struct):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_creation: dict[str, Count | None] | None = None
    output_tokens_details: _OutputDetails | None = None


def decode_usage(given: Any) -> Usage | None:
    """The counts; unknown where they are not given, or are no counts."""
    try:
        usage = msgspec.convert(given, _Usage)
    except msgspec.ValidationError:
        return None
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    details = usage.output_tokens_details
    output = usage.output_tokens or 0
    thinking = min((details.thinking_tokens if details is not None else 0) or 0, output)
    written = usage.cache_creation_input_tokens
    if written is None:
        written = sum(count or 0 for count in (usage.cache_creation or {}).values())
    hour = (usage.cache_creation or {}).get("ephemeral_1h_input_tokens") or 0
    return Usage(
        input=usage.input_tokens or 0,
        cache_read=usage.cache_read_input_tokens or 0,
        cache_write=written,
        cache_write_hour=min(hour, written),
        output=output - thinking,
        reasoning=thinking,
    )

"""The Responses API's counts of tokens, read as ours: disjoint, and adding up."""

from typing import Annotated, Any

import msgspec

from cllm.core.reply import Usage

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _InputDetails(msgspec.Struct):
    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: Count | None = None


class _Usage(msgspec.Struct):
    input_tokens: Count
    output_tokens: Count = 0
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


def decode_usage(given: Any) -> Usage | None:
    """The counts; unknown where they are not given, or are no counts."""
    try:
        usage = msgspec.convert(given, _Usage)
    except msgspec.ValidationError:
        return None
    details = usage.input_tokens_details or _InputDetails()
    read, written = details.cached_tokens or 0, details.cache_write_tokens or 0
    reasoning = (usage.output_tokens_details or _OutputDetails()).reasoning_tokens or 0
    return Usage(
        input=max(usage.input_tokens - read - written, 0),
        cache_read=read,
        cache_write=written,
        output=max(usage.output_tokens - reasoning, 0),
        reasoning=reasoning,
    )

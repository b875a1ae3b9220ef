"""Token counts in OpenAI's words: its totals include what its details name.

Servers that speak the protocol count in ways of their own; whatever they say, our five numbers are
disjoint, add up to the totals they gave, and are never negative.
"""

from typing import Annotated, Any

import msgspec

from cllm.core.reply import Usage

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _Details(msgspec.Struct):
    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class _Usage(msgspec.Struct):
    """OpenAI's fields, DeepSeek's for what was in its cache, and Moonshot's."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    total_tokens: Count | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: Count | None = None
    cached_tokens: Count | None = None


def decode_usage(reported: Any) -> Usage | None:
    """The counts as reported. Counts that make no sense are unknown; the answer stays one."""
    try:
        usage = msgspec.convert(reported, _Usage | None)
    except msgspec.ValidationError:
        return None
    if usage is None or usage.prompt_tokens is None:
        return None
    prompt = usage.prompt_tokens
    details = usage.prompt_tokens_details or _Details()
    said = (details.cached_tokens, usage.prompt_cache_hit_tokens, usage.cached_tokens)
    read = min(next((count for count in said if count is not None), 0), prompt)
    write = min(details.cache_write_tokens or 0, prompt - read)
    output, reasoning = _answered(usage)
    return Usage(
        input=prompt - read - write,
        cache_read=read,
        cache_write=write,
        output=output,
        reasoning=reasoning,
    )


def _answered(usage: _Usage) -> tuple[int, int]:
    """The tokens of the answer and of the reasoning before it, which some count beside it."""
    completion = usage.completion_tokens or 0
    reasoning = (usage.completion_tokens_details or _Details()).reasoning_tokens or 0
    if usage.total_tokens == (usage.prompt_tokens or 0) + completion + reasoning:
        return completion, reasoning
    reasoning = min(reasoning, completion)
    return completion - reasoning, reasoning


def encode_usage(usage: Usage) -> dict[str, Any]:
    """The counts, added up as OpenAI counts."""
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

"""A provider's prompt cache, by the rules that Anthropic and Bedrock document.

An entry is a prefix of the prompt (tools, system prompt, messages, block by block) up to a cache
breakpoint. A lookup checks up to 20 blocks before each breakpoint, including its own block.
Prefixes below the minimum are not cached. Tokens are estimated from the length; entries never
expire.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LOOKBACK = 20
MAX_CACHE_BREAKPOINTS = 4
CHARACTERS_PER_TOKEN = 4

Fields = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class PromptTokens:
    """The tokens of one prompt: not cached, read and written."""

    sent: int
    read: int
    written: int
    marks: int

    @property
    def total(self) -> int:
        return self.sent + self.read + self.written


@dataclass(frozen=True, kw_only=True)
class _Block:
    key: str
    tokens: int
    is_breakpoint: bool


class PromptCache:
    """The cached prefixes of one provider."""

    def __init__(self, *, minimum: int) -> None:
        self._minimum = minimum
        self._entries: set[str] = set()
        self.counted: list[PromptTokens] = []

    def count(self, request: Fields) -> PromptTokens:
        """Look up a prompt, cache its prefixes and return its token counts."""
        blocks = list(_blocks(request))
        names: list[str] = []
        sums: list[int] = []
        for block in blocks:
            names.append(_name((names[-1] if names else "") + block.key))
            sums.append((sums[-1] if sums else 0) + block.tokens)
        breakpoints = [index for index, block in enumerate(blocks) if block.is_breakpoint]
        assert len(breakpoints) <= MAX_CACHE_BREAKPOINTS
        read = max((sums[index] for index in self._find_entries(breakpoints, names)), default=0)
        cacheable = [index for index in breakpoints if sums[index] >= self._minimum]
        self._entries.update(names[index] for index in cacheable)
        written = max(0, sums[cacheable[-1]] - read) if cacheable else 0
        total = sums[-1]
        self.counted.append(
            PromptTokens(
                sent=total - read - written, read=read, written=written, marks=len(breakpoints)
            )
        )
        return self.counted[-1]

    def _find_entries(self, breakpoints: list[int], names: list[str]) -> Iterator[int]:
        for last in breakpoints:
            for index in range(last, max(last - LOOKBACK, -1), -1):
                if names[index] in self._entries:
                    yield index
                    break


def _blocks(request: Fields) -> Iterator[_Block]:
    tools = request.get("tools") or (request.get("toolConfig") or {}).get("tools") or []
    yield from _list_blocks("tools", tools)
    yield from _list_blocks("system", request.get("system") or [])
    for message in request["messages"]:
        yield from _list_blocks(message["role"], message["content"])


def _list_blocks(section: str, content: str | list[Fields]) -> Iterator[_Block]:
    """Yield blocks. A cache breakpoint is a field of a block or the block after it."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for index, block in enumerate(blocks):
        if "cachePoint" in block:
            assert index, "a cache point is not the first block"
            continue
        following = blocks[index + 1] if index + 1 < len(blocks) else {}
        is_breakpoint = "cache_control" in block or "cachePoint" in following
        if is_breakpoint:
            assert block.get("type") not in ("thinking", "redacted_thinking")
            assert "reasoningContent" not in block
            assert "document" not in block
            assert block.get("text") != ""
        fields = {name: value for name, value in block.items() if name != "cache_control"}
        key = json.dumps([section, fields])
        yield _Block(key=key, tokens=len(key) // CHARACTERS_PER_TOKEN, is_breakpoint=is_breakpoint)


def _name(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

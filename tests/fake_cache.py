"""A provider's cache of prompts, by the rules that Anthropic and Bedrock document.

What is kept is a prefix up to a mark: tools, system prompt, messages, block by block. From each
mark of a prompt it is looked for at no more than 20 blocks, the marked one among them. Prefixes
below the minimum are not kept. Tokens are counted by length; entries never grow old.
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
    marked: bool


class PromptCache:
    """What one provider has kept of all prompts so far."""

    def __init__(self, *, minimum: int) -> None:
        self._minimum = minimum
        self._kept: set[str] = set()
        self.counted: list[PromptTokens] = []

    def count(self, request: Fields) -> PromptTokens:
        """Look the prompt up, keep what it marks, and say which tokens were which."""
        blocks = list(_blocks(request))
        names: list[str] = []
        sums: list[int] = []
        for block in blocks:
            names.append(_name((names[-1] if names else "") + block.key))
            sums.append((sums[-1] if sums else 0) + block.tokens)
        marks = [place for place, block in enumerate(blocks) if block.marked]
        assert len(marks) <= MAX_CACHE_BREAKPOINTS
        read = max((sums[found] for found in self._found(marks, names)), default=0)
        large = [mark for mark in marks if sums[mark] >= self._minimum]
        self._kept.update(names[mark] for mark in large)
        written = max(0, sums[large[-1]] - read) if large else 0
        total = sums[-1]
        self.counted.append(
            PromptTokens(sent=total - read - written, read=read, written=written, marks=len(marks))
        )
        return self.counted[-1]

    def _found(self, marks: list[int], names: list[str]) -> Iterator[int]:
        for mark in marks:
            for place in range(mark, max(mark - LOOKBACK, -1), -1):
                if names[place] in self._kept:
                    yield place
                    break


def _blocks(request: Fields) -> Iterator[_Block]:
    tools = request.get("tools") or (request.get("toolConfig") or {}).get("tools") or []
    yield from _listed("tools", tools)
    yield from _listed("system", request.get("system") or [])
    for message in request["messages"]:
        yield from _listed(message["role"], message["content"])


def _listed(where: str, content: str | list[Fields]) -> Iterator[_Block]:
    """The blocks of a list; a mark is a field of a block, or a block that follows it."""
    given = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for place, block in enumerate(given):
        if "cachePoint" in block:
            assert place, "a cache point is not the first block"
            continue
        following = given[place + 1] if place + 1 < len(given) else {}
        marked = "cache_control" in block or "cachePoint" in following
        if marked:
            assert block.get("type") not in ("thinking", "redacted_thinking")
            assert "reasoningContent" not in block
            assert "document" not in block
            assert block.get("text") != ""
        said = {name: value for name, value in block.items() if name != "cache_control"}
        key = json.dumps([where, said])
        yield _Block(key=key, tokens=len(key) // CHARACTERS_PER_TOKEN, marked=marked)


def _name(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

"""The token estimate of a text: used for text that no provider has counted.

An estimate is a weighted sum over the runs of characters in a text. The ratio of a provider's
reported count to the estimate, within bounds, corrects the estimates of later text.
"""

import re
import string
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from math import ceil
from typing import Any

import msgspec

from cllm.core.message import Message
from cllm.core.prompt import Prompt
from cllm.core.reply import Usage

TOKENS_PER_MESSAGE = 4
TOKENS_PER_IMAGE = 1600
CHARACTERS_PER_FILE_TOKEN = 16
"""Characters of the base64 of a file, whose number of pages is unknown."""
MAX_CACHED_MESSAGES = 4096
MAX_CACHED_BYTES = 2048
"""Size of the cache of `estimate_message`, and of the longest message in it (decision 20)."""
SHORT_RUN = 6
"""Letters. Most words up to this length are one token; longer runs count by their length."""
LONG_RUN = 16
"""Characters. A run of one character of at least this length counts by `TokenWeights.repeated`."""
MARGIN = 1.2
"""Factor for text after a report: passages of the same kind differ by up to this much."""
EVIDENCE = 1000
"""Tokens. The longer the text of a report below the estimate, the more the report counts."""
LOWEST_RATIO, HIGHEST_RATIO = 0.4, 2.0
"""Bounds of reported to estimated tokens. The vocabularies in the tests stay within them on prose,
code and data; a report outside them is about an unusual text and does not predict the next one."""


class CharacterRun(msgspec.Struct, frozen=True):
    """Tokens of a run, of each character, and of each character past SHORT_RUN."""

    per_run: float
    per_character: float = 0.0
    per_extra: float = 0.0


class TokenWeights(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Tokens of the parts of a text, fitted to a family of vocabularies.

    ASCII counts in runs of a class, other characters one by one: `letter` is Greek, Cyrillic,
    Hebrew and Arabic, `indic` South and South-East Asia, `wide` Chinese, Japanese and Korean,
    `emoji` everything of four bytes. `byte` is added for every byte. `repeated` (characters, tokens
    per character) replaces these weights for long runs of one character.
    """

    word: CharacterRun
    capitals: CharacterRun
    number: CharacterRun
    marks: CharacterRun
    lines: CharacterRun
    tabs: CharacterRun
    accented: float
    letter: float
    indic: float
    symbol: float
    wide: float
    emoji: float
    byte: float
    repeated: tuple[tuple[str, float], ...]


GENERAL = TokenWeights(
    word=CharacterRun(1.0, per_extra=0.33),
    capitals=CharacterRun(0.95, per_extra=0.5),
    number=CharacterRun(0.8, per_character=0.6),
    marks=CharacterRun(0.65, per_character=0.5),
    lines=CharacterRun(0.5, per_character=0.2),
    tabs=CharacterRun(0.85, per_character=0.1),
    accented=1.3,
    letter=1.0,
    indic=1.4,
    symbol=1.0,
    wide=1.75,
    emoji=3.0,
    byte=0.012,
    repeated=(("#*-=_~", 0.05), ("./+", 0.1)),
)
"""For a vocabulary of any size, down to the 49,000 entries of small local models."""
LARGE = TokenWeights(
    word=CharacterRun(0.9, per_extra=0.31),
    capitals=CharacterRun(0.9, per_extra=0.33),
    number=CharacterRun(1.2, per_character=0.25),
    marks=CharacterRun(0.55, per_character=0.36),
    lines=CharacterRun(0.4, per_character=0.04),
    tabs=CharacterRun(0.45, per_character=0.03),
    accented=0.75,
    letter=0.46,
    indic=0.5,
    symbol=0.45,
    wide=0.86,
    emoji=1.7,
    byte=0.01,
    repeated=(
        ("afloxAF<>?@^═━", 0.14),
        ("X!:;—…─", 0.07),
        ("%+~", 0.03),
        ("#*-./=_", 0.005),
    ),
)
"""For the vocabularies of about 200,000 entries that OpenAI's models have."""


def weights_for(provider: str) -> TokenWeights:
    return LARGE if provider == "openai" else GENERAL


class TokenEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate in two parts, because tokenizers differ most for `wide` scripts."""

    plain: float = 0.0
    wide: float = 0.0

    @property
    def tokens(self) -> int:
        return ceil(self.plain + self.wide)

    def __add__(self, other: "TokenEstimate") -> "TokenEstimate":
        return TokenEstimate(plain=self.plain + other.plain, wide=self.wide + other.wide)


NO_TOKENS = TokenEstimate()


def _membership_table(characters: str) -> bytes:
    """Return a table for `bytes.translate`: 1 for these characters, else 0."""
    members = characters.encode()
    return bytes(byte in members for byte in range(256))


def _all_but(*leads: int) -> bytes:
    return bytes(byte for byte in range(256) if byte not in leads)


_CONTINUATIONS = bytes(range(0x80, 0xC0))
_RUNS = {
    "word": _membership_table(string.ascii_lowercase),
    "capitals": _membership_table(string.ascii_uppercase),
    "number": _membership_table(string.digits),
    "marks": _membership_table(string.punctuation),
    "lines": _membership_table("\n"),
    "tabs": _membership_table("\t"),
}
_PLAIN = {
    "accented": _all_but(*range(0xC3, 0xCA)),
    "letter": _all_but(*range(0xCA, 0xE0)),
    "symbol": _all_but(0xC2, 0xE2, 0xEF),
    "emoji": _all_but(*range(0xF0, 0xF5)),
}
_WIDE = {"indic": _all_but(0xE0, 0xE1), "wide": _all_but(*range(0xE3, 0xEF))}


def estimate_text(text: str, weights: TokenWeights = GENERAL) -> TokenEstimate:
    """Estimate the tokens of a text in linear time."""
    octets = text.encode(errors="replace")
    plain = weights.byte * len(octets)
    leads = octets.translate(None, _CONTINUATIONS)
    if _has_long_run(leads):
        for run, pattern, tokens_per_byte in _repeats(weights):
            if run in octets:
                shorter = pattern.sub(b" ", octets)
                plain += tokens_per_byte * (len(octets) - len(shorter))
                octets = shorter
        leads = octets.translate(None, _CONTINUATIONS)
    runs = wide = 0.0
    for name, table in _RUNS.items():
        runs += _estimate_runs(leads, table, getattr(weights, name))
    plain += runs
    if not leads.isascii():
        for name, others in _PLAIN.items():
            plain += getattr(weights, name) * len(leads.translate(None, others))
        for name, others in _WIDE.items():
            wide += getattr(weights, name) * len(leads.translate(None, others))
    return TokenEstimate(plain=plain, wide=wide)


def _has_long_run(leads: bytes) -> bool:
    """Whether it has `LONG_RUN` equal bytes in a row; most texts have not."""
    number = int.from_bytes(leads, "little")
    changes = (number ^ (number >> 8)).to_bytes(len(leads), "little")
    return bytes(LONG_RUN - 1) in changes


def _estimate_runs(leads: bytes, table: bytes, run: CharacterRun) -> float:
    """Estimate the tokens of the runs of a class of characters.

    Counting bits of integers is three times as fast as splitting the text.
    """
    members = int.from_bytes(leads.translate(table), "little")
    if not members:
        return 0.0
    tokens = run.per_run * (members ^ (members << 8)).bit_count() / 2
    if run.per_character:
        tokens += run.per_character * members.bit_count()
    if run.per_extra:
        pairs = members & (members >> 8)
        fours = pairs & (pairs >> 16)
        tokens += run.per_extra * (fours & (fours >> 8 * (SHORT_RUN - 3))).bit_count()
    return tokens


@cache
def _repeats(weights: TokenWeights) -> tuple[tuple[bytes, re.Pattern[bytes], float], ...]:
    """Return the shortest long run of each character, a pattern, and tokens per byte."""
    patterns: list[tuple[bytes, re.Pattern[bytes], float]] = []
    for characters, tokens in weights.repeated:
        for one in map(str.encode, characters):
            # With the run spelled out, `re` searches ten times as fast as with `{16,}`.
            pattern = re.compile(re.escape(one * LONG_RUN) + b"(?:" + re.escape(one) + b")*")
            patterns.append((one * LONG_RUN, pattern, tokens / len(one)))
    return tuple(patterns)


def estimate_message(message: Message, weights: TokenWeights = GENERAL) -> TokenEstimate:
    """Estimate the tokens of a message in any dialect."""
    if len(message.raw) <= MAX_CACHED_BYTES:
        return _estimate_cached(message.raw, weights)
    return _estimate_raw(message.raw, weights)


def _estimate_raw(raw: bytes, weights: TokenWeights) -> TokenEstimate:
    fields = msgspec.json.decode(raw)
    estimate = TokenEstimate(plain=TOKENS_PER_MESSAGE)
    for text in _texts(fields):
        estimate += estimate_text(text, weights)
    return estimate + TokenEstimate(plain=_estimate_files(fields))


# Every turn estimates its whole history, all of which but the end was estimated before.
_estimate_cached = lru_cache(maxsize=MAX_CACHED_MESSAGES)(_estimate_raw)


_WITHOUT_TEXT = frozenset(
    ("cache_control", "cachePoint", "id", "role", "signature", "status", "type", "citations")
)
_FILES = frozenset(("bytes", "data", "file_data", "image_url", "url"))


def _texts(value: Any) -> Iterator[str]:
    """Yield the strings in a JSON value, and its numbers as written."""
    match value:
        case str():
            yield value
        case dict():
            for name, inner in value.items():
                if name in ("arguments", "input") and not isinstance(inner, str | list):
                    yield msgspec.json.encode(inner).decode()
                elif name not in _WITHOUT_TEXT and not (name in _FILES and _is_file(value, name)):
                    yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)
        case bool() | int() | float():
            yield str(value)


def _is_file(block: dict[str, Any], name: str) -> bool:
    return not (name == "data" and block.get("type") == "text")


def _estimate_files(value: Any) -> float:
    match value:
        case dict():
            return sum(
                _estimate_file(value, name, inner) if name in _FILES else _estimate_files(inner)
                for name, inner in value.items()
            )
        case list():
            return sum(map(_estimate_files, value))
        case _:
            return 0.0


def _estimate_file(block: dict[str, Any], name: str, inner: Any) -> float:
    if not _is_file(block, name):
        return 0.0
    is_image = name == "image_url" or str(block.get("media_type", "image")).startswith("image")
    if is_image or not isinstance(inner, str):
        return TOKENS_PER_IMAGE
    return max(TOKENS_PER_IMAGE, len(inner) / CHARACTERS_PER_FILE_TOKEN)


def estimate_tokens(message: Message, weights: TokenWeights = GENERAL) -> int:
    return estimate_message(message, weights).tokens


def estimate_usage(prompt: Prompt, reply: Message, weights: TokenWeights = GENERAL) -> Usage:
    sent = sum(estimate_tokens(message, weights) for message in prompt.all_messages)
    return Usage(input=sent, output=estimate_tokens(reply, weights), estimated=True)


def margin_of(tokens: int) -> int:
    """Return the margin in a corrected estimate."""
    return tokens - ceil(tokens / MARGIN)


class TokenRatio(msgspec.Struct, frozen=True, kw_only=True):
    estimated: float = 0.0
    reported: float = 0.0

    @property
    def factor(self) -> float:
        """The factor that makes an estimate almost never too low."""
        if not self.estimated:
            return 1.0
        ratio = self.reported / self.estimated
        if ratio < 1.0:
            ratio = (self.reported + EVIDENCE) / (self.estimated + EVIDENCE)
        return MARGIN * min(max(ratio, LOWEST_RATIO), HIGHEST_RATIO)


class TokenRatios(msgspec.Struct, frozen=True, kw_only=True):
    """Ratios of reported to estimated tokens for one model."""

    plain: TokenRatio = TokenRatio()
    wide: TokenRatio = TokenRatio()

    def correct(self, estimate: TokenEstimate) -> int:
        return ceil(estimate.plain * self.plain.factor + estimate.wide * self.wide.factor)

    def with_report(self, estimate: TokenEstimate, reported: int) -> "TokenRatios":
        """Return the ratios after a report on text with this estimate.

        A report is one number: it corrects the kind that makes up most of the text.
        """
        kind, other = ("plain", "wide") if estimate.plain >= estimate.wide else ("wide", "plain")
        rest = reported - getattr(estimate, other) * getattr(self, other).factor
        ratio = TokenRatio(estimated=getattr(estimate, kind), reported=max(rest, 0.0))
        return msgspec.structs.replace(self, **{kind: ratio})


def distribute_tokens(total: int, estimates: Sequence[int]) -> tuple[int, ...]:
    """Divide a reported count in proportion to estimates, in whole numbers."""
    whole = sum(estimates)
    if not whole:
        return tuple(total if index == 0 else 0 for index in range(len(estimates)))
    borders = [total * before // whole for before in accumulate(estimates, initial=0)]
    return tuple(after - before for before, after in pairwise(borders))

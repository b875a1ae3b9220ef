"""Token estimates, for text that no provider has counted.

An estimate is a weighted sum over the runs of letters, digits, punctuation and line breaks in a
text, and over its characters outside ASCII. What a provider reports is exact for what it covered;
the bounded ratio between report and estimate corrects the estimates of later text. Needs no
tokenizer, and never presents an estimate as a count.
"""

import re
import string
from collections.abc import Sequence
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
"""Of the base64 of a file beside the text, of which nobody knows how many pages it has."""
MOST_REMEMBERED = 4096
LONGEST_REMEMBERED = 2048
"""How many messages are not weighed twice, and the bytes of the longest that is remembered."""
SHORT_RUN = 6
"""Letters. Most words up to this length are one token; longer runs are weighed by their length."""
LONG_RUN = 16
"""Characters. From this length on, a run of one character is weighed by `Weights.repeated`."""
MARGIN = 1.2
"""On what follows a report: passages of one kind differ by this much from one another."""
EVIDENCE = 1000
"""Tokens. A report that says less than was estimated is believed as far as it is longer."""
LOWEST_RATIO, HIGHEST_RATIO = 0.4, 2.0
"""Bounds of reported to estimated tokens. The vocabularies in the tests stay within them on prose,
code and data; a report outside them is about an unusual text and says nothing about the next."""


class Run(msgspec.Struct, frozen=True):
    """Tokens of a run of characters of one class.

    `start` counts once, `each` for every character, `more` for every character past `SHORT_RUN`.
    """

    start: float
    each: float = 0.0
    more: float = 0.0


class Weights(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Tokens of the parts of a text, fitted to a family of vocabularies.

    ASCII text is weighed in runs: lower-case letters (`word`), `capitals`, digits (`number`),
    punctuation (`marks`), line feeds and tabs. Other characters are weighed one by one: `accented`
    is Latin with diacritics; `letter` is Greek, Cyrillic, Hebrew and Arabic; `indic` the scripts of
    South and South-East Asia; `symbol` punctuation and signs; `wide` Chinese, Japanese and Korean;
    `emoji` everything of four bytes. `byte` is added for every byte, so that spaces count too.
    `repeated` replaces all this for long runs of one character, which vocabularies have entries
    for; it gives characters and the tokens of each of them in such a run.
    """

    word: Run
    capitals: Run
    number: Run
    marks: Run
    lines: Run
    tabs: Run
    accented: float
    letter: float
    indic: float
    symbol: float
    wide: float
    emoji: float
    byte: float
    repeated: tuple[tuple[str, float], ...]


GENERAL = Weights(
    word=Run(1.0, more=0.33),
    capitals=Run(0.95, more=0.5),
    number=Run(0.8, each=0.6),
    marks=Run(0.65, each=0.5),
    lines=Run(0.5, each=0.2),
    tabs=Run(0.85, each=0.1),
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
LARGE = Weights(
    word=Run(0.9, more=0.31),
    capitals=Run(0.9, more=0.33),
    number=Run(1.2, each=0.25),
    marks=Run(0.55, each=0.36),
    lines=Run(0.4, each=0.04),
    tabs=Run(0.45, each=0.03),
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


def weights_for(provider: str) -> Weights:
    """The table for the models of this provider."""
    return LARGE if provider == "openai" else GENERAL


class Weighed(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate in two parts, which a tokenizer can treat quite differently.

    `wide` is that of Chinese, Japanese and other scripts of wide characters, `plain` the rest.
    """

    plain: float = 0.0
    wide: float = 0.0

    @property
    def tokens(self) -> int:
        return ceil(self.plain + self.wide)

    def __add__(self, other: "Weighed") -> "Weighed":
        return Weighed(plain=self.plain + other.plain, wide=self.wide + other.wide)


NOTHING = Weighed()


def _members(characters: str) -> bytes:
    """A table for `bytes.translate`: 1 for the characters of a class, 0 for all others."""
    members = characters.encode()
    return bytes(byte in members for byte in range(256))


def _all_but(*leads: int) -> bytes:
    """The bytes to delete so that only these lead bytes remain."""
    return bytes(byte for byte in range(256) if byte not in leads)


_WORDS = _members(string.ascii_lowercase)
_CAPITALS = _members(string.ascii_uppercase)
_NUMBERS = _members(string.digits)
_MARKS = _members(string.punctuation)
_LINES = _members("\n")
_TABS = _members("\t")
_CONTINUATIONS = bytes(range(0x80, 0xC0))
_NOT_ACCENTED = _all_but(*range(0xC3, 0xCA))
_NOT_LETTER = _all_but(*range(0xCA, 0xE0))
_NOT_INDIC = _all_but(0xE0, 0xE1)
_NOT_SYMBOL = _all_but(0xC2, 0xE2, 0xEF)
_NOT_WIDE = _all_but(*range(0xE3, 0xEF))
_NOT_EMOJI = _all_but(*range(0xF0, 0xF5))


def weigh_text(text: str, weights: Weights = GENERAL) -> Weighed:
    """Estimate the tokens of a text. The cost is linear in its length."""
    octets = text.encode(errors="replace")
    plain = weights.byte * len(octets)
    leads = octets.translate(None, _CONTINUATIONS)
    if _has_long_run(leads):
        for repeat in _repeats(weights):
            if repeat.run in octets:
                shorter = repeat.pattern.sub(b" ", octets)
                plain += repeat.tokens_per_byte * (len(octets) - len(shorter))
                octets = shorter
        leads = octets.translate(None, _CONTINUATIONS)
    plain += (
        _weigh_runs(leads, _WORDS, weights.word)
        + _weigh_runs(leads, _CAPITALS, weights.capitals)
        + _weigh_runs(leads, _NUMBERS, weights.number)
        + _weigh_runs(leads, _MARKS, weights.marks)
        + _weigh_runs(leads, _LINES, weights.lines)
        + _weigh_runs(leads, _TABS, weights.tabs)
    )
    if leads.isascii():
        return Weighed(plain=plain)
    return Weighed(
        plain=plain
        + weights.accented * len(leads.translate(None, _NOT_ACCENTED))
        + weights.letter * len(leads.translate(None, _NOT_LETTER))
        + weights.symbol * len(leads.translate(None, _NOT_SYMBOL))
        + weights.emoji * len(leads.translate(None, _NOT_EMOJI)),
        wide=weights.indic * len(leads.translate(None, _NOT_INDIC))
        + weights.wide * len(leads.translate(None, _NOT_WIDE)),
    )


def _has_long_run(leads: bytes) -> bool:
    """Whether `LONG_RUN` equal bytes follow each other. Most texts have no such run."""
    number = int.from_bytes(leads, "little")
    changes = (number ^ (number >> 8)).to_bytes(len(leads), "little")
    return bytes(LONG_RUN - 1) in changes


def _weigh_runs(leads: bytes, table: bytes, run: Run) -> float:
    """Weigh the runs of a class of characters.

    Counts on an integer that has a byte for each byte of the text, 1 for members of the class:
    shifting and masking it is three times as fast as splitting the text into a list of runs.
    """
    members = int.from_bytes(leads.translate(table), "little")
    if not members:
        return 0.0
    tokens = run.start * (members ^ (members << 8)).bit_count() / 2
    if run.each:
        tokens += run.each * members.bit_count()
    if run.more:
        pairs = members & (members >> 8)
        fours = pairs & (pairs >> 16)
        tokens += run.more * (fours & (fours >> 8 * (SHORT_RUN - 3))).bit_count()
    return tokens


class _Repeat(msgspec.Struct, frozen=True):
    """A character that vocabularies have long runs of: its shortest run, and a pattern for all."""

    run: bytes
    pattern: re.Pattern[bytes]
    tokens_per_byte: float


@cache
def _repeats(weights: Weights) -> tuple[_Repeat, ...]:
    return tuple(
        _repeat(character.encode(), tokens)
        for characters, tokens in weights.repeated
        for character in characters
    )


def _repeat(character: bytes, tokens: float) -> _Repeat:
    run = character * LONG_RUN
    # With the run spelled out, `re` searches ten times as fast as with `{16,}`.
    pattern = re.compile(re.escape(run) + b"(?:" + re.escape(character) + b")*")
    return _Repeat(run, pattern, tokens / len(character))


def weigh(message: Message, weights: Weights = GENERAL) -> Weighed:
    """What a message comes to, with its tools, thinking and files, in every dialect."""
    if len(message.raw) <= LONGEST_REMEMBERED:
        return _weigh_again(message.raw, weights)
    return _weigh(message.raw, weights)


def _weigh(raw: bytes, weights: Weights) -> Weighed:
    said = msgspec.json.decode(raw)
    found = Weighed(plain=TOKENS_PER_MESSAGE)
    for text in _texts(said):
        found += weigh_text(text, weights)
    return found + Weighed(plain=_files(said))


# A conversation that goes on is weighed in every turn, and all but the end of it was before.
_weigh_again = lru_cache(maxsize=MOST_REMEMBERED)(_weigh)


_UNSAID = frozenset(
    ("cache_control", "cachePoint", "id", "role", "signature", "status", "type", "citations")
)
_FILES = frozenset(("bytes", "data", "file_data", "image_url", "url"))


def _texts(said: Any) -> Any:
    """All that is said in a JSON value: its strings, and its numbers as they are written."""
    match said:
        case str():
            yield said
        case dict():
            for name, inner in said.items():
                if name in ("arguments", "input") and not isinstance(inner, str | list):
                    yield msgspec.json.encode(inner).decode()
                elif name not in _UNSAID and not (name in _FILES and _is_file(said, name)):
                    yield from _texts(inner)
        case list():
            for inner in said:
                yield from _texts(inner)
        case bool() | int() | float():
            yield str(said)


def _is_file(block: dict[str, Any], name: str) -> bool:
    """Whether a field is the content of a file, and not a document's plain text."""
    return not (name == "data" and block.get("type") == "text")


def _files(said: Any) -> float:
    match said:
        case dict():
            own = sum(_file(said, name, inner) for name, inner in said.items() if name in _FILES)
            return own + sum(_files(inner) for name, inner in said.items() if name not in _FILES)
        case list():
            return sum(map(_files, said))
        case _:
            return 0.0


def _file(block: dict[str, Any], name: str, inner: Any) -> float:
    """An image costs the same whatever its size; another file is guessed at by its length."""
    if not _is_file(block, name):
        return 0.0
    is_image = name == "image_url" or str(block.get("media_type", "image")).startswith("image")
    if is_image or not isinstance(inner, str):
        return TOKENS_PER_IMAGE
    return max(TOKENS_PER_IMAGE, len(inner) / CHARACTERS_PER_FILE_TOKEN)


def estimate_tokens(message: Message, weights: Weights = GENERAL) -> int:
    """About how many tokens a message takes, as long as nobody has counted any."""
    return weigh(message, weights).tokens


def estimate_usage(prompt: Prompt, reply: Message, weights: Weights = GENERAL) -> Usage:
    """The usage of a call whose provider reported none."""
    sent = sum(estimate_tokens(message, weights) for message in prompt.all_messages)
    return Usage(input=sent, output=estimate_tokens(reply, weights), estimated=True)


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """What was estimated and what was reported of it; nothing, before there is a report."""

    estimated: float = 0.0
    reported: float = 0.0

    @property
    def factor(self) -> float:
        """By which an estimate is multiplied to be hardly ever too low."""
        if not self.estimated:
            return 1.0
        ratio = self.reported / self.estimated
        if ratio < 1.0:
            ratio = (self.reported + EVIDENCE) / (self.estimated + EVIDENCE)
        return MARGIN * min(max(ratio, LOWEST_RATIO), HIGHEST_RATIO)


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """What the reports of a conversation say about its model's tokenizer, for each kind of text.

    It holds for one model: another one begins with nothing learned.
    """

    plain: Ratio = Ratio()
    wide: Ratio = Ratio()

    def expect(self, weighed: Weighed) -> int:
        """The tokens of what came after the last report."""
        return ceil(weighed.plain * self.plain.factor + weighed.wide * self.wide.factor)

    def after(self, weighed: Weighed, reported: int) -> "Learned":
        """With one more report: what was sent was weighed as this, and counted as that.

        A report is one number. It speaks of the kind that most of the text was of.
        """
        if weighed.plain >= weighed.wide:
            rest = reported - weighed.wide * self.wide.factor
            ratio = Ratio(estimated=weighed.plain, reported=max(rest, 0.0))
            return msgspec.structs.replace(self, plain=ratio)
        rest = reported - weighed.plain * self.plain.factor
        ratio = Ratio(estimated=weighed.wide, reported=max(rest, 0.0))
        return msgspec.structs.replace(self, wide=ratio)


def share_out(total: int, estimates: Sequence[int]) -> tuple[int, ...]:
    """A reported count over the messages that it covers, in proportion to what was estimated.

    The shares are whole and add up to the count.
    """
    whole = sum(estimates)
    if not whole:
        return tuple(total if place == 0 else 0 for place in range(len(estimates)))
    borders = [total * before // whole for before in accumulate(estimates, initial=0)]
    return tuple(after - before for before, after in pairwise(borders))

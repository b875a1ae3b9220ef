"""How many tokens something is, where the provider did not say.

Before anything is reported, a text is weighed by what it is made of: words, capitals, numbers,
marks, lines and wide characters, by a table that errs upwards. What a provider reports is the truth
for what it covered, and the ratio between the two serves whatever comes after. Needs no tokenizer,
and never claims that an estimate is a count.
"""

import string
from collections.abc import Sequence
from functools import lru_cache
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
MARGIN = 1.2
"""On what follows a report: passages of one kind differ by this much from one another."""
EVIDENCE = 1000
"""Tokens. A report that says less than was estimated is believed as far as it is longer."""


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens for each thing that a text is made of.

    `word` is a run of small letters and `capital` one capital letter; `number` and `marks` are
    runs too, with `digit` and `mark` for each character in them. `ideograph` and `wide` are
    characters of three bytes in UTF-8, `letter` those of two, and `symbol` those of four.
    """

    word: float
    capital: float
    number: float
    digit: float
    marks: float
    mark: float
    line: float
    ideograph: float
    wide: float
    letter: float
    symbol: float


GENERAL = Weights(
    word=1.1,
    capital=0.75,
    number=0.8,
    digit=0.5,
    marks=1.05,
    mark=0.15,
    line=0.8,
    ideograph=1.75,
    wide=1.75,
    letter=1.0,
    symbol=3.0,
)
"""For a vocabulary of any size, down to the 49,000 entries of small local models."""
LARGE = Weights(
    word=1.05,
    capital=0.65,
    number=1.2,
    digit=0.12,
    marks=1.0,
    mark=0.12,
    line=0.9,
    ideograph=0.8,
    wide=0.8,
    letter=0.6,
    symbol=2.0,
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


def _spaced(kept: bytes) -> bytes:
    """A table that leaves the bytes of one class and makes a space of every other."""
    return bytes(byte if byte in kept else 0x20 for byte in range(256))


def _others(kept: bytes) -> bytes:
    return bytes(byte for byte in range(256) if byte not in kept)


_WORDS = _spaced(string.ascii_lowercase.encode())
_NUMBERS = _spaced(string.digits.encode())
_MARKS = _spaced(string.punctuation.encode())
_NOT_CAPITAL = _others(string.ascii_uppercase.encode())
_NOT_DIGIT = _others(string.digits.encode())
_NOT_MARK = _others(string.punctuation.encode())
_NOT_IDEOGRAPH = _others(bytes(range(0xE4, 0xEA)))
_NOT_WIDE = _others(bytes((*range(0xE0, 0xE4), *range(0xEA, 0xF0))))
_NOT_LETTER = _others(bytes(range(0xC2, 0xE0)))
_NOT_SYMBOL = _others(bytes(range(0xF0, 0xF5)))


def weigh_text(text: str, weights: Weights = GENERAL) -> Weighed:
    """What a text comes to; the first bytes of its characters say which scripts it is in."""
    octets = text.encode(errors="replace")
    plain = (
        weights.word * len(octets.translate(_WORDS).split())
        + weights.capital * len(octets.translate(None, _NOT_CAPITAL))
        + weights.number * len(octets.translate(_NUMBERS).split())
        + weights.digit * len(octets.translate(None, _NOT_DIGIT))
        + weights.marks * len(octets.translate(_MARKS).split())
        + weights.mark * len(octets.translate(None, _NOT_MARK))
        + weights.line * octets.count(b"\n")
    )
    if len(octets) == len(text):
        return Weighed(plain=plain)
    return Weighed(
        plain=plain
        + weights.letter * len(octets.translate(None, _NOT_LETTER))
        + weights.symbol * len(octets.translate(None, _NOT_SYMBOL)),
        wide=weights.ideograph * len(octets.translate(None, _NOT_IDEOGRAPH))
        + weights.wide * len(octets.translate(None, _NOT_WIDE)),
    )


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


def estimate_usage(prompt: Prompt, reply: Message) -> Usage:
    """The usage of a call whose provider reported none."""
    sent = sum(estimate_tokens(message) for message in prompt.all_messages)
    return Usage(input=sent, output=estimate_tokens(reply), estimated=True)


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """What was estimated and what was reported of it; nothing, before there is a report."""

    estimated: float = 0.0
    reported: float = 0.0

    @property
    def factor(self) -> float:
        """By which an estimate is multiplied to be hardly ever too low."""
        if not self.estimated:
            return 1.0
        if self.reported >= self.estimated:
            return MARGIN * self.reported / self.estimated
        return MARGIN * (self.reported + EVIDENCE) / (self.estimated + EVIDENCE)


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

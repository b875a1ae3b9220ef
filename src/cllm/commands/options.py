"""Parses a program's arguments by a list of its allowed options."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from cllm.commands.command_line import CommandRefusedError
from cllm.commands.paths import require_visible

Value = Literal["none", "text", "path", "optional", "attached", "separate"]


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    index: int


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of one command.

    `literal`: indexes of the words that the settings contain literally; these are trusted.
    `is_restricted`: only visible files in the folder are allowed.
    """

    program: str
    words: tuple[str, ...]
    literal: frozenset[int]
    directory: Path
    is_restricted: bool

    def check_path(self, argument: Argument) -> None:
        if self.is_restricted and argument.index not in self.literal:
            require_visible(argument.text, self.directory)

    def refuse(self, operands: Sequence[Argument]) -> None:
        refused = [operand.text for operand in operands if operand.index not in self.literal]
        if refused:
            raise CommandRefusedError(f"`{self.program}` does not allow `{refused[0]}`.")


@cache
def option_table(specification: str) -> dict[str, Value]:
    """Return the options of a specification such as `-n= --lines= -f=path --color=? -q -#`.

    `=` takes a value, `=path` a path, `=?` an attached value or none, `=!` an attached value,
    `=word` a value in a separate word. `-#` is a number.
    """
    kinds: dict[str, Value] = {
        "": "text",
        "path": "path",
        "?": "optional",
        "!": "attached",
        "word": "separate",
    }
    table: dict[str, Value] = {}
    for item in specification.split():
        name, has_value, kind = item.partition("=")
        table[name] = kinds[kind] if has_value else "none"
    return table


class ParsedOptions:
    """Options and operands. `has_unlisted_option`: the settings contain an unknown option."""

    def __init__(
        self,
        words: Sequence[str],
        table: dict[str, Value],
        literal: frozenset[int],
        *,
        program: str,
    ) -> None:
        self.options: list[str] = []
        self.names: set[str] = set()
        self.paths: list[Argument] = []
        self.operands: list[Argument] = []
        self.has_unlisted_option = False
        self._words = words
        self._table = table
        self._literal = literal
        self._program = program
        self._at = 0
        while self._at < len(words):
            word = words[self._at]
            if word == "--":
                self._take_operands(self._at + 1, len(words))
                break
            if word.startswith("--"):
                self._read_long(word)
            elif word.startswith("-") and word != "-":
                self._read_short(word)
            else:
                self._take_operands(self._at, self._at + 1)
            self._at += 1

    def _take_operands(self, start: int, end: int) -> None:
        self.operands += [Argument(text=self._words[n], index=n) for n in range(start, end)]

    def _read_long(self, word: str) -> None:
        name, has_value, value = word.partition("=")
        kind = self._table.get(name)
        if kind is None or (kind == "none" and has_value) or (kind == "attached" and not has_value):
            self._take_unlisted(word)
            return
        self.names.add(name)
        self.options.append(word)
        if has_value:
            self._take_value(kind, value)
        elif kind in ("text", "path"):
            self._take_next_value(name, kind)

    def _read_short(self, word: str) -> None:
        if word[1:].isdigit() and "-#" in self._table:
            self.options.append(word)
            return
        for position, letter in enumerate(word[1:], start=1):
            name = f"-{letter}"
            kind = self._table.get(name)
            rest = word[position + 1 :]
            if kind is None or (kind == "separate" and rest):
                self._take_unlisted(word)
                return
            self.names.add(name)
            if kind != "none":
                self.options.append(word)
                if rest:
                    self._take_value(kind, rest)
                elif kind != "optional":
                    self._take_next_value(name, kind)
                return
        self.options.append(word)

    def _take_next_value(self, name: str, kind: Value) -> None:
        self._at += 1
        if self._at == len(self._words):
            raise CommandRefusedError(f"`{self._program} {name}` has no value.")
        self.options.append(self._words[self._at])
        self._take_value(kind, self._words[self._at])

    def _take_value(self, kind: Value, value: str) -> None:
        if kind == "path":
            self.paths.append(Argument(text=value, index=self._at))

    def _take_unlisted(self, word: str) -> None:
        if self._at not in self._literal:
            raise CommandRefusedError(
                f"`{self._program}` does not allow the option `{word}`: only options that write "
                "nothing, run nothing and show no hidden files are allowed."
            )
        self.options.append(word)
        self.has_unlisted_option = True

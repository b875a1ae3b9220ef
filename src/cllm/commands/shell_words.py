"""A shell line taken apart into the simple commands in it, as far as that is certain.

Anything whose meaning only a shell knows (substitutions, redirections, variables, groups) makes the
line opaque: it is then no list of simple commands, and nothing may be concluded from how it begins.
"""

import msgspec

SEPARATORS = (";", "&&", "||", "|", "&", "\n")
# What may change what a word is, or what a command does, other than by its words.
OPAQUE = frozenset("$`<>(){}!#\\\r\0")
GLOB = frozenset("*?[]~")
QUOTED_OPAQUE = frozenset("$`\\!\0")
WORD_ENDS = frozenset(" \t")


class SimpleCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One command and its arguments, quotes taken off.

    With `has_glob` the shell makes file names of some words, and a file can be named like an
    option.
    """

    words: tuple[str, ...]
    has_glob: bool = False

    @property
    def text(self) -> str:
        return " ".join(self.words)


def simple_commands(line: str) -> tuple[SimpleCommand, ...] | None:
    """The simple commands of a line, whatever joins them; None if it is more than those."""
    reader = _Reader(line)
    try:
        while reader.more():
            reader.step()
        reader.end_command(last=True)
    except _OpaqueError:
        return None
    return tuple(reader.commands) or None


class _OpaqueError(ValueError):
    """The line holds something that only a shell can tell the meaning of."""


class _Reader:
    """Reads a line character by character."""

    def __init__(self, line: str) -> None:
        self.commands: list[SimpleCommand] = []
        self._line = line.strip()
        self._at = 0
        self._words: list[str] = []
        self._word: str | None = None
        self._glob = False

    def more(self) -> bool:
        return self._at < len(self._line)

    def step(self) -> None:
        character = self._line[self._at]
        separator = self._separator()
        if separator:
            self._at += len(separator)
            self.end_command(last=False)
        elif character in WORD_ENDS:
            self._at += 1
            self._end_word()
        elif character in "'\"":
            self._quoted(character)
        elif character in OPAQUE:
            raise _OpaqueError
        else:
            self._at += 1
            self._glob = self._glob or character in GLOB
            self._word = (self._word or "") + character

    def _separator(self) -> str:
        double = self._line[self._at : self._at + 2]
        if double in SEPARATORS:
            return double
        single = double[:1]
        return single if single in SEPARATORS else ""

    def _quoted(self, quote: str) -> None:
        end = self._line.find(quote, self._at + 1)
        text = self._line[self._at + 1 : end]
        if end < 0 or (quote == '"' and not QUOTED_OPAQUE.isdisjoint(text)) or "\0" in text:
            raise _OpaqueError
        self._at = end + 1
        self._word = (self._word or "") + text

    def _end_word(self) -> None:
        if self._word is not None:
            self._words.append(self._word)
            self._word = None

    def end_command(self, *, last: bool) -> None:
        self._end_word()
        if not self._words:
            if last and self.commands:
                return
            raise _OpaqueError
        if "=" in self._words[0]:
            # An assignment in front of a command changes what the command does.
            raise _OpaqueError
        self.commands.append(SimpleCommand(words=tuple(self._words), has_glob=self._glob))
        self._words, self._glob = [], False

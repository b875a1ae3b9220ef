"""Parses a command line into simple commands. cllm runs the result itself, without a shell.

Understands words, quotes, backslashes, wildcards, `;`, `&&`, `||`, `|`, line breaks, `2>&1` and
redirections to /dev/null. All other syntax of a shell is refused with `CommandLineError`.
"""

import glob
import re
from collections.abc import Iterator
from typing import NoReturn

import msgspec

from cllm.commands.plan import Condition, ErrorOutput, Output

OPERATORS = re.compile(r"&&|\|\||[;|\n]")
REDIRECTION = re.compile(r"(?:(?P<fd>[12]?)>[ \t]*/dev/null|2>&1)(?=[\s;|&]|\Z)")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
EXPANSION = re.compile(r"\$[\w{(@*#?$!-]")
BRACES = re.compile(r"\{[\w-]*\}")
WILDCARDS = frozenset("*?[")
CONDITIONS: dict[str, Condition] = {"&&": "success", "||": "failure"}
UNSUPPORTED = {
    "$": "a variable or substitution",
    "`": "a substitution",
    "(": "a group",
    ")": "a group",
    "{": "a group or brace expansion",
    "}": "a group or brace expansion",
    "<": "a redirection",
    ">": "a redirection",
    "&": "a background job",
    **dict.fromkeys(map(chr, range(32)), "a control character"),
    "\x7f": "a control character",
}


class CommandLineError(ValueError):
    """The line has syntax that cllm does not run. The text names that syntax."""


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """One word without its quotes. `pattern` is set if it has unquoted wildcards."""

    text: str
    pattern: str | None = None


class SimpleCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A program and its arguments, as written."""

    words: tuple[Word, ...]
    stdout: Output = "output"
    stderr: ErrorOutput = "error"

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)


class ParsedPipeline(msgspec.Struct, frozen=True, kw_only=True):
    """Simple commands joined by `|`."""

    commands: tuple[SimpleCommand, ...]
    condition: Condition = "always"


def parse_line(line: str) -> tuple[ParsedPipeline, ...]:
    """The pipelines of a line. Raises CommandLineError for any other syntax."""
    return tuple(_Parser(line.strip()).pipelines())


class _Parser:
    def __init__(self, line: str) -> None:
        self._line = line
        self._at = 0

    def pipelines(self) -> Iterator[ParsedPipeline]:
        """One pipeline after another, up to the end of the line."""
        condition: Condition = "always"
        while True:
            commands, operator = self._pipeline()
            yield ParsedPipeline(commands=commands, condition=condition)
            condition = CONDITIONS.get(operator, "always")
            self._skip("\n \t")
            if self._at == len(self._line) and operator in ("", ";", "\n"):
                return

    def _pipeline(self) -> tuple[tuple[SimpleCommand, ...], str]:
        commands = []
        while True:
            commands.append(self._command())
            found = OPERATORS.match(self._line, self._at)
            operator = found.group() if found else ""
            self._at += len(operator)
            if operator != "|":
                return tuple(commands), operator
            self._skip("\n \t")

    def _command(self) -> SimpleCommand:
        """The words up to an operator or the end."""
        words: list[Word] = []
        stdout: Output = "output"
        stderr: ErrorOutput = "error"
        while True:
            self._skip(" \t")
            if redirection := REDIRECTION.match(self._line, self._at):
                self._at = redirection.end()
                if redirection.group() == "2>&1":
                    stderr = stdout
                elif redirection["fd"] == "2":
                    stderr = "discard"
                else:
                    stdout = "discard"
            elif self._at == len(self._line) or OPERATORS.match(self._line, self._at):
                break
            else:
                words.append(self._word(is_first=not words))
        if not words:
            self._refuse("an operator without a command")
        return SimpleCommand(words=tuple(words), stdout=stdout, stderr=stderr)

    def _word(self, *, is_first: bool) -> Word:
        start = self._at
        if self._line[start] in "#~":
            self._refuse("a comment" if self._line[start] == "#" else "a home directory (`~`)")
        if is_first and ASSIGNMENT.match(self._line, start):
            self._refuse("an assignment")
        text: list[str] = []
        pattern: list[str] = []
        is_pattern = False
        while self._at < len(self._line) and not self._is_end():
            piece, is_quoted = self._piece()
            text.append(piece)
            pattern.append(glob.escape(piece) if is_quoted else piece)
            is_pattern = is_pattern or (not is_quoted and not WILDCARDS.isdisjoint(piece))
        return Word(text="".join(text), pattern="".join(pattern) if is_pattern else None)

    def _is_end(self) -> bool:
        return self._line[self._at] in " \t" or bool(OPERATORS.match(self._line, self._at))

    def _piece(self) -> tuple[str, bool]:
        """The next part of a word, and whether it was quoted."""
        character = self._line[self._at]
        if character == "'":
            return self._single_quoted(), True
        if character == '"':
            return self._double_quoted(), True
        if character == "\\":
            return self._escaped(), True
        if character == "{" and (braces := BRACES.match(self._line, self._at)):
            self._at = braces.end()
            return braces.group(), False
        if character == "$" and not EXPANSION.match(self._line, self._at):
            self._at += 1
            return "$", True
        if character in UNSUPPORTED:
            self._refuse(UNSUPPORTED[character])
        self._at += 1
        return character, False

    def _single_quoted(self) -> str:
        end = self._line.find("'", self._at + 1)
        if end < 0:
            self._refuse("a quote that is not closed")
        text = self._line[self._at + 1 : end]
        if "\0" in text:
            self._refuse(UNSUPPORTED["\0"])
        self._at = end + 1
        return text

    def _double_quoted(self) -> str:
        text: list[str] = []
        self._at += 1
        while self._at < len(self._line):
            character = self._line[self._at]
            if character == '"':
                self._at += 1
                return "".join(text)
            if character in "`\0" or EXPANSION.match(self._line, self._at):
                self._refuse(UNSUPPORTED[character])
            following = self._line[self._at + 1 : self._at + 2]
            if character == "\\" and following in tuple('$`"\\'):
                character = following
                self._at += 1
            text.append(character)
            self._at += 1
        return self._refuse("a quote that is not closed")

    def _escaped(self) -> str:
        following = self._line[self._at + 1 : self._at + 2]
        if following in ("", "\r", "\0"):
            self._refuse("a backslash at its end")
        self._at += 2
        return "" if following == "\n" else following

    def _skip(self, characters: str) -> None:
        """Skip characters and continued lines."""
        while self._at < len(self._line):
            if self._line[self._at] in characters:
                self._at += 1
            elif self._line.startswith("\\\n", self._at):
                self._at += 2
            else:
                return

    def _refuse(self, what: str) -> NoReturn:
        raise CommandLineError(what)

"""Parses a command line into a plan, which cllm runs without a shell.

Supports words, quotes, backslashes, wildcards, `;`, `&&`, `||`, `|`, line breaks, `2>&1` and
redirections to /dev/null. Refuses all other shell syntax with `CommandLineError`.
"""

import glob
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NoReturn

import msgspec

SHELL = "/bin/sh"
Condition = Literal["always", "success", "failure"]
Output = Literal["output", "discard"]
ErrorOutput = Literal["error", "output", "discard"]

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
    **dict.fromkeys("()", "a group"),
    **dict.fromkeys("{}", "a group or brace expansion"),
    **dict.fromkeys("<>", "a redirection"),
    "&": "a background job",
    **dict.fromkeys((*map(chr, range(32)), "\x7f"), "a control character"),
}


class CommandEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    directory: Path
    environment: Mapping[str, str]


class CommandRefusedError(ValueError):
    """The text is the reason for the model."""


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is the file to execute."""

    path: str
    arguments: tuple[str, ...]
    stdout: Output = "output"
    stderr: ErrorOutput = "error"


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """Programs joined by pipes, and the status of the previous pipeline that they need."""

    invocations: tuple[Invocation, ...]
    condition: Condition = "always"


Plan = tuple[Pipeline, ...]


def shell_plan(line: str) -> Plan:
    return (Pipeline(invocations=(Invocation(path=SHELL, arguments=("sh", "-c", line)),)),)


class CommandLineError(ValueError):
    """The text names the unsupported syntax."""


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """One word without quotes; `pattern` is set if it has unquoted wildcards."""

    text: str
    pattern: str | None = None


class SimpleCommand(msgspec.Struct, frozen=True, kw_only=True):
    words: tuple[Word, ...]
    stdout: Output = "output"
    stderr: ErrorOutput = "error"

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)


class ParsedPipeline(msgspec.Struct, frozen=True, kw_only=True):
    commands: tuple[SimpleCommand, ...]
    condition: Condition = "always"


def parse_line(line: str) -> tuple[ParsedPipeline, ...]:
    return tuple(_Parser(line.strip()).pipelines())


def _unsupported(syntax: str) -> NoReturn:
    raise CommandLineError(syntax)


class _Parser:
    def __init__(self, line: str) -> None:
        self._line = line
        self._at = 0

    def pipelines(self) -> Iterator[ParsedPipeline]:
        condition: Condition = "always"
        while True:
            commands, operator = self._parse_pipeline()
            yield ParsedPipeline(commands=commands, condition=condition)
            condition = CONDITIONS.get(operator, "always")
            self._skip("\n \t")
            if self._at == len(self._line) and operator in ("", ";", "\n"):
                return

    def _parse_pipeline(self) -> tuple[tuple[SimpleCommand, ...], str]:
        commands = []
        while True:
            commands.append(self._command())
            match = OPERATORS.match(self._line, self._at)
            operator = match.group() if match else ""
            self._at += len(operator)
            if operator != "|":
                return tuple(commands), operator
            self._skip("\n \t")

    def _command(self) -> SimpleCommand:
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
                words.append(self._parse_word(is_first=not words))
        if not words:
            _unsupported("an operator without a command")
        return SimpleCommand(words=tuple(words), stdout=stdout, stderr=stderr)

    def _parse_word(self, *, is_first: bool) -> Word:
        start = self._at
        if self._line[start] in "#~":
            _unsupported("a comment" if self._line[start] == "#" else "a home directory (`~`)")
        if is_first and ASSIGNMENT.match(self._line, start):
            _unsupported("an assignment")
        text: list[str] = []
        pattern: list[str] = []
        is_pattern = False
        while self._at < len(self._line) and not self._is_end():
            piece, is_quoted = self._parse_piece()
            text.append(piece)
            pattern.append(glob.escape(piece) if is_quoted else piece)
            is_pattern = is_pattern or (not is_quoted and not WILDCARDS.isdisjoint(piece))
        return Word(text="".join(text), pattern="".join(pattern) if is_pattern else None)

    def _is_end(self) -> bool:
        return self._line[self._at] in " \t" or bool(OPERATORS.match(self._line, self._at))

    def _parse_piece(self) -> tuple[str, bool]:
        """Return the next part of a word, and whether it was quoted."""
        character = self._line[self._at]
        if character == "'":
            return self._parse_single_quoted(), True
        if character == '"':
            return self._parse_double_quoted(), True
        if character == "\\":
            return self._parse_escaped(), True
        if character == "{" and (braces := BRACES.match(self._line, self._at)):
            self._at = braces.end()
            return braces.group(), False
        if character == "$" and not EXPANSION.match(self._line, self._at):
            self._at += 1
            return "$", True
        if character in UNSUPPORTED:
            _unsupported(UNSUPPORTED[character])
        self._at += 1
        return character, False

    def _parse_single_quoted(self) -> str:
        end = self._line.find("'", self._at + 1)
        if end < 0:
            _unsupported("an unclosed quote")
        text = self._line[self._at + 1 : end]
        if "\0" in text:
            _unsupported(UNSUPPORTED["\0"])
        self._at = end + 1
        return text

    def _parse_double_quoted(self) -> str:
        text: list[str] = []
        self._at += 1
        while self._at < len(self._line):
            character = self._line[self._at]
            if character == '"':
                self._at += 1
                return "".join(text)
            if character in "`\0" or EXPANSION.match(self._line, self._at):
                _unsupported(UNSUPPORTED[character])
            following = self._line[self._at + 1 : self._at + 2]
            if character == "\\" and following in tuple('$`"\\'):
                character = following
                self._at += 1
            text.append(character)
            self._at += 1
        return _unsupported("an unclosed quote")

    def _parse_escaped(self) -> str:
        following = self._line[self._at + 1 : self._at + 2]
        if following in ("", "\r", "\0"):
            _unsupported("a backslash at its end")
        self._at += 2
        return "" if following == "\n" else following

    def _skip(self, characters: str) -> None:
        while self._at < len(self._line):
            if self._line[self._at] in characters:
                self._at += 1
            elif self._line.startswith("\\\n", self._at):
                self._at += 2
            else:
                return


def split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())

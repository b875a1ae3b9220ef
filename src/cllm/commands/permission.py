"""Whether the model may run a command: what is denied, what is allowed, and what only reads.

A line with shell control in it passes only if each simple command in it passes by itself; what
cannot be taken apart with certainty passes only as a line that was allowed word for word.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from cllm.commands.shell_words import SimpleCommand, simple_commands

Basis = Literal["denied", "allowed", "read_only", "unknown", "opaque"]


class Reads(msgspec.Struct, frozen=True, kw_only=True):
    """A command that only reads: its options, and what it may be given.

    `options` are the letters of short options and the names of long ones that change nothing;
    None stands for any. With `content` it shows what is in files, and is given those of the
    folder it runs in, not the keys that lie elsewhere. `plus` takes formats such as `+%H` only.
    """

    options: frozenset[str] | None = None
    content: bool = False
    plus: bool = False


def _options(letters: str, *names: str) -> frozenset[str]:
    return frozenset(letters) | frozenset(names)


# What is not here has to be allowed: git, for one, runs whatever a repository's settings name.
READ_ONLY: dict[str, Reads] = {
    "basename": Reads(options=_options("asz")),
    "cat": Reads(options=_options("AbeEnstTuv", "number", "show-all"), content=True),
    "date": Reads(options=_options("uRI", "utc", "iso-8601", "rfc-3339"), plus=True),
    "df": Reads(options=_options("ahHiklmPT")),
    "dirname": Reads(options=_options("z")),
    "du": Reads(options=_options("abchHkmsSx", "max-depth")),
    "echo": Reads(),
    "file": Reads(options=_options("bhiLNp", "brief", "mime", "mime-type")),
    "grep": Reads(
        options=_options("0123456789abcEFGHhiLlnoPqrsTvwxzABCem", "include", "exclude", "color"),
        content=True,
    ),
    "head": Reads(options=_options("0123456789cnqvz", "lines", "bytes"), content=True),
    "id": Reads(options=_options("GgnruZz")),
    "ls": Reads(),
    "nproc": Reads(options=_options("", "all")),
    "pwd": Reads(options=_options("LP")),
    "stat": Reads(options=_options("Lfcnt", "format", "printf", "terse")),
    "tail": Reads(options=_options("0123456789cnqvz", "lines", "bytes"), content=True),
    "uname": Reads(options=_options("asnrvmpio")),
    "uptime": Reads(options=_options("ps")),
    "wc": Reads(options=_options("clmwL", "lines", "words", "bytes", "chars"), content=True),
    "whoami": Reads(options=_options("")),
}


class CommandRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings say: patterns to deny, and patterns to allow."""

    deny: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a line may run, on what basis, and the command that decided it."""

    allowed: bool
    basis: Basis
    command: str

    @property
    def reason(self) -> str:
        """What the model is told of a refusal."""
        match self.basis:
            case "denied":
                return f"`{self.command}` is denied by the settings."
            case "opaque":
                return (
                    "the line has substitutions, redirections, variables or groups, which are not "
                    "allowed; ask for simple commands."
                )
            case _:
                return f"`{self.command}` is not among the allowed commands."


def judge(line: str, rules: CommandRules) -> Verdict:
    """Deny goes before allow, and allow before what only reads."""
    whole = line.strip()
    commands = simple_commands(whole)
    for command in commands or ():
        if any(_is_denied(command, pattern) for pattern in rules.deny):
            return Verdict(allowed=False, basis="denied", command=command.text)
    if _is_denied_text(whole, rules.deny):
        return Verdict(allowed=False, basis="denied", command=whole)
    if whole in rules.allow:
        return Verdict(allowed=True, basis="allowed", command=whole)
    if commands is None:
        return Verdict(allowed=False, basis="opaque", command=whole)
    bases: list[Basis] = []
    for command in commands:
        basis = _basis(command, rules)
        if basis == "unknown":
            return Verdict(allowed=False, basis=basis, command=command.text)
        bases.append(basis)
    basis = "allowed" if "allowed" in bases else "read_only"
    return Verdict(allowed=True, basis=basis, command=whole)


def _basis(command: SimpleCommand, rules: CommandRules) -> Basis:
    if _matches(command, rules.allow):
        return "allowed"
    if command.has_glob and rules.deny:
        # What the shell makes of it could be what is denied.
        return "unknown"
    return "read_only" if only_reads(command) else "unknown"


def _is_denied(command: SimpleCommand, pattern: str) -> bool:
    """Whether a pattern fits, also with other options between its words, or a path spelt anew."""
    if _fits(command, pattern):
        return True
    first, *rest = pattern.split() or [""]
    words = {word.removeprefix("./") for word in command.words}
    return command.words[0] == first and bool(rest) and words.issuperset(rest)


def _matches(command: SimpleCommand, patterns: Sequence[str]) -> bool:
    return any(_fits(command, pattern) for pattern in patterns)


def _fits(command: SimpleCommand, pattern: str) -> bool:
    """A pattern with wildcards fits the whole command; one of plain words its first words."""
    if any(mark in pattern for mark in "*?["):
        return fnmatchcase(command.text, pattern)
    words = tuple(pattern.split())
    return bool(words) and command.words[: len(words)] == words


def _is_denied_text(line: str, patterns: Sequence[str]) -> bool:
    """Whether a denied pattern fits a line, or stands anywhere in it, however it is wrapped."""
    for pattern in patterns:
        plain = re.escape(pattern.strip("* "))
        stands = plain and re.search(rf"(?<![\w-]){plain}(?![\w-])", line)
        if stands or fnmatchcase(line, pattern):
            return True
    return False


def only_reads(command: SimpleCommand) -> bool:
    """Whether a command is one of those that change nothing, given what it may be given."""
    known = READ_ONLY.get(command.words[0])
    if known is None:
        return False
    arguments = command.words[1:]
    if known.content and (command.has_glob or not all(map(_stays_here, arguments))):
        return False
    if known.options is None:
        return True
    if command.has_glob and known.options:
        return False
    return all(_is_taken(word, known) for word in arguments)


def _is_taken(word: str, known: Reads) -> bool:
    if word.startswith("--"):
        return word.removeprefix("--").partition("=")[0] in (known.options or ())
    if word.startswith("-") and word != "-":
        letters = word[1:].rstrip("0123456789") or word[1:]
        return all(letter in (known.options or ()) for letter in letters)
    return word.startswith("+") if known.plus else True


def _stays_here(word: str) -> bool:
    """Whether a word names nothing outside of the folder: no root, no home, no way up."""
    value = word.partition("=")[2] if word.startswith("--") else word
    parts = value.split("/")
    outside = value.startswith(("/", "~")) or ".." in parts
    return not outside and not (word.startswith("-") and "/" in word)

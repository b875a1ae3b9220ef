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

# Commands that only read, with the options that would make them write or run something.
READ_ONLY: dict[tuple[str, ...], tuple[str, ...]] = {
    ("basename",): (),
    ("cal",): (),
    ("cat",): (),
    ("date",): ("-s", "--set"),
    ("df",): (),
    ("dirname",): (),
    ("du",): (),
    ("echo",): (),
    ("file",): ("-C", "--compile"),
    ("git", "branch", "--list"): (),
    ("git", "diff"): ("--output", "--ext-diff", "--textconv"),
    ("git", "log"): ("--output", "--ext-diff", "--textconv"),
    ("git", "ls-files"): (),
    ("git", "rev-parse"): (),
    ("git", "show"): ("--output", "--ext-diff", "--textconv"),
    ("git", "status"): (),
    ("grep",): (),
    ("head",): (),
    ("hostname", "-s"): (),
    ("id",): (),
    ("ls",): (),
    ("nproc",): (),
    ("ps",): (),
    ("pwd",): (),
    ("stat",): (),
    ("tail",): (),
    ("tr",): (),
    ("uname",): (),
    ("uptime",): (),
    ("wc",): (),
    ("which",): (),
    ("whoami",): (),
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
        if _matches(command, rules.deny):
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
    return "read_only" if only_reads(command) else "unknown"


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
    """Whether a command is one of those that change nothing, without an option that would."""
    for words, refused in READ_ONLY.items():
        if command.words[: len(words)] != words:
            continue
        arguments = command.words[len(words) :]
        if refused and command.has_glob:
            return False
        return not any(_is_option(word, option) for word in arguments for option in refused)
    return False


def _is_option(word: str, option: str) -> bool:
    """Whether a word is that option: alone, with a value, or shortened, as many commands allow."""
    if option.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > len("--") and option.startswith(name)
    return word.startswith(option)

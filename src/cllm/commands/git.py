"""The git commands that only read, restricted to visible files in the folder."""

import re
from pathlib import PurePath
from typing import Literal

import msgspec

from cllm.commands.command_line import WILDCARDS, CommandRefusedError, split_names
from cllm.commands.options import Argument, Arguments, ParsedOptions, option_table
from cllm.commands.paths import exists

# Excludes every hidden file and everything in a hidden folder, at any depth.
_VISIBLE = (":(exclude,glob)**/.*", ":(exclude,glob)**/.*/**")
# Settings of the repository that would run programs, write the index or show other files.
_SETTINGS = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "diff.autoRefreshIndex=false",
    "gpg.program=false",
    "gpg.ssh.program=false",
    "gpg.x509.program=false",
    "log.showSignature=false",
    "status.submoduleSummary=false",
)
_GLOBAL = (
    *("--no-pager", "--no-optional-locks"),
    *(word for setting in _SETTINGS for word in ("-c", setting)),
)
_DIFF = """
    -# -b -M -p -s -u -U=? -w --color=? --cached --compact-summary --diff-filter=!
    --ignore-all-space --ignore-space-change --name-only --name-status --no-color --no-patch
    --numstat --patch --shortstat --staged --stat=? --summary --unified=! --word-diff=?
"""
_SHOW = "--abbrev-commit --date=! --decorate=? --format=! --no-decorate --oneline --pretty=?"
_LOG = """
    -i -n= -S= -G= --after=! --all --author=! --before=! --branches --first-parent --graph --grep=!
    --max-count=! --merges --no-merges --reverse --since=! --skip=! --tags --until=!
"""
_SAFE_DIFF = ("--no-ext-diff", "--no-textconv", "--submodule=short")


class _Command(msgspec.Struct, frozen=True, kw_only=True):
    """With `lists_files` it shows files with every option."""

    options: str
    operands: Literal["revisions", "paths", "pattern", "names"] = "revisions"
    added_options: tuple[str, ...] = ()
    lists_files: bool = False


COMMANDS = {
    "blame": _Command(
        options="-c -e -l -L= -s -w --date=! --line-porcelain --porcelain --show-email",
        added_options=("--no-textconv",),
    ),
    "branch": _Command(
        options="""
        -a -l -r -v --all --contains=! --format=! --list --merged=? --no-color --no-merged=?
        --remotes --show-current --sort=! --verbose
        """,
        operands="names",
    ),
    "describe": _Command(options="--abbrev=! --all --always --long --tags"),
    "diff": _Command(options=_DIFF, added_options=_SAFE_DIFF, lists_files=True),
    "grep": _Command(
        options="""
        -# -A= -B= -C= -c -e= -E -F -h -H -i -I -l -n -o -P -q -v -w --break --color=? --count
        --extended-regexp --files-with-matches --fixed-strings --heading --ignore-case
        --line-number --name-only --no-color --only-matching --word-regexp
        """,
        operands="pattern",
        added_options=("--no-textconv",),
        lists_files=True,
    ),
    "log": _Command(options=f"{_DIFF} {_SHOW} {_LOG}", added_options=_SAFE_DIFF),
    "ls-files": _Command(
        options="-c -d -m -o --cached --deleted --exclude-standard --modified --others",
        operands="paths",
        lists_files=True,
    ),
    "rev-parse": _Command(
        options="--abbrev-ref --is-inside-work-tree --short=? --show-toplevel --verify"
    ),
    "show": _Command(options=f"{_DIFF} {_SHOW}", added_options=_SAFE_DIFF, lists_files=True),
    "status": _Command(
        options="-b -s -u=? --branch --long --porcelain=? --short --untracked-files=?",
        operands="paths",
        lists_files=True,
    ),
    "tag": _Command(options="-l -n=? --contains=! --list --merged=? --sort=!", operands="names"),
}
# With these, git log shows or searches the content of files.
_FILE_OPTIONS = split_names(
    """
    -G -S -U -p -u --compact-summary --name-only --name-status --numstat --patch --shortstat --stat
    --summary --unified --word-diff
    """
)
# git ignores colons in braces; a revision with other braces than `@{1}` is refused.
_FILE_IN_REVISION = re.compile(
    r"(?P<revision>[\w@][\w./~^@-]*(?:@\{\d+\})?[~^\d]*):(?P<path>[^:{}]+)"
)
_RANGE = re.compile(r"(\.{2,3})")


def check_git(arguments: Arguments) -> tuple[str, ...]:
    if arguments.is_restricted and (words := _show_git_file(arguments)):
        return words
    name, *rest = arguments.words
    command = COMMANDS[name]
    inner = msgspec.structs.replace(
        arguments,
        program=f"git {name}",
        words=tuple(rest),
        literal=frozenset(index - 1 for index in arguments.literal if index),
    )
    end = rest.index("--") if "--" in rest else len(rest)
    parsed = ParsedOptions(
        rest[:end], option_table(command.options), inner.literal, program=inner.program
    )
    texts, revisions, paths = _divide_git_operands(command, inner, parsed)
    paths += [Argument(text=rest[index], index=index) for index in range(end + 1, len(rest))]
    for path in paths:
        _check_git_path(inner, path)
    if not arguments.is_restricted or parsed.has_unlisted_option:
        return arguments.words
    listed = [path.text for path in paths]
    if command.lists_files or not parsed.names.isdisjoint(_FILE_OPTIONS):
        listed = [*(listed or ["."]), *_VISIBLE]
    separator = ("--", *listed) if listed else ()
    options = (*parsed.options, *command.added_options)
    return (*_GLOBAL, name, *options, *texts, *revisions, *separator)


def _divide_git_operands(
    command: _Command, arguments: Arguments, parsed: ParsedOptions
) -> tuple[list[str], list[str], list[Argument]]:
    """Texts, revisions and paths."""
    operands = list(parsed.operands)
    match command.operands:
        case "names":
            if parsed.names.isdisjoint(("-l", "--list")):
                arguments.refuse(operands)
            return [one.text for one in operands], [], []
        case "paths":
            return [], [], operands
        case "pattern" if "-e" not in parsed.names and not parsed.has_unlisted_option:
            texts, operands = [one.text for one in operands[:1]], operands[1:]
        case _:
            texts = []
    paths = [
        one
        for one in operands
        if not WILDCARDS.isdisjoint(one.text) or exists(arguments.directory / one.text)
    ]
    revisions = [_git_revision(arguments, one) for one in operands if one not in paths]
    return texts, revisions, paths


def _check_git_path(arguments: Arguments, path: Argument) -> None:
    """Refuse magic pathspecs, and `..`, which git resolves without following links."""
    if arguments.is_restricted and path.index not in arguments.literal:
        if path.text.startswith(":") or ".." in PurePath(path.text).parts:
            raise CommandRefusedError(
                f"`{path.text}` is not allowed; use a path without `:` and `..`."
            )
        arguments.check_path(path)


def _git_revision(arguments: Arguments, operand: Argument) -> str:
    """Return a revision or range of commits: a tree or a blob would show hidden files."""
    if not arguments.is_restricted or operand.index in arguments.literal:
        return operand.text
    if ":" in operand.text:
        raise CommandRefusedError(f"`{operand.text}` is not allowed; use a revision without `:`.")
    if arguments.program == "git rev-parse" or operand.text.endswith(("^!", "^@", "^-")):
        return operand.text
    sides = _RANGE.split(operand.text)
    return "".join(
        side if _RANGE.fullmatch(side) or not side else f"{side}^{{commit}}" for side in sides
    )


def _show_git_file(arguments: Arguments) -> tuple[str, ...] | None:
    """`git show REVISION:FILE`. git show itself would also list a folder, with its hidden files."""
    match arguments.words:
        case ("show", operand) if match := _FILE_IN_REVISION.fullmatch(operand):
            path = match["path"]
            _check_git_path(arguments, Argument(text=path, index=1))
            revision = match["revision"]
            return (*_GLOBAL, "cat-file", "blob", f"{revision}:./{path.removeprefix('./')}")
    return None

"""Decides whether a command line of the model may run, and builds its plan.

Each simple command is checked separately, after its programs and wildcards are resolved; exactly
the result runs. Only a line that the settings contain word for word, or any line with `allow:
['*']` and no `deny`, runs in a shell. Rules: `docs/reference/commands.md`.
"""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePath

import msgspec

from cllm.commands.command_line import (
    CommandEnvironment,
    CommandLineError,
    CommandRefusedError,
    Invocation,
    Pipeline,
    Plan,
    SimpleCommand,
    Word,
    parse_line,
    shell_plan,
    split_names,
)
from cllm.commands.options import Arguments
from cllm.commands.paths import expand, find_program, require_visible, spellings
from cllm.commands.programs import READERS, add_options, check_arguments, is_known

ANY = "*"
ANY_OPTION = "-*"
READ_SET = "@read"
MAX_LINE = 8192
MAX_COMMANDS = 50
MAX_WORDS = 10_000


# These run the commands that their arguments or their input contain.
WRAPPERS = split_names(
    """
    ash at bash batch builtin busybox bwrap cd choom chroot chrt command crontab csh dash dc
    doas duckdb ed emacs entr env eval ex exec expect export fakeroot firejail fish flock gdb ghci
    ionice irb jshell ksh ld.so less linux32 linux64 ltrace m4 man mariadb more mysql nano nice
    nohup nsenter nvim parallel popd prlimit proot psql pushd pwsh rbash run-parts runuser script
    setarch setpriv setsid sh source sqlite ssh stdbuf strace su sudo systemd-run taskset tcsh
    time timeout toybox trap unset unshare vi vim watch xargs xvfb-run zsh
    """
)
# These run code from their first argument: an entry must name the script.
INTERPRETERS = split_names(
    """
    awk bun deno gawk gojq guile jaq julia lua mawk mlr nawk node nodejs osascript perl php pypy
    python rscript ruby scala tclsh wish xidel yq
    """
)
# One file with many programs; links to it are different programs.
MULTI_CALL = split_names("busybox coreutils toybox")
# These show the hidden files of an archive.
ARCHIVERS = split_names("7z 7za 7zr ar bsdtar cpio jar pax rar unrar zip")
_VERSION = re.compile(r"[-.]?[0-9][0-9.]*(?:-[\w-]*)?(?:\.so.*)?$")


class CommandRules(msgspec.Struct, frozen=True, kw_only=True):
    """`allow` is the whole list; None is the built-in read commands."""

    deny: tuple[str, ...] = ()
    allow: tuple[str, ...] | None = None

    @property
    def entries(self) -> tuple[str, ...]:
        return (READ_SET,) if self.allow is None else self.allow


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    plan: Plan | None = None
    reason: str = ""


class _Match(msgspec.Struct, frozen=True, kw_only=True):
    """`literal`: indexes of the words that the list contains literally.

    `is_restricted`: only visible files are allowed.
    """

    literal: frozenset[int] = frozenset()
    takes_options: bool = False
    names_script: bool = False
    is_restricted: bool = True


class DeniedError(CommandRefusedError):
    """`deny` comes before every other rule."""


def check_permission(line: str, rules: CommandRules, env: CommandEnvironment) -> Verdict:
    """Apply `deny`, then check each simple command, then compare the line word for word."""
    line = line.strip()
    try:
        _refuse_denied_text(line, rules.deny)
        if ANY in rules.entries and not rules.deny and line:
            return Verdict(plan=shell_plan(line))
        return Verdict(plan=_build_plan(line, rules, env))
    except CommandRefusedError as error:
        if _is_literal_entry(line, rules) and not isinstance(error, DeniedError):
            return Verdict(plan=shell_plan(line))
        return Verdict(reason=str(error))


def _is_literal_entry(line: str, rules: CommandRules) -> bool:
    """Whether the settings contain the line word for word, not as a pattern."""
    if line not in rules.entries or line == READ_SET:
        return False
    return all(word.pattern is None for word in _parse_entry(line))


def _build_plan(line: str, rules: CommandRules, env: CommandEnvironment) -> Plan:
    if len(line) > MAX_LINE:
        raise CommandRefusedError(f"the line is longer than {MAX_LINE} characters.")
    try:
        parsed = parse_line(line)
    except CommandLineError as error:
        raise CommandRefusedError(
            f"the line contains {error}, which is not supported; use simple commands joined by "
            "`;`, `&&`, `||` or `|`."
        ) from None
    commands = [
        (command, _expand(command, env)) for pipeline in parsed for command in pipeline.commands
    ]
    if len(commands) > MAX_COMMANDS or sum(len(words) for _, words in commands) > MAX_WORDS:
        raise CommandRefusedError(
            f"the line has more than {MAX_COMMANDS} commands or {MAX_WORDS} words."
        )
    for command, words in commands if rules.deny else ():
        _refuse_denied(command.text, words, rules.deny, env)
    invocations = iter([_build_invocation(one, words, rules, env) for one, words in commands])
    return tuple(
        Pipeline(
            condition=pipeline.condition,
            invocations=tuple(next(invocations) for _ in pipeline.commands),
        )
        for pipeline in parsed
    )


def _build_invocation(
    command: SimpleCommand,
    words: tuple[str, ...],
    rules: CommandRules,
    env: CommandEnvironment,
) -> Invocation:
    path = find_program(words[0], env)
    if path is None:
        raise CommandRefusedError(f"there is no program `{words[0]}`.")
    name = _find_program_name(words[0], env)
    match = _find_match((name, *words[1:]), rules)
    if match is None:
        raise CommandRefusedError(f"`{command.text}` is not among the allowed commands.")
    arguments = _check_command(name, words, match, env)
    return Invocation(
        path=str(path), arguments=arguments, stdout=command.stdout, stderr=command.stderr
    )


def _expand(command: SimpleCommand, env: CommandEnvironment) -> tuple[str, ...]:
    program, *rest = command.words
    if program.pattern is not None:
        raise CommandRefusedError(f"`{program.text}` is a wildcard; use the name of the program.")
    words = [program.text]
    # cllm adds this option itself.
    if program.text == "git" and rest and rest[0].text == "--no-pager":
        rest = rest[1:]
    for word in rest:
        words += expand(word, env.directory)
        if len(words) > MAX_WORDS:
            raise CommandRefusedError(f"the line has more than {MAX_WORDS} words.")
    return tuple(words)


def _find_program_name(written: str, env: CommandEnvironment) -> str:
    """Return the name in PATH, if it is the same file."""
    base = PurePath(written).name
    if base == written:
        return written
    path = find_program(written, env)
    in_path = find_program(base, env)
    is_same = path is not None and in_path is not None and path.resolve() == in_path.resolve()
    return base if is_same else written


def _find_match(words: tuple[str, ...], rules: CommandRules) -> _Match | None:
    """Return the least restricted match of a command with the lists."""
    if ANY in rules.entries:
        return _Match(takes_options=True, names_script=True, is_restricted=False)
    matches = [match for entry in rules.entries if (match := _match_entry(entry, words))]
    if READ_SET in rules.entries and words[0] in READERS:
        matches.append(_Match())
    return max(matches, key=lambda match: (match.takes_options, len(match.literal)), default=None)


def _match_entry(entry: str, words: tuple[str, ...]) -> _Match | None:
    """An entry of plain words matches commands that start with them.

    A last word that ends in `*` matches that word and all following; `*` alone needs one word.
    """
    pattern = _parse_entry(entry)
    has_wildcard = any(word.pattern is not None for word in pattern)
    is_open = not has_wildcard or pattern[-1].text.endswith(ANY)
    if not pattern or len(words) < len(pattern) or (len(words) > len(pattern) and not is_open):
        return None
    if not all(
        fnmatchcase(word, one.pattern) if one.pattern is not None else word == one.text
        for one, word in zip(pattern, words, strict=False)
    ):
        return None
    literal = frozenset(index for index, one in enumerate(pattern) if one.pattern is None)
    return _Match(
        literal=literal,
        takes_options=pattern[-1].text == ANY_OPTION,
        names_script=_has_script(pattern),
    )


def _has_script(pattern: Sequence[Word]) -> bool:
    following = pattern[2:] if [word.text for word in pattern[1:2]] == ["-m"] else pattern[1:]
    return bool(following) and following[0].pattern is None and following[0].text[:1] != "-"


@cache
def _parse_entry(entry: str) -> tuple[Word, ...]:
    """Empty if the entry can only match word for word."""
    try:
        (pipeline,) = parse_line(entry)
        (command,) = pipeline.commands
    except ValueError:
        return ()
    return command.words


def _check_command(
    name: str, words: tuple[str, ...], match: _Match, env: CommandEnvironment
) -> tuple[str, ...]:
    _refuse_indirect(name, match, find_program(name, env))
    # Another installation of a program has its options too.
    program = PurePath(name).name if name.startswith("/") else name
    arguments = Arguments(
        program=program,
        words=words[1:],
        literal=frozenset(index - 1 for index in match.literal if index),
        directory=env.directory,
        is_restricted=match.is_restricted,
    )
    if is_known(program, arguments.words) and not (match.takes_options and match.is_restricted):
        return (words[0], *check_arguments(arguments))
    if program == "git" and words[1:2] and words[1].startswith("-") and 1 not in match.literal:
        raise CommandRefusedError(f"`git {words[1]}` is not allowed; start with a git command.")
    if match.is_restricted:
        if "/" in name and 0 not in match.literal:
            require_visible(name, env.directory)
        if program == "git" and 1 not in match.literal:
            raise CommandRefusedError(
                f"`git {' '.join(words[1:2])}` is not among the allowed commands."
            )
        _check_unknown(arguments, match)
        if not any("file:" in words[index].lower() for index in match.literal):
            return add_options(program, words)
    return words


def _refuse_indirect(name: str, match: _Match, path: Path | None) -> None:
    bases = {PurePath(name).name.lower()}
    if path is not None and path.resolve().name not in MULTI_CALL:
        bases.add(path.resolve().name.lower())
    names = bases | {_VERSION.sub("", base) for base in bases}
    if names & WRAPPERS or any(base.startswith("ld-linux") for base in bases):
        raise CommandRefusedError(
            f"`{name}` runs other commands; it is allowed only in a line that the settings "
            "contain word for word."
        )
    if names & ARCHIVERS and match.is_restricted:
        raise CommandRefusedError(
            f"`{name}` shows hidden files; it is allowed only in a line that the settings contain "
            "word for word."
        )
    if names & INTERPRETERS and not match.names_script:
        raise CommandRefusedError(
            f"`{name}` runs code; it is allowed only where the settings name the script."
        )


def _check_unknown(arguments: Arguments, match: _Match) -> None:
    """Without known options: no options, visible paths only."""
    for index, word in enumerate(arguments.words):
        if index in arguments.literal:
            continue
        is_option = word.startswith("-") and word != "-"
        if is_option and not match.takes_options:
            raise CommandRefusedError(
                f"the option `{word}` of `{arguments.program}` is not in the allowed commands."
            )
        if "file:" in word.lower():
            raise CommandRefusedError(f"`{word}` is not allowed; name a path.")
        for value in _find_values(word) if is_option else (word, word.partition("=")[2]):
            require_visible(value.removeprefix("@"), arguments.directory)


def _find_values(option: str) -> Iterator[str]:
    """Possible values: after `=`, or after any of several short options."""
    if option.startswith("--"):
        yield option.partition("=")[2]
    else:
        yield from (option[start:] for start in range(2, len(option)))


def _refuse_denied_text(line: str, patterns: Sequence[str]) -> None:
    """Refuse a line that a pattern matches, or that contains it as words."""
    for pattern in patterns:
        plain = re.escape(pattern.strip("* "))
        contains = plain and re.search(rf"(?<![\w-]){plain}(?![\w-])", line)
        if contains or fnmatchcase(line, pattern):
            raise DeniedError(f"`{line}` is denied by a rule (`--command-deny` or the settings).")


def _refuse_denied(
    text: str, words: tuple[str, ...], patterns: Sequence[str], env: CommandEnvironment
) -> None:
    """Refuse a command in any spelling of its program and paths."""
    programs = _list_program_spellings(words[0], env)
    arguments = [spellings(word, env.directory) for word in words[1:]]
    every = frozenset[str]().union(*arguments)
    for pattern in patterns:
        first, *rest = pattern.split() or [""]
        is_program = any(fnmatchcase(program, first) for program in programs) or _is_same_program(
            first, words[0], env
        )
        fits_words = is_program and all(
            any(fnmatchcase(one, word) for one in every) for word in rest
        )
        fits_text = any(fnmatchcase(" ".join((one, *words[1:])), pattern) for one in programs)
        is_path = not rest and (first.startswith(("*", "?", "[")) or not first.endswith(ANY))
        fits_path = is_path and any(fnmatchcase(one, first) for one in every)
        if fits_words or fits_text or fits_path:
            raise DeniedError(f"`{text}` is denied by a rule (`--command-deny` or the settings).")


def _list_program_spellings(written: str, env: CommandEnvironment) -> set[str]:
    names = {written, PurePath(written).name}
    path = find_program(written, env)
    if path is not None:
        names |= {str(path), str(path.resolve()), path.resolve().name}
    return names


def _is_same_program(pattern: str, written: str, env: CommandEnvironment) -> bool:
    denied = find_program(pattern, env)
    requested = find_program(written, env)
    if denied is None or requested is None or denied.resolve().name in MULTI_CALL:
        return False
    return denied.samefile(requested)

"""Decides whether a line that the model requests may run, and as what.

A line is parsed, its programs and wildcards are resolved, and every simple command is judged alone;
what was judged is what runs. Only a line that the settings contain word for word, or any line under
`allow: ['*']` without `deny`, goes to a shell. `docs/reference/commands.md` has the rules.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import PurePath

import msgspec

from cllm.commands.command_line import (
    CommandLineError,
    SimpleCommand,
    Word,
    parse_line,
)
from cllm.commands.paths import expand, find_program, require_visible, spellings
from cllm.commands.plan import (
    Invocation,
    Pipeline,
    Plan,
    RefusedError,
    Surroundings,
    shell_plan,
)
from cllm.commands.programs import READERS, Arguments, check_arguments, is_known

ANY = "*"
READ_SET = "@read"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# These run what their arguments name, so that a rule about them says nothing about what runs.
WRAPPERS = _names(
    """
    ash at bash batch builtin busybox bwrap cd chroot chrt command crontab csh dash doas entr
    env eval exec expect export fakeroot firejail fish flock ionice ksh ld.so ltrace nice nohup
    nsenter parallel popd proot pushd pwsh rbash runuser script setarch setpriv setsid sh source
    ssh stdbuf strace su sudo systemd-run taskset tcsh time timeout toybox trap unset unshare
    watch xargs xvfb-run zsh
    """
)
# These run code from their arguments or their input: a list has to name the script.
INTERPRETERS = _names(
    """
    awk bun dc deno ed emacs ex gawk gdb ghci guile irb jshell julia less lua m4 man mawk more
    mysql nano nawk node nodejs nvim osascript perl php psql pypy python rscript ruby scala
    sqlite tclsh vi vim wish
    """
)
# These show the hidden files of an archive.
ARCHIVERS = _names("7z 7za 7zr ar bsdtar cpio jar pax rar unrar zip")
_VERSION = re.compile(r"[-.]?[0-9][0-9.]*(?:-[\w-]*)?(?:\.so.*)?$")


class CommandRules(msgspec.Struct, frozen=True, kw_only=True):
    """The lists of the settings. `allow` is the whole list; None is the built-in read commands."""

    deny: tuple[str, ...] = ()
    allow: tuple[str, ...] | None = None

    @property
    def entries(self) -> tuple[str, ...]:
        return (READ_SET,) if self.allow is None else self.allow


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What runs, or why nothing does."""

    plan: Plan | None = None
    reason: str = ""

    @property
    def allowed(self) -> bool:
        return self.plan is not None


class _Match(msgspec.Struct, frozen=True, kw_only=True):
    """How a list allows a command: the indexes of the words that it contains literally.

    With `takes_options` it allows any option, and `guarded` restricts the command to visible files
    of the folder.
    """

    spelled: frozenset[int] = frozenset()
    takes_options: bool = False
    names_script: bool = False
    guarded: bool = True


class DeniedError(RefusedError):
    """A command matches `deny`, which comes before every other rule."""


def judge(line: str, rules: CommandRules, surroundings: Surroundings) -> Verdict:
    """Decide about a line: `deny` first, then each simple command, then the line word for word."""
    line = line.strip()
    try:
        _refuse_denied_text(line, rules.deny)
        if ANY in rules.entries and not rules.deny and line:
            return Verdict(plan=shell_plan(line))
        return Verdict(plan=_build_plan(line, rules, surroundings))
    except RefusedError as error:
        if line in rules.entries and not isinstance(error, DeniedError):
            return Verdict(plan=shell_plan(line))
        return Verdict(reason=str(error))


def _build_plan(line: str, rules: CommandRules, surroundings: Surroundings) -> Plan:
    """The line as argument lists. Raises RefusedError if one of its commands may not run."""
    try:
        parsed = parse_line(line)
    except CommandLineError as error:
        raise RefusedError(
            f"the line has {error}, which is not supported; request simple commands joined by "
            "`;`, `&&`, `||` or `|`."
        ) from None
    commands = [
        (command, _expand(command, surroundings))
        for pipeline in parsed
        for command in pipeline.commands
    ]
    for command, words in commands if rules.deny else ():
        _refuse_denied(command.text, words, rules.deny, surroundings)
    ready = iter([_invocation(one, words, rules, surroundings) for one, words in commands])
    return tuple(
        Pipeline(
            condition=pipeline.condition,
            invocations=tuple(next(ready) for _ in pipeline.commands),
        )
        for pipeline in parsed
    )


def _invocation(
    command: SimpleCommand,
    words: tuple[str, ...],
    rules: CommandRules,
    surroundings: Surroundings,
) -> Invocation:
    """What one simple command runs as. Raises RefusedError if it may not run."""
    path = find_program(words[0], surroundings)
    if path is None:
        raise RefusedError(f"there is no program `{words[0]}`.")
    name = _program_name(words[0], surroundings)
    match = _find_match((name, *words[1:]), rules)
    if match is None:
        raise RefusedError(f"`{command.text}` is not among the allowed commands.")
    arguments = _checked(name, words, match, surroundings)
    return Invocation(
        path=str(path), arguments=arguments, stdout=command.stdout, stderr=command.stderr
    )


def _expand(command: SimpleCommand, surroundings: Surroundings) -> tuple[str, ...]:
    program, *rest = command.words
    if program.pattern is not None:
        raise RefusedError(f"`{program.text}` is a wildcard; write the program's name.")
    words = [program.text]
    # git's own option for what happens anyway: its output goes to no pager.
    if program.text == "git" and rest and rest[0].text == "--no-pager":
        rest = rest[1:]
    for word in rest:
        words += expand(word, surroundings.directory)
    return tuple(words)


def _program_name(written: str, surroundings: Surroundings) -> str:
    """The name that rules are about: that of the program in PATH, if it is the same file."""
    base = PurePath(written).name
    if base == written:
        return written
    path = find_program(written, surroundings)
    known = find_program(base, surroundings)
    is_same = path is not None and known is not None and path.resolve() == known.resolve()
    return base if is_same else written


def _find_match(words: tuple[str, ...], rules: CommandRules) -> _Match | None:
    """How the lists allow a command, if they do; the least restricted way of several."""
    if ANY in rules.entries:
        return _Match(takes_options=True, names_script=True, guarded=False)
    found = [match for entry in rules.entries if (match := _match_entry(entry, words))]
    if READ_SET in rules.entries and words[0] in READERS:
        found.append(_Match())
    return max(found, key=lambda match: (match.takes_options, len(match.spelled)), default=None)


def _match_entry(entry: str, words: tuple[str, ...]) -> _Match | None:
    """Whether an entry of the list fits, word by word.

    An entry of plain words fits commands that start with them. A last word that ends in `*` fits
    that word and whatever follows; `*` alone needs at least one word.
    """
    pattern = _entry_words(entry)
    has_wildcard = any(word.pattern is not None for word in pattern)
    is_open = not has_wildcard or pattern[-1].text.endswith(ANY)
    if not pattern or len(words) < len(pattern) or (len(words) > len(pattern) and not is_open):
        return None
    if not all(
        fnmatchcase(word, one.pattern) if one.pattern is not None else word == one.text
        for one, word in zip(pattern, words, strict=False)
    ):
        return None
    spelled = frozenset(index for index, one in enumerate(pattern) if one.pattern is None)
    return _Match(
        spelled=spelled,
        takes_options=has_wildcard and pattern[-1].text.startswith("-"),
        names_script=_names_script([one.text for one in pattern if one.pattern is None]),
    )


def _names_script(words: Sequence[str]) -> bool:
    """Whether the entry itself says which script an interpreter runs."""
    if words[1:2] == ["-m"]:
        return len(words) > len(("python", "-m"))
    return len(words) > 1 and not words[1].startswith("-")


@cache
def _entry_words(entry: str) -> tuple[Word, ...]:
    """The words of an entry; none if it can only be meant word for word."""
    try:
        (pipeline,) = parse_line(entry)
        (command,) = pipeline.commands
    except ValueError:
        return ()
    return command.words


def _checked(
    name: str, words: tuple[str, ...], match: _Match, surroundings: Surroundings
) -> tuple[str, ...]:
    """The arguments, the program's name first, after the checks that apply to them."""
    _refuse_indirect(name, match)
    arguments = Arguments(
        program=name,
        words=words[1:],
        spelled=frozenset(index - 1 for index in match.spelled if index),
        directory=surroundings.directory,
        guarded=match.guarded,
    )
    if is_known(name, arguments.words) and not (match.takes_options and match.guarded):
        return (words[0], *check_arguments(arguments))
    if match.guarded:
        if "/" in name and 0 not in match.spelled:
            require_visible(name, surroundings.directory)
        if name == "git" and 1 not in match.spelled:
            raise RefusedError(f"`git {' '.join(words[1:2])}` is not among the allowed commands.")
        _check_unknown(arguments, match)
    return words


def _refuse_indirect(name: str, match: _Match) -> None:
    """Refuse a program that runs something else, where the list does not say what."""
    base = PurePath(name).name.lower()
    names = {base, _VERSION.sub("", base)}
    if names & WRAPPERS or base.startswith("ld-linux"):
        raise RefusedError(
            f"`{name}` runs other commands; it is allowed only in a line that the settings "
            "contain word for word."
        )
    if names & ARCHIVERS and match.guarded:
        raise RefusedError(
            f"`{name}` shows hidden files; it is allowed only in a line that the settings contain "
            "word for word."
        )
    if names & INTERPRETERS and not match.names_script:
        raise RefusedError(
            f"`{name}` runs code; it is allowed only where the settings name the script."
        )


def _check_unknown(arguments: Arguments, match: _Match) -> None:
    """Check the words of a program whose options are not known: no options, visible paths."""
    for index, word in enumerate(arguments.words):
        if index in arguments.spelled:
            continue
        is_option = word.startswith("-") and word != "-"
        if is_option and not match.takes_options:
            raise RefusedError(
                f"the option `{word}` of `{arguments.program}` is not in the allowed commands."
            )
        value = word.partition("=")[2]
        for one in filter(None, (word[2:], value) if is_option else (word, value)):
            require_visible(one.removeprefix("@").removeprefix("file://"), arguments.directory)


def _refuse_denied_text(line: str, patterns: Sequence[str]) -> None:
    """Refuse a line that a denied pattern fits, or that contains it as words."""
    for pattern in patterns:
        plain = re.escape(pattern.strip("* "))
        contains = plain and re.search(rf"(?<![\w-]){plain}(?![\w-])", line)
        if contains or fnmatchcase(line, pattern):
            raise DeniedError(f"`{line}` is denied by the settings.")


def _refuse_denied(
    text: str, words: tuple[str, ...], patterns: Sequence[str], surroundings: Surroundings
) -> None:
    """Refuse a command that a denied pattern fits, however its program and paths are written."""
    path = find_program(words[0], surroundings)
    programs = {words[0], PurePath(words[0]).name}
    if path is not None:
        programs |= {str(path), str(path.resolve()), path.resolve().name}
    arguments = [spellings(word, surroundings.directory) for word in words[1:]]
    every = frozenset[str]().union(*arguments)
    for pattern in patterns:
        first, *rest = pattern.split() or [""]
        fits_words = any(fnmatchcase(program, first) for program in programs) and all(
            any(fnmatchcase(one, word) for one in every) for word in rest
        )
        fits_text = any(fnmatchcase(" ".join((one, *words[1:])), pattern) for one in programs)
        names_no_program = not rest and first.startswith(("*", "?", "["))
        fits_path = names_no_program and any(fnmatchcase(one, first) for one in every)
        if fits_words or fits_text or fits_path:
            raise DeniedError(f"`{text}` is denied by the settings.")

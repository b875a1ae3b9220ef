"""The options of well-known programs that write nothing, run nothing and show nothing hidden.

An option that is not listed here is refused. Where a program shows hidden files by itself, cllm
adds options that leave them out. Decides nothing about which program may run.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Literal

import msgspec

from cllm.commands.command_line import WILDCARDS
from cllm.commands.options import Argument, Parsed, option_table, parse_options
from cllm.commands.paths import exists, require_visible
from cllm.commands.plan import RefusedError

Operands = Literal["paths", "text", "pattern", "none", "format", "targets", "archive"]


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of one command, and how they are judged.

    `spelled` are the indexes of the words that the settings contain literally: these are trusted.
    With `guarded`, paths stay in the folder and hidden files are left out.
    """

    program: str
    words: tuple[str, ...]
    spelled: frozenset[int]
    directory: Path
    guarded: bool

    def check_path(self, argument: Argument) -> None:
        """Refuse a path that leads out of the folder or to something hidden."""
        if self.guarded and argument.index not in self.spelled:
            require_visible(argument.text, self.directory)

    def shifted(self, count: int) -> "Arguments":
        """The same without the first words."""
        return msgspec.structs.replace(
            self,
            words=self.words[count:],
            spelled=frozenset(index - count for index in self.spelled if index >= count),
        )


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What a program may be called with.

    `hidden` are options that show hidden files. One of `needs` must be used. cllm itself puts
    `always` before the options, and leaves hidden files out with `added` (after the options) and
    `appended` (after the operands). With `is_reader` it belongs to the built-in read commands,
    with `reads_stdin` the operand `-` is the standard input.
    """

    options: str = ""
    hidden: str = ""
    operands: Operands = "paths"
    max_operands: int | None = None
    needs: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    appended: tuple[str, ...] = ()
    is_reader: bool = True
    reads_stdin: bool = False
    takes_any_option: bool = False


_CHECKSUM = Program(options="-b -t -z --binary --text --tag --zero", reads_stdin=True)
_GREP = Program(
    reads_stdin=True,
    options=(
        "-# -a -b -c -E -F -G -H -h -i -I -L -l -n -o -P -q -r -s -T -v -w -x -z -A= -B= -C= -e= "
        "-m= "
        "--after-context= --before-context= --binary-files= --color=? --colour=? --context= "
        "--count "
        "--exclude= --exclude-dir= --extended-regexp --files-with-matches --files-without-match "
        "--fixed-strings --ignore-case --include= --invert-match --line-number --line-regexp "
        "--max-count= --no-filename --no-messages --only-matching --perl-regexp --quiet "
        "--recursive "
        "--regexp= --text --with-filename --word-regexp"
    ),
    operands="pattern",
    # The last matching rule wins. Operands such as `./src` and `..` are not excluded.
    added=(
        "--exclude=.[!./]*",
        "--exclude=..[!/]*",
        "--exclude-dir=.[!./]*",
        "--exclude-dir=..[!/]*",
    ),
)

_PATTERN_OPTIONS = ("-e", "--expression", "--files", "--regexp")

PROGRAMS: dict[str, Program] = {
    "basename": Program(options="-a -s= -z --multiple --suffix= --zero", operands="text"),
    "cat": Program(
        reads_stdin=True,
        options="-A -b -e -E -n -s -t -T -u -v --number --number-nonblank --show-all "
        "--show-ends --show-tabs --squeeze-blank",
    ),
    "comm": Program(options="-1 -2 -3 -i -z --total", reads_stdin=True),
    "cut": Program(
        reads_stdin=True,
        options="-b= -c= -d= -f= -n -s -z --bytes= --characters= --complement --delimiter= "
        "--fields= --only-delimited --output-delimiter=",
    ),
    "date": Program(
        options="-d= -I=? -R -u --date= --iso-8601=? --rfc-3339= --rfc-email --utc",
        operands="format",
    ),
    "df": Program(
        options="-a -h -H -i -k -l -m -P -T --human-readable --inodes --local --output=? "
        "--print-type "
        "--si --total"
    ),
    "diff": Program(
        reads_stdin=True,
        options=(
            "-a -b -B -c -C= -i -N -q -r -s -t -u -U= -w -W= -y --brief --color=? --context=? "
            "--ignore-all-space --ignore-blank-lines --ignore-case --ignore-space-change "
            "--new-file "
            "--recursive --report-identical-files --side-by-side --suppress-common-lines --text "
            "--unified=? --width="
        ),
        added=("--exclude=.*", "--no-dereference"),
    ),
    "dirname": Program(options="-z --zero", operands="text"),
    "du": Program(
        options=(
            "-a -b -c -d= -h -k -m -s -S -x --all --apparent-size --bytes --human-readable "
            "--max-depth= --separate-dirs --si --summarize --total"
        ),
        added=("--exclude=.[!./]*", "--exclude=..[!/]*"),
    ),
    "echo": Program(operands="text", takes_any_option=True),
    "egrep": _GREP,
    "false": Program(operands="text"),
    "fgrep": _GREP,
    "file": Program(options="-b -h -i -L -N --brief --mime --mime-encoding --mime-type"),
    "grep": _GREP,
    "head": Program(
        options="-# -c= -n= -q -v -z --bytes= --lines= --quiet --verbose", reads_stdin=True
    ),
    "id": Program(options="-G -g -n -r -u -z --group --groups --name --user", operands="text"),
    "ls": Program(
        options=(
            "-1 -b -c -C -d -F -g -G -h -i -I= -k -l -m -n -N -o -p -q -Q -r -R -s -S -t -u -U -v "
            "-w= -x -X --classify --color=? --directory --file-type --full-time "
            "--group-directories-first --hide= --human-readable --ignore= --inode --no-group "
            "--numeric-uid-gid --recursive --reverse --si --size --sort= --time= --time-style= "
            "--width="
        ),
        hidden="-a -A -f --all --almost-all",
    ),
    "make": Program(
        options="-B -j=? -k -n -s --always-make --dry-run --jobs=? --just-print --keep-going "
        "--quiet --silent",
        operands="targets",
        is_reader=False,
    ),
    "md5sum": _CHECKSUM,
    "nl": Program(
        options="-b= -i= -n= -s= -v= -w= --body-numbering= --number-width=", reads_stdin=True
    ),
    "nproc": Program(options="--all --ignore=", operands="none"),
    "paste": Program(options="-d= -s -z --delimiters= --serial", reads_stdin=True),
    "printf": Program(operands="text", takes_any_option=True),
    "pwd": Program(options="-L -P", operands="none"),
    "rg": Program(
        reads_stdin=True,
        options=(
            "-# -A= -B= -C= -c -e= -E= -F -g= -H -i -I -l -m= -M= -n -N -o -P -q -s -S -t= -T= "
            "-U -v "
            "-w -x --after-context= --before-context= --case-sensitive --color= --column "
            "--context= "
            "--count --count-matches --files --files-with-matches --files-without-match "
            "--fixed-strings --glob= --heading --ignore-case --invert-match --json --line-number "
            "--line-regexp --max-columns= --max-count= --max-depth= --multiline --no-filename "
            "--no-heading --no-ignore --no-ignore-vcs --no-line-number --no-messages "
            "--only-matching --pcre2 --quiet --regexp= --smart-case --sort= --sortr= --stats "
            "--trim "
            "--type= --type-not= --vimgrep --with-filename --word-regexp"
        ),
        hidden="-. --hidden",
        operands="pattern",
        always=("--no-config",),
        # A glob of `-g` or of an ignore file would select hidden files; the last one wins.
        added=("--glob=!.*",),
    ),
    "sed": Program(
        reads_stdin=True,
        options="-E -e= -n -r -s -z --expression= --null-data --quiet --regexp-extended --separate "
        "--silent",
        operands="pattern",
        always=("--sandbox",),  # no script can write, read or run anything
    ),
    "seq": Program(options="-f= -s= -w --equal-width --separator=", operands="text"),
    "sha1sum": _CHECKSUM,
    "sha256sum": _CHECKSUM,
    "sha512sum": _CHECKSUM,
    "sort": Program(
        reads_stdin=True,
        options=(
            "-b -c -C -d -f -g -h -i -k= -m -M -n -r -R -s -t= -u -V -z --check=? "
            "--dictionary-order "
            "--field-separator= --general-numeric-sort --human-numeric-sort --ignore-case "
            "--ignore-leading-blanks --key= --merge --month-sort --numeric-sort --reverse --sort= "
            "--stable --unique --version-sort --zero-terminated"
        ),
    ),
    "stat": Program(options="-c= -f -L -t --dereference --file-system --format= --printf= --terse"),
    "tac": Program(options="-b -r -s= --before --separator=", reads_stdin=True),
    "tail": Program(
        options="-# -c= -n= -q -v -z --bytes= --lines= --quiet --verbose", reads_stdin=True
    ),
    "tar": Program(
        options="-a -f=path -j -J -t -v -z --bzip2 --file=path --gzip --list --verbose --xz --zstd",
        operands="text",
        needs=("-t", "--list"),
        reads_stdin=True,
        added=("--force-local", "--exclude=.[!./]*", "--exclude=..[!/]*"),
        is_reader=False,
    ),
    "tr": Program(
        options="-c -C -d -s -t --complement --delete --squeeze-repeats", operands="text"
    ),
    "tree": Program(
        # A value is a word of its own: `-Io` is `-I` and `-o`.
        options=(
            "-C -d -D -f -F -g -h -i -I=word -J -L=word -n -N -p -P=word -q -Q -r -s -t -u -v "
            "--charset=! --dirsfirst --du --filelimit=! --filesfirst --gitignore --ignore-case "
            "--noreport --prune --sort=!"
        ),
        hidden="-a",
    ),
    "true": Program(operands="text"),
    "uname": Program(options="-a -i -m -n -o -p -r -s -v --all --kernel-release", operands="none"),
    "uniq": Program(
        reads_stdin=True,
        options="-c -d -D -f= -i -s= -u -w= -z --all-repeated=? --check-chars= --count --group=? "
        "--ignore-case --repeated --skip-chars= --skip-fields= --unique",
        max_operands=1,
    ),
    "unzip": Program(
        options="-l",
        operands="archive",
        needs=("-l",),
        appended=("-x", ".*", "*/.*"),
        is_reader=False,
    ),
    "uptime": Program(options="-p -s --pretty --since", operands="none"),
    "wc": Program(
        options="-c -l -L -m -w --bytes --chars --lines --max-line-length --words", reads_stdin=True
    ),
    "which": Program(options="-a", operands="text"),
    "whoami": Program(operands="none"),
    "zipinfo": Program(
        options="-1 -l -m -s",
        operands="archive",
        appended=("-x", ".*", "*/.*"),
        is_reader=False,
    ),
}

Checker = Callable[[Arguments], tuple[str, ...]]


def check_arguments(arguments: Arguments) -> tuple[str, ...]:
    """The arguments a known program runs with. Raises RefusedError if they are not allowed."""
    checker = CHECKERS.get(arguments.program)
    if checker is not None:
        return checker(arguments)
    return check_program(PROGRAMS[arguments.program], arguments)


def check_program(program: Program, arguments: Arguments) -> tuple[str, ...]:
    """Check options and operands against one row of the table.

    The result has the options first, so that every program reads them as this one does.
    """
    if program.takes_any_option:
        return arguments.words
    options = program.options if arguments.guarded else f"{program.options} {program.hidden}"
    parsed = parse_options(
        arguments.words, option_table(options), arguments.spelled, program=arguments.program
    )
    if program.needs and parsed.names.isdisjoint(program.needs):
        raise RefusedError(f"`{arguments.program}` is allowed with `{program.needs[0]}` only.")
    for path in (*parsed.paths, *_find_paths(program, arguments, parsed)):
        if not (program.reads_stdin and path.text == "-"):
            arguments.check_path(path)
    if parsed.unlisted:
        return arguments.words
    operands = [operand.text for operand in parsed.operands]
    if program.operands == "archive":
        archive = operands[0] if operands[0].startswith("/") else f"./{operands[0]}"
        return (*parsed.options, archive, *program.appended)
    added = program.added if arguments.guarded else ()
    separator = ("--",) if operands else ()
    return (*program.always, *parsed.options, *added, *separator, *operands)


def _find_paths(program: Program, arguments: Arguments, parsed: Parsed) -> tuple[Argument, ...]:
    """The operands that are paths. Raises RefusedError for operands of the wrong kind."""
    operands = parsed.operands
    if program.max_operands is not None and len(operands) > program.max_operands:
        raise RefusedError(f"`{arguments.program}` takes at most {program.max_operands} file here.")
    match program.operands:
        case "paths":
            return operands
        case "pattern":
            # An unlisted option may take the first operand; then any of them can be a path.
            has_pattern = parsed.unlisted or not parsed.names.isdisjoint(_PATTERN_OPTIONS)
            return operands if has_pattern else operands[1:]
        case "none":
            _refuse_operands(arguments, operands)
        case "format":
            _refuse_operands(arguments, [one for one in operands if not one.text.startswith("+")])
        case "targets":
            _refuse_operands(arguments, [one for one in operands if "=" in one.text])
            return operands
        case "archive":
            # unzip would expand wildcards and complete the name by itself.
            files = [one for one in operands if exists(arguments.directory / one.text)]
            if len(operands) != 1 or not files or not WILDCARDS.isdisjoint(operands[0].text):
                raise RefusedError(f"`{arguments.program}` takes the name of one archive here.")
            return operands
        case "text":
            pass
    return ()


def _refuse_operands(arguments: Arguments, operands: Sequence[Argument]) -> None:
    wrong = [operand.text for operand in operands if operand.index not in arguments.spelled]
    if wrong:
        raise RefusedError(f"`{arguments.program}` may not be called with `{wrong[0]}`.")


def _check_tar(arguments: Arguments) -> tuple[str, ...]:
    """Accept the old style of options without a dash too."""
    first = arguments.words[0] if arguments.words else ""
    if first and not first.startswith("-"):
        letters = "".join(sorted(first.replace("f", ""))) + ("f" if "f" in first else "")
        words = (f"-{letters}", *arguments.words[1:])
        arguments = msgspec.structs.replace(arguments, words=words)
    return check_program(PROGRAMS["tar"], arguments)


_FIND_TESTS = {
    **dict.fromkeys(("-amin", "-atime", "-cmin", "-ctime", "-mmin", "-mtime", "-size"), 1),
    **dict.fromkeys(("-name", "-iname", "-path", "-ipath", "-regex", "-iregex", "-type"), 1),
    **dict.fromkeys(("-perm", "-printf", "-user", "-group", "-newermt"), 1),
    **dict.fromkeys(("-empty", "-executable", "-readable", "-writable", "-print", "-print0"), 0),
    **dict.fromkeys(("-ls", "-true", "-false", "-not", "!", "-a", "-and", "-o", "-or"), 0),
    **dict.fromkeys(("-prune", "-quit", "(", ")"), 0),
}
_FIND_LIMITS = {"-maxdepth": 1, "-mindepth": 1, "-mount": 0, "-xdev": 0}
# Stops at hidden folders. The paths count below -mindepth, where nothing else is evaluated.
_FIND_VISIBLE = (
    *("!", "(", "(", "-name", ".[!.]*", "-o", "-name", "..?*", ")", "-prune", ")"),
    *("!", "-path", "*/.[!./]*", "!", "-path", "*/..[!/]*"),
)


def _check_find(arguments: Arguments) -> tuple[str, ...]:
    """Check the expression, and leave hidden files out of it."""
    words = arguments.words
    start = next((n for n, word in enumerate(words) if word[:1] in ("-", "!", "(")), len(words))
    for index, word in enumerate(words[:start]):
        arguments.check_path(Argument(text=word, index=index))
    limits: list[str] = []
    expression: list[str] = []
    depth = 0
    at = start
    while at < len(words):
        count = _FIND_LIMITS.get(words[at], _FIND_TESTS.get(words[at]))
        depth += {"(": 1, ")": -1}.get(words[at], 0)
        # A parenthesis that closes nothing would end the one around the whole expression.
        if count is None or at + count >= len(words) or depth < 0:
            raise RefusedError(f"`find` may not have `{words[at]}` here.")
        taken = words[at : at + 1 + count]
        (limits if words[at] in _FIND_LIMITS else expression).extend(taken)
        at += 1 + count
    if depth:
        raise RefusedError("`find` has a parenthesis that is not closed.")
    if not arguments.guarded:
        return words
    wrapped = ("(", *expression, ")") if expression else ()
    return (*(words[:start] or (".",)), *limits, *_FIND_VISIBLE, *wrapped)


# Excludes every hidden file and everything in a hidden folder, at any depth.
_GIT_VISIBLE = (":(exclude,glob)**/.*", ":(exclude,glob)**/.*/**")
# Settings of the repository that would run programs, write the index or show other files.
_GIT_GLOBAL = (
    *("--no-pager", "--no-optional-locks"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "diff.autoRefreshIndex=false"),
    *("-c", "gpg.program=false"),
    *("-c", "gpg.ssh.program=false"),
    *("-c", "gpg.x509.program=false"),
    *("-c", "log.showSignature=false"),
    *("-c", "status.submoduleSummary=false"),
)
_GIT_DIFF = (
    "-# -b -M -p -s -u -U=? -w --color=? --cached --compact-summary --diff-filter=! "
    "--ignore-all-space --ignore-space-change --name-only --name-status --no-color --no-patch "
    "--numstat --patch --shortstat --staged --stat=? --summary --unified=! --word-diff=?"
)
_GIT_SHOW = "--abbrev-commit --date=! --decorate=? --format=! --no-decorate --oneline --pretty=?"
_GIT_LOG = (
    "-i -n= -S= -G= --after=! --all --author=! --before=! --branches --first-parent "
    "--graph --grep=! --max-count=! --merges --no-merges --reverse --since=! --skip=! --tags "
    "--until=!"
)
_GIT_SAFE_DIFF = ("--no-ext-diff", "--no-textconv", "--submodule=short")


class _GitCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A git command that only reads. With `lists_files` it shows files with every option."""

    options: str
    operands: Literal["revisions", "paths", "pattern", "names"] = "revisions"
    added: tuple[str, ...] = ()
    lists_files: bool = True


_GIT = {
    "blame": _GitCommand(
        options="-c -e -l -L= -s -w --date=! --line-porcelain --porcelain --show-email",
        added=("--no-textconv",),
        lists_files=False,
    ),
    "branch": _GitCommand(
        options="-a -l -r -v --all --contains=! --format=! --list --merged=? --no-color "
        "--no-merged=? --remotes --show-current --sort=! --verbose",
        operands="names",
        lists_files=False,
    ),
    "describe": _GitCommand(options="--abbrev=! --all --always --long --tags", lists_files=False),
    "diff": _GitCommand(options=_GIT_DIFF, added=_GIT_SAFE_DIFF),
    "grep": _GitCommand(
        options="-# -A= -B= -C= -c -e= -E -F -h -H -i -I -l -n -o -P -q -v -w --break --color=? "
        "--count --extended-regexp --files-with-matches --fixed-strings --heading --ignore-case "
        "--line-number --name-only --no-color --only-matching --word-regexp",
        operands="pattern",
        added=("--no-textconv",),
    ),
    "log": _GitCommand(
        options=f"{_GIT_DIFF} {_GIT_SHOW} {_GIT_LOG}", added=_GIT_SAFE_DIFF, lists_files=False
    ),
    "ls-files": _GitCommand(
        options="-c -d -m -o --cached --deleted --exclude-standard --modified --others",
        operands="paths",
    ),
    "rev-parse": _GitCommand(
        options="--abbrev-ref --is-inside-work-tree --short=? --show-toplevel --verify",
        lists_files=False,
    ),
    "show": _GitCommand(options=f"{_GIT_DIFF} {_GIT_SHOW}", added=_GIT_SAFE_DIFF),
    "status": _GitCommand(
        options="-b -s -u=? --branch --long --porcelain=? --short --untracked-files=?",
        operands="paths",
    ),
    "tag": _GitCommand(
        options="-l -n=? --contains=! --list --merged=? --sort=!",
        operands="names",
        lists_files=False,
    ),
}
# With these, git log shows or searches the content of files.
_GIT_FILE_OPTIONS = frozenset(
    (
        *("-G", "-S", "-U", "-p", "-u", "--compact-summary", "--name-only"),
        *("--name-status", "--numstat", "--patch", "--shortstat", "--stat", "--summary"),
        *("--unified", "--word-diff"),
    )
)
_LISTING = ("-l", "--list")
# git ignores colons in braces; a revision with other braces than `@{1}` is refused.
_FILE_IN_REVISION = re.compile(
    r"(?P<revision>[\w@][\w./~^@-]*(?:@\{\d+\})?[~^\d]*):(?P<path>[^:{}]+)"
)
_RANGE = re.compile(r"(\.{2,3})")


def is_known(program: str, words: Sequence[str]) -> bool:
    """Whether the options of a program, or of one of git's commands, are listed here."""
    if program == "git":
        return bool(words) and words[0] in _GIT
    return program in PROGRAMS or program in CHECKERS


def _check_git(arguments: Arguments) -> tuple[str, ...]:
    """Check a git command that reads, and have it show visible files of this folder only."""
    if arguments.guarded and (shown := _show_git_file(arguments)):
        return shown
    name = arguments.words[0]
    command = _GIT[name]
    inner = msgspec.structs.replace(arguments.shifted(1), program=f"git {name}")
    end = inner.words.index("--") if "--" in inner.words else len(inner.words)
    parsed = parse_options(
        inner.words[:end], option_table(command.options), inner.spelled, program=inner.program
    )
    texts, revisions, paths = _divide_git_operands(command, inner, parsed)
    paths += [
        Argument(text=word, index=index)
        for index, word in enumerate(inner.words[end + 1 :], start=end + 1)
    ]
    for path in paths:
        _check_git_path(inner, path)
    if not arguments.guarded or parsed.unlisted:
        return arguments.words
    listed = [path.text for path in paths]
    if command.lists_files or not parsed.names.isdisjoint(_GIT_FILE_OPTIONS):
        listed = [*(listed or ["."]), *_GIT_VISIBLE]
    separator = ("--", *listed) if listed else ()
    options = (*parsed.options, *command.added)
    return (*_GIT_GLOBAL, name, *options, *texts, *revisions, *separator)


def _divide_git_operands(
    command: _GitCommand, arguments: Arguments, parsed: Parsed
) -> tuple[list[str], list[str], list[Argument]]:
    """The operands as texts, revisions and paths."""
    operands = list(parsed.operands)
    match command.operands:
        case "names":
            if parsed.names.isdisjoint(_LISTING):
                _refuse_operands(arguments, operands)
            return [one.text for one in operands], [], []
        case "paths":
            return [], [], operands
        case "pattern" if "-e" not in parsed.names and not parsed.unlisted:
            texts, operands = [one.text for one in operands[:1]], operands[1:]
        case _:
            texts = []
    paths = [one for one in operands if _is_git_path(arguments, one)]
    revisions = [_git_revision(arguments, one) for one in operands if one not in paths]
    return texts, revisions, paths


def _is_git_path(arguments: Arguments, operand: Argument) -> bool:
    has_wildcard = not WILDCARDS.isdisjoint(operand.text)
    return has_wildcard or exists(arguments.directory / operand.text)


def _check_git_path(arguments: Arguments, path: Argument) -> None:
    """Refuse magic pathspecs, and `..`, which git resolves without following links."""
    if arguments.guarded and path.index not in arguments.spelled:
        if path.text.startswith(":") or ".." in PurePath(path.text).parts:
            raise RefusedError(f"`{path.text}` is not allowed; name a path without `:` and `..`.")
        arguments.check_path(path)


def _git_revision(arguments: Arguments, operand: Argument) -> str:
    """A revision, or a range of two, that can only be commits.

    A tree or a blob would show files by themselves, whatever their names.
    """
    if not arguments.guarded or operand.index in arguments.spelled:
        return operand.text
    if ":" in operand.text:
        raise RefusedError(f"`{operand.text}` is not allowed; name a revision without `:`.")
    if arguments.program == "git rev-parse" or operand.text.endswith(("^!", "^@", "^-")):
        return operand.text
    sides = _RANGE.split(operand.text)
    return "".join(
        side if _RANGE.fullmatch(side) or not side else f"{side}^{{commit}}" for side in sides
    )


def _show_git_file(arguments: Arguments) -> tuple[str, ...] | None:
    """`git show REVISION:FILE`, relative to this folder; None if that is not the command.

    git show itself would also list a folder, with its hidden files.
    """
    match arguments.words:
        case ("show", operand) if found := _FILE_IN_REVISION.fullmatch(operand):
            path = found["path"]
            _check_git_path(arguments, Argument(text=path, index=1))
            revision = found["revision"]
            return (*_GIT_GLOBAL, "cat-file", "blob", f"{revision}:./{path.removeprefix('./')}")
    return None


CHECKERS: dict[str, Checker] = {"find": _check_find, "git": _check_git, "tar": _check_tar}
READERS = frozenset(name for name, row in PROGRAMS.items() if row.is_reader) | {"find"}

"""Options of well-known programs that write nothing, run nothing and show no hidden files.

Any other option is refused. Where a program shows hidden files, cllm adds options that exclude
them.
"""

import re
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from cllm.commands import git
from cllm.commands.command_line import WILDCARDS, CommandRefusedError, split_names
from cllm.commands.options import Argument, Arguments, ParsedOptions, option_table
from cllm.commands.paths import exists

# `input`: paths, where `-` is the standard input. `file`: at most one of these. `pattern`: one
# pattern, then `input`. `any`: neither options nor operands are checked.
Operands = Literal[
    "paths", "input", "file", "pattern", "text", "any", "none", "format", "targets", "archive"
]


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """`hidden` options show hidden files. One of `needs` is required.

    `always` goes before the options; `added_options`, which exclude hidden files, after them.
    """

    options: str
    operands: Operands = "paths"
    hidden: str = ""
    needs: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    added_options: tuple[str, ...] = ()


# Names, operands, options: see `option_table`.
_SIMPLE = """
basename    text    -a -s= -z --multiple --suffix= --zero
cat         input   -A -b -e -E -n -s -t -T -u -v --number --number-nonblank --show-all --show-ends
                    --show-tabs --squeeze-blank
comm        input   -1 -2 -3 -i -z --total
cut         input   -b= -c= -d= -f= -n -s -z --bytes= --characters= --complement --delimiter=
                    --fields= --only-delimited --output-delimiter=
date        format  -d= -I=? -R -u --date= --iso-8601=? --rfc-3339= --rfc-email --utc
df          paths   -a -h -H -i -k -l -m -P -T --human-readable --inodes --local --output=?
                    --print-type --si --total
dirname     text    -z --zero
echo,printf any
false,true  text
file        paths   -b -h -i -L -N --brief --mime --mime-encoding --mime-type
head,tail   input   -# -c= -n= -q -v -z --bytes= --lines= --quiet --verbose
id          text    -G -g -n -r -u -z --group --groups --name --user
md5sum,sha1sum,sha256sum,sha512sum
            input   -b -t -z --binary --text --tag --zero
nl          input   -b= -i= -n= -s= -v= -w= --body-numbering= --number-width=
nproc       none    --all --ignore=
paste       input   -d= -s -z --delimiters= --serial
pwd         none    -L -P
seq         text    -f= -s= -w --equal-width --separator=
sort        input   -b -c -C -d -f -g -h -i -k= -m -M -n -r -R -s -t= -u -V -z --check=?
                    --dictionary-order --field-separator= --general-numeric-sort
                    --human-numeric-sort --ignore-case --ignore-leading-blanks --key= --merge
                    --month-sort --numeric-sort --reverse --sort= --stable --unique --version-sort
                    --zero-terminated
stat        paths   -c= -f -L -t --dereference --file-system --format= --printf= --terse
tac         input   -b -r -s= --before --separator=
tr          text    -c -C -d -s -t --complement --delete --squeeze-repeats
uname       none    -a -i -m -n -o -p -r -s -v --all --kernel-release
uniq        file    -c -d -D -f= -i -s= -u -w= -z --all-repeated=? --check-chars= --count --group=?
                    --ignore-case --repeated --skip-chars= --skip-fields= --unique
uptime      none    -p -s --pretty --since
wc          input   -c -l -L -m -w --bytes --chars --lines --max-line-length --words
which       text    -a
whoami      none
"""

_GREP = Program(
    options="""
    -# -a -b -c -E -F -G -H -h -i -I -L -l -n -o -P -q -r -s -T -v -w -x -z -A= -B= -C= -e= -m=
    --after-context= --before-context= --binary-files= --color=? --colour=? --context= --count
    --exclude= --exclude-dir= --extended-regexp --files-with-matches --files-without-match
    --fixed-strings --ignore-case --include= --invert-match --line-number --line-regexp
    --max-count= --no-filename --no-messages --only-matching --perl-regexp --quiet --recursive
    --regexp= --text --with-filename --word-regexp
    """,
    operands="pattern",
    # The last matching rule wins. Operands such as `./src` and `..` are not excluded.
    added_options=(
        "--exclude=.[!./]*",
        "--exclude=..[!/]*",
        "--exclude-dir=.[!./]*",
        "--exclude-dir=..[!/]*",
    ),
)


def _read_simple() -> dict[str, Program]:
    programs: dict[str, Program] = {}
    for row in re.split(r"\n(?=\S)", _SIMPLE.strip()):
        names, operands, *options = row.split()
        program = {"operands": operands, "options": " ".join(options)}
        programs |= dict.fromkeys(names.split(","), msgspec.convert(program, Program))
    return programs


# The built-in read commands, with `find`.
_READ_PROGRAMS = {
    **_read_simple(),
    "diff": Program(
        operands="input",
        options="""
        -a -b -B -c -C= -i -N -q -r -s -t -u -U= -w -W= -y --brief --color=? --context=?
        --ignore-all-space --ignore-blank-lines --ignore-case --ignore-space-change --new-file
        --recursive --report-identical-files --side-by-side --suppress-common-lines --text
        --unified=? --width=
        """,
        added_options=("--exclude=.*", "--no-dereference"),
    ),
    "du": Program(
        options="""
        -a -b -c -d= -h -k -m -s -S -x --all --apparent-size --bytes --human-readable --max-depth=
        --separate-dirs --si --summarize --total
        """,
        added_options=("--exclude=.[!./]*", "--exclude=..[!/]*"),
    ),
    "egrep": _GREP,
    "fgrep": _GREP,
    "grep": _GREP,
    "ls": Program(
        options="""
        -1 -b -c -C -d -F -g -G -h -i -I= -k -l -m -n -N -o -p -q -Q -r -R -s -S -t -u -U -v -w= -x
        -X --classify --color=? --directory --file-type --full-time --group-directories-first
        --hide= --human-readable --ignore= --inode --no-group --numeric-uid-gid --recursive
        --reverse --si --size --sort= --time= --time-style= --width=
        """,
        hidden="-a -A -f --all --almost-all",
    ),
    "rg": Program(
        options="""
        -# -A= -B= -C= -c -e= -E= -F -g= -H -i -I -l -m= -M= -n -N -o -P -q -s -S -t= -T= -U -v -w
        -x --after-context= --before-context= --case-sensitive --color= --column --context= --count
        --count-matches --files --files-with-matches --files-without-match --fixed-strings --glob=
        --heading --ignore-case --invert-match --json --line-number --line-regexp --max-columns=
        --max-count= --max-depth= --multiline --no-filename --no-heading --no-ignore
        --no-ignore-vcs --no-line-number --no-messages --only-matching --pcre2 --quiet --regexp=
        --smart-case --sort= --sortr= --stats --trim --type= --type-not= --vimgrep --with-filename
        --word-regexp
        """,
        hidden="-. --hidden",
        operands="pattern",
        always=("--no-config",),
        # A glob of `-g` or of an ignore file would select hidden files; the last one wins.
        added_options=("--glob=!.*",),
    ),
    "sed": Program(
        options="""
        -E -e= -n -r -s -z --expression= --null-data --quiet --regexp-extended --separate --silent
        """,
        operands="pattern",
        always=("--sandbox",),  # no script can write, read or run anything
    ),
    "tree": Program(
        # A value is a separate word: `-Io` is `-I` and `-o`.
        options="""
        -C -d -D -f -F -g -h -i -I=word -J -L=word -n -N -p -P=word -q -Q -r -s -t -u -v
        --charset=! --dirsfirst --du --filelimit=! --filesfirst --gitignore --ignore-case
        --noreport --prune --sort=!
        """,
        hidden="-a",
    ),
}
PROGRAMS = {
    **_READ_PROGRAMS,
    "jq": Program(
        options="""
        -a -c -C -j -M -n -r -R -s -S --ascii-output --color-output --compact-output --exit-status
        --join-output --monochrome-output --null-input --raw-input --raw-output --slurp --sort-keys
        --stream --tab
        """,
        operands="pattern",
    ),
    "make": Program(
        options="""
        -B -j=? -k -n -s --always-make --dry-run --jobs=? --just-print --keep-going --quiet --silent
        """,
        operands="targets",
    ),
    "tar": Program(
        options="-a -f=path -j -J -t -v -z --bzip2 --file=path --gzip --list --verbose --xz --zstd",
        operands="text",
        needs=("-t", "--list"),
        added_options=("--force-local", "--exclude=.[!./]*", "--exclude=..[!/]*"),
    ),
    "unzip": Program(options="-l", operands="archive", needs=("-l",)),
    "zipinfo": Program(options="-1 -l -m -s", operands="archive"),
}
_PATTERN_OPTIONS = ("-e", "--expression", "--files", "--regexp")
_ARCHIVE_VISIBLE = ("-x", ".*", "*/.*")
# The names of GNU programs where others are installed too, as on macOS.
_GNU_NAMES = {f"g{name}": name for name in ("find", "grep", "make", "sed", "tar", "uniq")}
# With these, a filter of jq reads files of any folder.
_JQ_MODULES = re.compile(r'(?<![.\w$"])(?:import|include|modulemeta)\b')
# Options of programs whose other options are not known.
_ADDED_OPTIONS = {"curl": ("--proto", "-file")}


def check_arguments(arguments: Arguments) -> tuple[str, ...]:
    """Return the arguments with which a known program runs. Raises CommandRefusedError."""
    name = _GNU_NAMES.get(arguments.program, arguments.program)
    arguments = msgspec.structs.replace(arguments, program=name)
    return CHECKERS.get(name, _check_program)(arguments)


def _check_program(arguments: Arguments) -> tuple[str, ...]:
    """The result has the options first, so that every program reads them as this parser does."""
    program = PROGRAMS[arguments.program]
    if program.operands == "any":
        return arguments.words
    options = program.options if arguments.is_restricted else f"{program.options} {program.hidden}"
    parsed = ParsedOptions(
        arguments.words, option_table(options), arguments.literal, program=arguments.program
    )
    if program.needs and parsed.names.isdisjoint(program.needs):
        raise CommandRefusedError(
            f"`{arguments.program}` is allowed only with `{program.needs[0]}`."
        )
    # tar reads an archive from standard input with `-f -`.
    reads_stdin = program.operands in ("input", "file", "pattern") or arguments.program == "tar"
    for path in (*parsed.paths, *_find_paths(program, arguments, parsed)):
        if not (reads_stdin and path.text == "-"):
            arguments.check_path(path)
    if parsed.has_unlisted_option:
        return arguments.words
    operands = [operand.text for operand in parsed.operands]
    if program.operands == "archive":
        archive = operands[0] if operands[0].startswith("/") else f"./{operands[0]}"
        return (*parsed.options, archive, *_ARCHIVE_VISIBLE)
    added_options = program.added_options if arguments.is_restricted else ()
    separator = ("--",) if operands else ()
    return (*program.always, *parsed.options, *added_options, *separator, *operands)


def _find_paths(program: Program, arguments: Arguments, parsed: ParsedOptions) -> list[Argument]:
    operands = parsed.operands
    match program.operands:
        case "file" if len(operands) > 1:
            raise CommandRefusedError(f"`{arguments.program}` takes at most 1 file here.")
        case "paths" | "input" | "file":
            return operands
        case "pattern":
            # An unlisted option may take the first operand; then any of them can be a path.
            has_pattern = parsed.has_unlisted_option or not parsed.names.isdisjoint(
                _PATTERN_OPTIONS
            )
            return operands if has_pattern else operands[1:]
        case "none":
            arguments.refuse(operands)
        case "format":
            arguments.refuse([one for one in operands if not one.text.startswith("+")])
        case "targets":
            arguments.refuse([one for one in operands if "=" in one.text])
            return operands
        case "archive":
            # unzip would expand wildcards and complete the name by itself.
            files = [one for one in operands if exists(arguments.directory / one.text)]
            if len(operands) != 1 or not files or not WILDCARDS.isdisjoint(operands[0].text):
                raise CommandRefusedError(
                    f"`{arguments.program}` takes the name of one archive here."
                )
            return operands
        case "text" | "any":
            pass
    return []


def _check_tar(arguments: Arguments) -> tuple[str, ...]:
    first = arguments.words[0] if arguments.words else ""
    if first and not first.startswith("-"):
        letters = "".join(sorted(first.replace("f", ""))) + ("f" if "f" in first else "")
        words = (f"-{letters}", *arguments.words[1:])
        arguments = msgspec.structs.replace(arguments, words=words)
    return _check_program(arguments)


def _check_jq(arguments: Arguments) -> tuple[str, ...]:
    """Older versions of jq refuse `--` before the filter."""
    if "--" in arguments.words:
        raise CommandRefusedError("`jq` does not allow `--`.")
    words = _check_program(arguments)
    at = words.index("--") if "--" in words else len(words)
    literal = {arguments.words[index] for index in arguments.literal}
    for word in words[at + 1 : at + 2] or words:
        if arguments.is_restricted and word not in literal and _JQ_MODULES.search(word):
            raise CommandRefusedError(f"`{word}` is not allowed; `jq` must not read modules.")
    return (*words[:at], *words[at + 1 :])


def add_options(program: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """Add the options that keep an otherwise unknown program away from files outside the folder."""
    return (words[0], *_ADDED_OPTIONS.get(program, ()), *words[1:])


# Tests and actions, with the number of their arguments.
_FIND_TESTS = dict.fromkeys(
    split_names(
        """
        -amin -atime -cmin -ctime -group -iname -ipath -iregex -mmin -mtime -name -newermt -path
        -perm -printf -regex -size -type -user
        """
    ),
    1,
) | dict.fromkeys(
    split_names(
        """
        ! ( ) -a -and -empty -executable -false -ls -not -o -or -print -print0 -prune -quit
        -readable -true -writable
        """
    ),
    0,
)
_FIND_LIMITS = {"-maxdepth": 1, "-mindepth": 1, "-mount": 0, "-xdev": 0}
# Stops at hidden folders. The paths count below -mindepth, where nothing else is evaluated.
_FIND_VISIBLE = (
    *("!", "(", "(", "-name", ".[!.]*", "-o", "-name", "..?*", ")", "-prune", ")"),
    *("!", "-path", "*/.[!./]*", "!", "-path", "*/..[!/]*"),
)


def _check_find(arguments: Arguments) -> tuple[str, ...]:
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
            raise CommandRefusedError(f"`find` does not allow `{words[at]}` here.")
        term = words[at : at + 1 + count]
        (limits if words[at] in _FIND_LIMITS else expression).extend(term)
        at += 1 + count
    if depth:
        raise CommandRefusedError("`find` has an unclosed parenthesis.")
    if not arguments.is_restricted:
        return words
    wrapped = ("(", *expression, ")") if expression else ()
    return (*(words[:start] or (".",)), *limits, *_FIND_VISIBLE, *wrapped)


def is_known(program: str, words: Sequence[str]) -> bool:
    if program == "git":
        return bool(words) and words[0] in git.COMMANDS
    name = _GNU_NAMES.get(program, program)
    return name in PROGRAMS or name in CHECKERS


CHECKERS: dict[str, Callable[[Arguments], tuple[str, ...]]] = {
    "find": _check_find,
    "git": git.check_git,
    "jq": _check_jq,
    "tar": _check_tar,
}
READERS = frozenset(_READ_PROGRAMS) | {"find"}

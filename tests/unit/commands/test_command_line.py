"""Command lines are parsed into pipelines of words; all other syntax is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.commands.command_line import CommandLineError, parse_line


def words_of(line: str) -> list[list[str]]:
    return [
        [word.text for word in command.words]
        for pipeline in parse_line(line)
        for command in pipeline.commands
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ls", [["ls"]]),
        ("  ls   -l\t. ", [["ls", "-l", "."]]),
        ("cat 'a b' \"c d\"", [["cat", "a b", "c d"]]),
        ("r''m \"\"", [["rm", ""]]),
        ("a\\ b \\* \\'", [["a b", "*", "'"]]),
        (r'''"a\"b\\c\d"''', [['a"b\\c\\d']]),
        ("'$x `y` <>'", [["$x `y` <>"]]),
        ("ls; pwd", [["ls"], ["pwd"]]),
        ("ls ;", [["ls"]]),
        ("ls\n\npwd\n", [["ls"], ["pwd"]]),
        ("ls | wc -l", [["ls"], ["wc", "-l"]]),
        ("ls |\n wc", [["ls"], ["wc"]]),
        ("git show stash@{0} HEAD^{tree}", [["git", "show", "stash@{0}", "HEAD^{tree}"]]),
        ("echo a#b a=b", [["echo", "a#b", "a=b"]]),
        ("ls 2>/dev/null", [["ls"]]),
        ("ls \\\n -l", [["ls", "-l"]]),
        ("ls a\\\nb", [["ls", "ab"]]),
        ('grep "x$" a$', [["grep", "x$", "a$"]]),
        ("ls >/dev/null 2>&1 x", [["ls", "x"]]),
        ("ls 2> /dev/null; pwd", [["ls"], ["pwd"]]),
    ],
)
def test_a_line_is_split_into_words(line, words):
    assert words_of(line) == words


@pytest.mark.parametrize(
    ("line", "conditions"),
    [
        ("a; b", ["always", "always"]),
        ("a && b || c", ["always", "success", "failure"]),
        ("a\nb", ["always", "always"]),
    ],
)
def test_an_operator_sets_the_condition_of_the_next_pipeline(line, conditions):
    assert [pipeline.condition for pipeline in parse_line(line)] == conditions


@pytest.mark.parametrize(
    ("line", "targets"),
    [
        ("ls", ("output", "error")),
        ("ls 2>&1", ("output", "output")),
        ("ls 2>/dev/null", ("output", "discard")),
        ("ls >/dev/null", ("discard", "error")),
        ("ls 1>/dev/null", ("discard", "error")),
        ("ls >/dev/null 2>&1", ("discard", "discard")),
        ("ls 2>&1 >/dev/null", ("discard", "output")),
    ],
)
def test_redirections_apply_in_order(line, targets):
    ((command,),) = (pipeline.commands for pipeline in parse_line(line))

    assert (command.stdout, command.stderr) == targets


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("echo $x", "variable"),
        ("echo $1", "variable"),
        ("echo $(ls)", "variable"),
        ("echo ${x}", "variable"),
        ('echo "$x"', "variable"),
        ("echo `ls`", "substitution"),
        ('echo "`ls`"', "substitution"),
        ("(ls)", "group"),
        ("{ ls; }", "group"),
        ("echo {a,b}", "brace"),
        ("echo {1..3}", "brace"),
        ("cat < a", "redirection"),
        ("ls > a", "redirection"),
        ("ls >> a", "redirection"),
        ("ls > /dev/nullx", "redirection"),
        ("ls a>/dev/null", "redirection"),
        ("ls 2>&1x", "redirection"),
        ("ls &", "background"),
        ("ls & pwd", "background"),
        ("ls &> /dev/null", "background"),
        ("A=1 ls", "assignment"),
        ("A+=1", "assignment"),
        ("ls # x", "comment"),
        ("ls ~/x", "home"),
        ("~/x", "home"),
        ("ls 'x", "quote"),
        ('ls "x', "quote"),
        ("ls \\", "backslash"),
        ("ls\r\npwd", "control"),
        ("ls \0", "control"),
        ("ls '\0'", "control"),
        ("", "without a command"),
        (";", "without a command"),
        ("| ls", "without a command"),
        ("ls |", "without a command"),
        ("ls &&", "without a command"),
        ("ls; ; pwd", "without a command"),
        ("ls || | pwd", "without a command"),
    ],
)
def test_other_syntax_is_refused_by_name(line, name):
    with pytest.raises(CommandLineError, match=name):
        parse_line(line)


def test_only_unquoted_wildcards_are_patterns():
    ((command,),) = (pipeline.commands for pipeline in parse_line("ls *.py '*' \"?\" \\[ a'*'*"))

    assert [word.pattern for word in command.words] == [None, "*.py", None, None, None, "a[*]*"]


@given(st.text(alphabet="ls cat\"'$`;&|<>(){}\\*?\n\t#!=~2", max_size=40))
def test_every_line_is_parsed_or_refused(line):
    try:
        pipelines = parse_line(line)
    except CommandLineError:
        return
    assert all(command.words for pipeline in pipelines for command in pipeline.commands)


@given(st.lists(st.text(st.characters(exclude_characters="\0"), min_size=1), min_size=1))
def test_quoted_words_come_back_unchanged(words):
    line = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)

    assert words_of(line) == [words]

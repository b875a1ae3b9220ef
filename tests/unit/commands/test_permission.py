"""What the model may run: deny, allow, what only reads; and shell control gets around nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.commands.permission import READ_ONLY, CommandRules, judge
from cllm.commands.shell_words import simple_commands

NOTHING = CommandRules()


def may(line: str, *, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> bool:
    return judge(line, CommandRules(allow=allow, deny=deny)).allowed


class TestWhatOnlyReads:
    @pytest.mark.parametrize(
        "line",
        [
            "ls",
            "ls -la /tmp",
            "cat README.md",
            "ls *.py",
            "date -u +%H:%M",
            "head -n 5 a.txt",
            "head -5 a.txt",
            "tail -n20 a.txt",
            "grep -rn '--include=*.py' word src",
            "du -sh . --max-depth=1",
            "cat 'a file.txt'",
            'grep "two words" a.txt',
            "ls | wc -l",
            "pwd; ls",
            "ls && pwd",
            "cat a ||  cat b",
            "date",
            "ls\npwd",
            "ls ;",
        ],
    )
    def test_it_is_allowed(self, line):
        assert may(line)
        assert judge(line, NOTHING).basis == "read_only"

    @pytest.mark.parametrize(
        "line",
        [
            "rm -rf y",
            "cat x; rm -rf y",
            "cat x && rm -rf y",
            "cat x || rm -rf y",
            "cat x | sh",
            "cat x & rm -rf y",
            "cat x &rm -rf y",
            "ls\nrm -rf y",
            "ls\r\nrm -rf y",
            "cat $(rm -rf y)",
            "cat `rm -rf y`",
            'cat "$(rm -rf y)"',
            'cat "`rm -rf y`"',
            "cat <(rm -rf y)",
            "cat >(rm -rf y)",
            "echo x > y",
            "echo x >> y",
            "echo x>y",
            "cat < /etc/passwd",
            "cat << EOF\nrm\nEOF",
            "(rm -rf y)",
            "{ rm -rf y; }",
            "ls; (rm y)",
            "PATH=. ls",
            "LD_PRELOAD=./x.so ls",
            "FOO=bar",
            "cat ${HOME}/x",
            "cat $HOME",
            "echo {a,b}",
            "c\\at x",
            "r\\m y",
            "! rm y",
            "cat 'x",
            'cat "x',
            "cat x; 'rm' -rf y",
            "'rm' y",
            '"rm" y',
            "r''m y",
            "sh -c 'rm y'",
            "bash -c ls",
            "env rm y",
            "xargs rm",
            "sudo ls",
            "nohup ls",
            "eval ls",
            "exec ls",
            "find . -delete",
            "git status",
            "git diff",
            "git log",
            "git branch --list --no-list x",
            "git push",
            "date -s 2020-01-01",
            "date -us 2020-01-01",
            "date --se=2020-01-01",
            "date 010100002030",
            "date -f x",
            "file -C",
            "file -bC -m x",
            "hostname x",
            "hostname -F x",
            "tail -f x",
            "tail --retry x",
            "cat *",
            "cat /proc/self/environ",
            "cat /etc/passwd",
            "cat ~/.ssh/id_rsa",
            "cat ../../x",
            "cat a/../../x",
            "head -n5 /etc/passwd",
            "grep -f/etc/passwd x",
            "grep --file=/etc/passwd x",
            "grep -r x /",
            "wc --files0-from=/etc/passwd",
            "ps eww",
            "env",
            "printenv",
            "sort -o x y",
            "lsof",
            "catx",
            "./ls",
            "/opt/ls",
            "",
            ";",
            "&&",
            "| ls",
            "ls; ; pwd",
            "#ls",
            "ls # rm",
            "\x00ls",
            "ls \x00",
        ],
    )
    def test_it_is_not(self, line):
        assert not may(line)

    def test_every_row_of_the_table_passes_by_itself(self):
        for name in READ_ONLY:
            assert may(name)


class TestPatterns:
    @pytest.mark.parametrize(
        ("pattern", "line"),
        [
            ("make", "make test"),
            ("git push", "git push origin"),
            ("npm *", "npm run build"),
            ("pytest", "pytest -q && ls"),
            ("make *", "make a; make b"),
            ("docker ps --format '{{.Names}}'", "docker ps --format '{{.Names}}'"),
            ("echo x > y", "echo x > y"),
        ],
    )
    def test_an_allowed_pattern_lets_through(self, pattern, line):
        assert may(line, allow=(pattern,))

    @pytest.mark.parametrize(
        ("pattern", "line"),
        [
            ("cat *", "cat x; rm -rf y"),
            ("cat", "cat x && rm y"),
            ("git *", "git log; rm y"),
            ("git *", "git log $(rm y)"),
            ("git *", "git log > x"),
            ("make", "makefile"),
            ("make test", "make"),
            ("npm *", "npm"),
            ("*.sh", "a.sh; rm y"),
            ("echo x > y", "echo x > y2"),
            ("echo x > y", "echo x > y; rm z"),
            ("ls*", "lsx\nrm y"),
        ],
    )
    def test_it_never_lets_through_what_follows(self, pattern, line):
        assert not may(line, allow=(pattern,))

    @pytest.mark.parametrize(
        ("deny", "line"),
        [
            ("cat", "cat x"),
            ("cat *", "ls; cat x"),
            ("git push", "git push"),
            ("rm", "sh -c 'rm x'"),
            ("rm *", "echo $(rm x)"),
            ("*", "ls"),
            ("*", "echo $(ls)"),
            ("cat secret.txt", "cat -n secret.txt"),
            ("cat secret.txt", "cat ./secret.txt"),
            ("cat secret.txt", "cat -- secret.txt"),
        ],
    )
    def test_deny_is_over_everything(self, deny, line):
        verdict = judge(line, CommandRules(deny=(deny,), allow=("*", line)))

        assert not verdict.allowed
        assert verdict.basis == "denied"
        assert "denied" in verdict.reason

    @pytest.mark.parametrize("line", ["ls secr?t.txt", "ls s*"])
    def test_a_glob_could_be_what_is_denied(self, line):
        assert not may(line, deny=("*secret*",))
        assert may(line, deny=("other",), allow=("ls",))

    def test_a_denied_word_inside_another_word_denies_nothing(self):
        assert may("ls format", deny=("rm",))

    def test_a_refusal_says_what_to_do(self):
        assert "simple commands" in judge("echo $(ls)", NOTHING).reason
        assert "`rm -rf y`" in judge("ls; rm -rf y", NOTHING).reason


@given(st.lists(st.sampled_from(["ls", "rm x", "cat a"]), min_size=1, max_size=5), st.data())
def test_a_line_passes_exactly_if_each_command_in_it_passes(commands, data):
    joins = [data.draw(st.sampled_from([";", " && ", " || ", "|", "\n", " & "])) for _ in commands]
    line = "".join(c + j for c, j in zip(commands, [*joins[1:], ""], strict=True))

    assert may(line) == all(may(command) for command in commands)


@given(st.text(alphabet="ls cat\"'$`;&|<>(){}\\*?\n\t#!=~", max_size=30))
def test_no_line_makes_the_reader_stumble(line):
    found = simple_commands(line)

    assert found is None or all(command.words for command in found)


UNQUOTED = st.text(st.characters(exclude_characters="'\""), max_size=20)


@given(UNQUOTED, UNQUOTED)
def test_nothing_passes_by_its_beginning_alone(before, after):
    line = f"cat {before}; rm {after}"

    assert not may(line, allow=("cat", "cat *"))

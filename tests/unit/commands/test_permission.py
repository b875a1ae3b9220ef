"""Which lines may run: lists, deny, the built-in read commands, and their plans."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.commands.command_line import CommandEnvironment
from cllm.commands.permission import CommandRules, Verdict, check_permission
from cllm.commands.programs import READERS

OTHER_PROGRAMS = (
    *("make", "npm", "pytest", "git", "rm", "touch", "python3", "sh", "env", "docker", "cp", "ln"),
    *("node", "sqlite3", "python3.11", "mything", "tar", "curl", "yq", "duckdb"),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> CommandEnvironment:
    """A folder with a few files, and a PATH with a file for each program."""
    top = tmp_path_factory.mktemp("permission")
    programs = top / "bin"
    folder = top / "folder"
    programs.mkdir()
    for name in (*READERS, *OTHER_PROGRAMS):
        (programs / name).touch(mode=0o755)
    (folder / "sub").mkdir(parents=True)
    for name in ("a.txt", "secret.txt", "-n", ".env", "sub/b.txt", "run.sh"):
        (folder / name).touch(mode=0o755)
    (programs / "python3.11").unlink()
    (programs / "python3.11").hardlink_to(programs / "python3")
    (programs / "gmake").symlink_to("make")
    (folder / "link").symlink_to("secret.txt")
    (folder / "away").symlink_to(top)
    return CommandEnvironment(directory=folder, environment={"PATH": f".:relative:{programs}"})


@pytest.fixture
def decide(place):
    def decide(line: str, *, allow=None, deny=()) -> Verdict:
        return check_permission(line, CommandRules(allow=allow, deny=deny), place)

    return decide


def arguments_of(verdict: Verdict) -> list[tuple[str, ...]]:
    assert verdict.plan is not None, verdict.reason
    return [one.arguments for pipeline in verdict.plan for one in pipeline.invocations]


def is_shell(verdict: Verdict) -> bool:
    return verdict.plan is not None and arguments_of(verdict)[0][:2] == ("sh", "-c")


class TestReadCommands:
    def test_every_read_command_runs_without_arguments(self, decide):
        for name in READERS:
            assert decide(name).plan, name

    @pytest.mark.parametrize("name", ["rm x", "git status", "python3 x", "make", "tar tf x"])
    def test_other_programs_are_refused(self, decide, name):
        assert "not among the allowed" in decide(name).reason

    def test_the_read_commands_do_not_apply_with_a_list(self, decide):
        assert not decide("ls", allow=("make",)).plan
        assert not decide("ls", allow=()).plan
        assert decide("ls", allow=("make", "@read")).plan

    def test_wildcards_are_expanded_without_hidden_files(self, decide):
        assert arguments_of(decide("cat *.txt s*/*")) == [
            ("cat", "--", "a.txt", "secret.txt", "sub/b.txt")
        ]

    def test_a_file_named_like_an_option_is_not_an_option(self, decide):
        assert arguments_of(decide("cat ?n")) == [("cat", "--", "./-n")]

    def test_a_wildcard_without_a_match_is_unchanged(self, decide):
        assert arguments_of(decide("ls *.rs")) == [("ls", "--", "*.rs")]

    def test_a_relative_entry_of_path_finds_no_program(self, decide, place):
        (place.directory / "whoops").touch(mode=0o755)

        assert "no program" in decide("whoops", allow=("whoops x",)).reason

    def test_a_program_by_its_path_is_the_same_program(self, decide, place):
        programs = place.environment["PATH"].rsplit(":", 1)[1]

        assert decide(f"{programs}/ls").plan
        assert not decide("./run.sh").plan

    def test_a_refusal_contains_advice(self, decide):
        assert "simple commands" in decide("echo $(ls)").reason
        assert "`rm -rf y`" in decide("ls; rm -rf y").reason
        assert "`.env`" in decide("cat .env").reason
        assert "`-o`" in decide("sort -o x a.txt").reason

    @pytest.mark.parametrize("line", ["ls .*", "ls .[a-z]*", "ls */../*", "ls /etc/*", "ls ../*"])
    def test_wildcards_match_visible_files_of_the_folder_only(self, decide, line):
        assert not decide(line).plan

    @pytest.mark.parametrize(
        "line",
        [
            "ls " + "a" * 10_000,
            "true;" * 60,
            "ls" + " *" * 4000,
            "ls " + "[" * 8000,
            "cat " + "a/" * 4000,
            "ls " + "*/" * 4000,
        ],
    )
    def test_a_line_of_any_size_is_decided(self, decide, line):
        verdict = decide(line)

        assert verdict.plan or verdict.reason


class TestLists:
    @pytest.mark.parametrize(
        ("entry", "line"),
        [
            ("make", "make test"),
            ("make", "make -j4 test"),
            ("git push", "git push origin main"),
            ("npm run *", "npm run build"),
            ("npm*", "npm run build"),
            ("pytest -q", "pytest -q tests"),
            ("pytest -*", "pytest -q --lf sub"),
            ("make *", "make a; make b"),
            ("./run.sh", "./run.sh a.txt"),
            ("touch *.txt", "touch new.txt"),
            ("cat /etc/hosts", "cat /etc/hosts a.txt"),
            ("cat .env", "cat .env"),
            ("git log*", "git log -5 --oneline"),
            ("git *", "git status"),
            ("python3 run.py", "python3 run.py a.txt"),
            ("python3 -m pytest", "python3 -m pytest sub"),
        ],
    )
    def test_an_entry_allows(self, decide, entry, line):
        verdict = decide(line, allow=(entry,))

        assert verdict.plan, verdict.reason
        assert not is_shell(verdict)

    @pytest.mark.parametrize(
        ("entry", "line"),
        [
            ("cat", "cat a.txt; rm -rf y"),
            ("cat *", "cat a.txt && rm y"),
            ("git *", "git log; rm y"),
            ("git *", "git push"),
            ("git *", "git -c x=y status"),
            ("git push", "git push --force"),
            ("make test", "make"),
            ("make", "makefile"),
            ("npm *", "npm"),
            ("npm *", "npm --eval x"),
            ("touch *.txt", "touch a.txt b.sh"),
            ("touch", "touch .hidden"),
            ("touch", "touch ../x"),
            ("touch", "touch away/x"),
            ("touch *", "touch -r x"),
            ("pytest -*", "pytest --rootdir=/etc"),
            ("pytest -*", "pytest -c/etc/passwd"),
            ("cp", "cp a.txt x=/etc/passwd"),
            ("curl", "curl @.env"),
            ("yq", "yq 'load(\"/x.json\")' a.txt"),
            ("yq *", "yq 'load(\"/x.json\")' a.txt"),
            ("duckdb", "duckdb a.txt .shell"),
            ("gmake", "gmake X=y"),
            ("./*", "./away/x"),
            ("sort -n*", "sort -n -o x a.txt"),
            ("pytest -*", "pytest -no../x"),
            ("pytest -*", "pytest -no.x"),
            ("python3 * run.sh", "python3 a.txt run.sh"),
            ("sqlite3 a.txt", "sqlite3 a.txt .shell"),
            ("cat .env", "cat .env sub/.env"),
        ],
    )
    def test_an_entry_does_not_allow(self, decide, entry, line):
        assert not decide(line, allow=(entry,)).plan

    def test_another_installation_of_a_program_has_its_rules(self, decide, tmp_path):
        sed, curl = tmp_path / "sed", tmp_path / "curl"
        for program in (sed, curl):
            program.touch(mode=0o755)

        assert not decide(f"{sed} -f a.txt", allow=(str(sed),)).plan
        ((_, *options),) = arguments_of(decide(f"{sed} '1e id' a.txt", allow=(str(sed),)))
        assert options == ["--sandbox", "--", "1e id", "a.txt"]
        ((_, *options),) = arguments_of(decide(f"{curl} http://x/", allow=(str(curl),)))
        assert options == ["--proto", "-file", "http://x/"]

    @pytest.mark.parametrize(
        ("entry", "line", "arguments"),
        [
            ("curl", "curl http://x/", ("curl", "--proto", "-file", "http://x/")),
            ("curl file:x", "curl file:x", ("curl", "file:x")),
        ],
    )
    def test_curl_reads_files_only_where_an_entry_names_them(self, decide, entry, line, arguments):
        plan = decide(line, allow=(entry,)).plan

        assert [one.arguments for pipe in plan for one in pipe.invocations] == [arguments]

    @pytest.mark.parametrize(
        "line", ["echo x > y", "env A=1 make", "cat $HOME/x", "sh -c 'ls'", "ls; ls"]
    )
    def test_a_line_that_the_list_contains_word_for_word_runs_in_a_shell(self, decide, line):
        verdict = decide(f" {line} ", allow=(line,))

        assert is_shell(verdict)
        assert arguments_of(verdict) == [("sh", "-c", line)]
        assert not decide(f"{line}; ls", allow=(line,)).plan
        assert not decide(f"{line}2", allow=(line,)).plan

    @pytest.mark.parametrize(
        "name", ["env", "sh", "xargs", "timeout", "nice", "sudo", "busybox", "ed", "sqlite3"]
    )
    @pytest.mark.parametrize("entry", ["{} *", "{}", "{}*"])
    def test_a_wrapper_runs_only_word_for_word(self, decide, place, name, entry):
        programs = Path(place.environment["PATH"].rsplit(":", 1)[1])
        (programs / name).touch(mode=0o755)

        refused = decide(f"{name} ls", allow=(entry.format(name),))

        assert "runs other commands" in refused.reason

    @pytest.mark.parametrize("name", ["python3", "python3.11", "node"])
    @pytest.mark.parametrize("entry", ["{} *", "{}", "{} -c", "{} -m", "{}*"])
    def test_an_interpreter_runs_only_a_script_that_the_list_names(self, decide, name, entry):
        refused = decide(f"{name} -c x", allow=(entry.format(name),))

        assert not refused.plan
        assert not decide(f"{name} x.py", allow=(entry.format(name),)).plan

    def test_a_bare_star_without_deny_runs_anything_in_a_shell(self, decide):
        assert is_shell(decide("cd /; rm -rf $x > y", allow=("*",)))
        assert not decide("", allow=("*",)).plan

    @pytest.mark.parametrize("entry", ["python3 *", "env *", "sh *", "@read"])
    def test_a_pattern_is_not_run_in_a_shell(self, decide, entry):
        assert not decide(entry, allow=(entry,)).plan

    def test_a_bare_star_is_not_run_in_a_shell(self, decide):
        assert not decide("*", allow=("*",), deny=("rm",)).plan

    def test_an_entry_with_shell_syntax_allows_nothing_but_itself(self, decide):
        assert not decide("echo x", allow=("echo x > y",)).plan


class TestDeny:
    @pytest.mark.parametrize(
        ("deny", "line"),
        [
            ("cat", "cat x"),
            ("cat *", "ls; cat x"),
            ("git push", "git push"),
            ("git push", "git -C x push"),
            ("rm", "sh -c 'rm x'"),
            ("rm *", "echo $(rm x)"),
            ("rm*", "rm -rf x"),
            ("rm", "{bin}/rm x"),
            ("*", "ls"),
            ("*", "echo $(ls)"),
            ("cat secret.txt", "cat -n secret.txt"),
            ("cat secret.txt", "cat ./secret.txt"),
            ("cat secret.txt", "cat -- secret.txt"),
            ("cat secret.txt", "cat sub/../secret.txt"),
            ("cat secret.txt", "cat secret.tx?"),
            ("cat secret.txt", "cat s*"),
            ("cat secret.txt", "cat link"),
            ("cat secret.txt", "cat away/folder/secret.txt"),
            ("cat secret.txt", "cat {folder}/secret.txt"),
            ("*secret*", "ls link"),
            ("*secret*", "ls secr?t.txt"),
            ("secret.txt", "head link"),
            ("secret.txt", "head ./secr?t.txt"),
            ("python3", "{bin}/python3.11 x"),
            ("make", "gmake x"),
        ],
    )
    def test_deny_wins_over_every_list(self, decide, place, deny, line):
        programs = place.environment["PATH"].rsplit(":", 1)[1]
        line = line.format(bin=programs, folder=place.directory)

        for allow in (("*", line), ("*",), (line,)):
            assert "denied" in decide(line, allow=allow, deny=(deny,)).reason

    @pytest.mark.parametrize("line", ["{bin}/r[m] x", "{bin}/r? x", "r* x"])
    def test_a_program_is_never_a_wildcard(self, decide, place, line):
        programs = place.environment["PATH"].rsplit(":", 1)[1]

        verdict = decide(line.format(bin=programs), allow=("*",), deny=("rm",))

        assert "wildcard" in verdict.reason

    @pytest.mark.parametrize(
        "line",
        ["cd sub", "A=1 make", "env make", "xargs make", "sh -c ls", "ls $(pwd)", "ls > x", "(ls)"],
    )
    def test_with_deny_a_star_runs_no_wrapper_and_no_shell_syntax(self, decide, line):
        assert not decide(line, allow=("*",), deny=("rm",)).plan

    @pytest.mark.parametrize(
        "line", ["sort -o x a.txt", "git log --output=x", "tar xf x", "find . -delete"]
    )
    def test_with_deny_a_star_allows_no_option_that_writes(self, decide, line):
        assert not decide(line, allow=("*",), deny=("rm",)).plan

    @pytest.mark.parametrize(
        "line",
        ["ls -a", "cat .env", "cat /etc/passwd", "touch x", "npm run --x", "git push -f", "make"],
    )
    def test_with_deny_a_star_allows_the_rest(self, decide, line):
        verdict = decide(line, allow=("*",), deny=("rm",))

        assert verdict.plan, verdict.reason
        assert not is_shell(verdict)

    def test_a_denied_word_inside_another_word_denies_nothing(self, decide):
        assert decide("ls format", deny=("rm",)).plan
        assert decide("ls catalog", deny=("cat*",)).plan


@given(st.lists(st.sampled_from(["ls", "rm x", "cat a"]), min_size=1, max_size=5), st.data())
def test_a_line_is_allowed_only_if_each_command_is(place, commands, data):
    joins = [data.draw(st.sampled_from([";", " && ", " || ", "|", "\n"])) for _ in commands]
    line = "".join(c + j for c, j in zip(commands, [*joins[1:], ""], strict=True))

    rules = CommandRules()
    expected = all(check_permission(command, rules, place).plan for command in commands)
    assert bool(check_permission(line, rules, place).plan) == expected


UNQUOTED = st.text(st.characters(exclude_characters="'\""), max_size=20)


@given(UNQUOTED, UNQUOTED)
def test_a_line_is_not_allowed_by_its_start(place, before, after):
    rules = CommandRules(allow=("cat", "cat *"))

    assert not check_permission(f"cat {before}; rm {after}", rules, place).plan

"""The environment and the common options of a command."""

import os

import click
import pytest

from cllm.cli.inputs import (
    LazyGroup,
    OptionError,
    command_line,
    current_environment,
    decode_argument,
    read_system_option,
    resolve_alias,
    store_options,
)
from cllm.core.errors import UsageError


def test_the_environment_has_home_directory_and_variables(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("CLLM_MODEL", "a/b")

    env = current_environment()

    assert (str(env.home), env.directory) == ("/home/ann", tmp_path)
    assert env.environment["CLLM_MODEL"] == "a/b"


def test_without_home_the_folder_of_the_user_is_used(monkeypatch):
    monkeypatch.delenv("HOME")

    assert current_environment().home.is_absolute()


def test_a_deleted_directory_is_an_error(monkeypatch, tmp_path):
    folder = tmp_path / "deleted"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    with pytest.raises(UsageError, match="current directory"):
        current_environment()


def test_bytes_that_are_not_utf8_are_replaced():
    assert decode_argument(os.fsdecode(b"a\xff")) == "a\ufffd"


def test_options_without_a_value_are_no_settings():
    options = {"system": None, "system_file": None, "cllm_path": None, "trust": True}

    line = command_line(options, {"model": None, "stream": False})

    assert line.values == {"stream": False}
    assert line.system is None
    assert line.trust


class TestSystemOption:
    def test_a_text(self):
        prompt = read_system_option("Be brief.", None)

        assert prompt is not None
        assert (prompt.text, prompt.source, prompt.explicit) == ("Be brief.", "--system", True)

    def test_a_file(self, tmp_path):
        path = tmp_path / "prompt.txt"
        path.write_text("Be brief.\n\n", encoding="utf-8")

        prompt = read_system_option(None, path)

        assert prompt is not None
        assert (prompt.text, prompt.source) == ("Be brief.", "--system-file")

    def test_neither(self):
        assert read_system_option(None, None) is None

    def test_both_are_refused(self, tmp_path):
        with pytest.raises(UsageError, match="not both"):
            read_system_option("Be brief.", tmp_path)

    @pytest.mark.parametrize(
        ("content", "reason"), [(None, "No such file"), (b"\xff", "not UTF-8 text")]
    )
    def test_an_unreadable_file_is_an_error_with_the_reason(self, tmp_path, content, reason):
        path = tmp_path / "prompt.txt"
        if content is not None:
            path.write_bytes(content)

        with pytest.raises(UsageError, match=reason):
            read_system_option(None, path)

    def test_a_folder_is_refused(self, tmp_path):
        with pytest.raises(UsageError, match="Is a directory"):
            read_system_option(None, tmp_path)


RECEIVED: list[dict[str, object]] = []


@click.command(name="inner")
@click.argument("words", nargs=-1)
@click.option("--json", "as_json", is_flag=True)
@store_options
def inner(line, **options) -> None:
    RECEIVED.append({"line": line, **options})


class TestLazyGroup:
    @pytest.fixture
    def run(self):
        @click.group(
            cls=LazyGroup, name="g", rows={"inner": (f"{__name__}:inner", "Do it."), "x": ("a", "")}
        )
        @click.option("--store")
        @click.option("--trust", is_flag=True)
        def group(**_options: object) -> None:
            """Do nothing."""

        def run(*args: str) -> dict[str, object]:
            RECEIVED.clear()
            group.main(list(args), standalone_mode=False)
            (received,) = RECEIVED
            return received

        return run

    @pytest.mark.parametrize(
        "args",
        [
            ("--store", "json:a", "--json", "inner", "--trust", "one"),
            ("inner", "one", "--store", "json:a", "--json", "--trust"),
            ("--trust", "inner", "one", "--json", "--store=json:a"),
        ],
    )
    def test_options_can_be_before_and_after_the_name(self, run, args):
        received = run(*args)

        assert received["line"].values == {"store": "json:a"}
        assert received["line"].trust is True
        assert (received["as_json"], received["words"]) == (True, ("one",))

    def test_the_value_of_an_option_is_not_the_name(self, run):
        assert run("--store", "x", "inner")["line"].values == {"store": "x"}

    def test_a_later_name_is_an_argument(self, run):
        assert run("inner", "x", "inner")["words"] == ("x", "inner")

    def test_an_unknown_name_is_a_usage_error(self, run):
        with pytest.raises(OptionError, match="There is no command 'g other'"):
            run("other")

    def test_an_alias_can_follow_options(self):
        @click.group(cls=LazyGroup, name="g", rows={"list": (f"{__name__}:inner", "")})
        @click.option("--store")
        def group(**_options: object) -> None:
            """Do nothing."""

        RECEIVED.clear()
        group.main(["--store", "json:a", "ls", "one"], standalone_mode=False)
        (received,) = RECEIVED
        assert received["words"] == ("one",)


@pytest.mark.parametrize(
    ("name", "commands", "resolved"),
    [
        ("ls", ["list", "show"], "list"),
        ("rm", ["delete"], "delete"),
        ("rm", ["remove"], "remove"),
        ("rm", ["show"], "rm"),
        ("show", ["show"], "show"),
    ],
)
def test_an_alias_is_the_command_that_the_group_has(name, commands, resolved):
    assert resolve_alias(name, commands) == resolved

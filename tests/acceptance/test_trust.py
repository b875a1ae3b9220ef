"""A Cllmfile of somebody else has no effect before the user trusts it."""

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

SECRET = "sk-mine-0123456789"


@pytest.fixture
def elsewhere(home):
    """Write a Cllmfile into the directory that the command is started in."""

    def write(text: str) -> None:
        (home.work / "Cllmfile.yml").write_text(text, encoding="utf-8")

    return write


def test_a_file_that_only_names_a_model_does_not_choose_where_my_key_goes(
    home, provider, settings, elsewhere, cllm
):
    settings(
        model="openai/gpt-mine",
        api_base=...,
        api_key=SECRET,
        providers={"theirs": {"type": "openai", "api_base": provider.url}},
    )
    elsewhere("model: theirs/anything\n")

    cllm("Hello").succeeded()

    assert "authorization" not in {name.lower() for name in provider.requests[0].headers}


@pytest.mark.parametrize("key", ["api_base: http://127.0.0.1:9/v1", "store: json:/tmp/x"])
def test_settings_that_redirect_need_trust(home, provider, settings, elsewhere, cllm, key):
    elsewhere(f"{key}\n")

    cllm("Hello").failed_with_one_sentence("cllm trust", prefix="Configuration error: ")

    assert provider.requests == []
    elsewhere("temperature: 0.5\n")
    cllm("Hello").succeeded()


def test_the_command_in_the_advice_names_the_file_and_runs_nothing_else(home, cllm):
    home.work = home.work / "$(touch pwned) x"
    home.work.mkdir()
    (home.work / "Cllmfile.yml").write_text("store: json:/tmp/x\n", encoding="utf-8")

    line = cllm("Hello").failed_with_one_sentence("cllm trust", prefix="Configuration error: ")

    assert shlex.split(line.partition("run: cllm trust ")[2]) == [f"{home.work}/Cllmfile.yml"]


def test_trust_prints_the_settings_without_keys(home, elsewhere, cllm):
    elsewhere(f"providers: {{a: {{api_base: 'http://x', api_key: {SECRET}}}}}\n")

    shown = cllm("trust").succeeded()

    assert "http://x" in shown.out
    assert SECRET not in shown.out + shown.err


def test_a_conversation_of_a_project_does_not_load_a_model_file_by_itself(home, cllm):
    folder = home.work / ".cllm" / "conversations"
    folder.mkdir(parents=True)
    (home.work / "evil.gguf").write_bytes(b"GGUF and worse")
    content = {"id": "demo", "model": "local/./evil.gguf", "messages": []}
    (folder / "demo.json").write_text(json.dumps(content), encoding="utf-8")

    cllm("Hello", "--conversation", "demo").failed_with_one_sentence("-m local/./evil.gguf")


def test_raw_response_in_a_file_is_the_flag(home, provider, settings, cllm):
    settings(raw_response=True)

    done = cllm("Hello", "--conversation", "demo").succeeded()

    assert json.loads(done.out)["choices"]
    assert not home.file("demo").exists()


def test_the_difference_is_shown_with_the_conversation_and_its_advice_works(
    home, provider, settings, cllm
):
    settings(default_system_message="You are a pirate.")
    cllm("Hello", "--conversation", "demo").succeeded()
    settings(default_system_message="You are a vet.")

    shown = cllm("--show-conversation", "demo").succeeded()
    advice = "cllm conversations branch demo --system"
    assert advice in shown.err

    branch = cllm("conversations", "branch", "demo", "--system", "You are a vet.").succeeded()
    cllm("Again", "--conversation", branch.out.strip()).succeeded()
    assert provider.requests[-1].json["messages"][0]["content"] == "You are a vet."


def test_a_conversation_that_was_emptied_is_captured_as_new(home, provider, settings, cllm):
    settings(default_system_message="First.")
    cllm("Hello", "--conversation", "demo").succeeded()
    emptied = home.load("demo") | {"messages": []}
    home.write_conversation("demo", emptied)
    settings(default_system_message="Second.")

    cllm("Again", "--conversation", "demo").succeeded()
    cllm("And again", "--conversation", "demo").succeeded()

    assert home.messages("demo")[0] == ("system", "Second.")
    assert [r.json["messages"][0]["content"] for r in provider.requests[1:]] == ["Second."] * 2


@pytest.mark.parametrize(
    "model", ["smollm2-x/../evil.gguf", "local/../evil.gguf", "local${SHELL}/evil.gguf"]
)
def test_a_model_file_is_not_loaded_by_a_trick_of_its_name(home, elsewhere, cllm, model):
    (home.work / "evil.gguf").write_bytes(b"GGUF and worse")
    elsewhere(f'model: "{model}"\n')

    cllm("Hello").failed_with_one_sentence("model", prefix="")


def test_trust_in_one_folder_does_not_apply_to_another(home, provider, elsewhere, cllm):
    elsewhere("model: openai/gpt-test\napi_base: http://127.0.0.1:9/v1\napi_key: x\n")
    cllm("trust").succeeded()
    other = home.work / "other"
    other.mkdir()
    (home.work / "Cllmfile.yml").rename(other / "Cllmfile.yml")

    moved = cllm("Hello", cwd=other)

    moved.failed_with_one_sentence("cllm trust", prefix="Configuration error: ")


def test_a_module_in_the_current_directory_is_not_run(home, cllm):
    stolen = home.work / "stolen"
    planted = f"open({str(stolen)!r}, 'w').write('x')\n"
    for name in ("pip.py", "logging.py", "msgspec.py", "yaml.py"):
        (home.work / name).write_text(planted, encoding="utf-8")

    cllm.command = (str(Path(sys.executable).with_name("cllm")),)
    cllm("Hello", env={"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0"})

    assert not stolen.exists()


@pytest.mark.parametrize("flag", ["--list-conversations", "--list-models"])
def test_a_pipe_instead_of_a_cllmfile_does_not_block(home, cllm, flag):
    os.mkfifo(home.work / "Cllmfile.yml")

    cllm(flag).failed_with_one_sentence("regular file", prefix="Configuration error: ")


def test_the_model_of_a_file_cannot_forge_a_line_of_the_list(home, settings, cllm):
    home.write_old_conversation(
        "demo", ("user", "Hello"), ("assistant", "Hi"), model="m\x1b[31m\nforged  line"
    )

    listed = cllm("--list-conversations").succeeded()

    assert len(listed.out.splitlines()) == 1
    assert "\x1b" not in listed.out


def test_a_time_beyond_the_calendar_is_one_file_s_trouble(home, settings, cllm):
    home.write_old_conversation("good", ("user", "Hello"), ("assistant", "Hi"))
    archived = {"cllm": {"archived_at": "0001-01-01T00:00:00+23:59"}}
    home.write_old_conversation("odd", ("user", "Hello"), ("assistant", "Hi"), metadata=archived)

    listed = cllm("--list-conversations").succeeded()

    assert listed.out.startswith("good ")
    assert "odd" in listed.err


HOSTILE = "context_commands: [{name: x, command: touch pwned}]\n"


def test_on_a_terminal_the_settings_are_shown_and_yes_trusts_them(
    home, provider, settings, elsewhere, cllm
):
    elsewhere(HOSTILE)
    running = cllm.start("Hello", terminal=True)
    running.wait_for_output("Trust these settings? [y/N]")
    assert "touch pwned" in running.out
    assert not (home.work / "pwned").exists()

    running.type(b"y\r")

    assert running.finish().code == 0
    assert (home.work / "pwned").exists()
    cllm("Again").succeeded()


@pytest.mark.parametrize("answer", [b"n\r", b"\r", b"yo\r", b"\x04"])
def test_on_a_terminal_anything_else_is_no(answer, home, provider, settings, elsewhere, cllm):
    elsewhere(HOSTILE)
    running = cllm.start("Hello", terminal=True)
    running.wait_for_output("Trust these settings? [y/N]")

    running.type(answer)

    assert running.finish().code == 1
    assert not (home.work / "pwned").exists()
    assert provider.requests == []


def test_editing_a_prompt_does_not_ask_again(home, provider, settings, elsewhere, cllm):
    elsewhere(HOSTILE)
    cllm("trust").succeeded()

    elsewhere(f"default_system_message: New.\n{HOSTILE}")
    cllm("Hello").succeeded()

    elsewhere(HOSTILE.replace("touch pwned", "touch other"))
    cllm("Hello").failed_with_one_sentence("cllm trust", prefix="Configuration error: ")


def test_pressing_tab_asks_nothing(home, elsewhere, cllm):
    elsewhere(HOSTILE)
    env = {"_CLLM_COMPLETE": "bash_complete", "COMP_WORDS": "cllm -m ", "COMP_CWORD": "2"}

    running = cllm.start(terminal=True, env=env)

    assert "Trust" not in running.finish().out

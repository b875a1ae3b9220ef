"""Prompt templates: `-T NAME` and `cllm templates`."""

import json
import stat
from typing import Any

import pytest
import yaml
from tests.fake_provider import FakeProvider

TRANSLATE = {
    "prompt": "Translate to {{ language }}:\n{{ input }}\nEnd.",
    "variables": {"language": "French"},
    "temperature": 0.1,
    "default_system_message": "You translate.",
}


@pytest.fixture
def save(home):
    """Write a template of the user, or of the current directory."""

    def write(name: str, content: object, *, local: bool = False) -> str:
        folder = (home.work if local else home.path) / ".cllm" / "templates"
        folder.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else yaml.safe_dump(content)
        (folder / f"{name}.yml").write_text(text, encoding="utf-8")
        return str(folder / f"{name}.yml")

    return write


def last_request(provider: FakeProvider) -> tuple[list[str], dict[str, Any]]:
    body = provider.requests[-1].json
    return [message["content"] for message in body["messages"]], body


def test_the_input_and_the_variables_are_filled_in(cllm, settings, provider, save):
    save("translate", TRANSLATE)
    cllm("-T", "translate", "Good", stdin=b"morning\n").succeeded()
    texts, body = last_request(provider)
    assert texts == ["You translate.", "Translate to French:\nGood\nmorning\nEnd."]
    assert body["temperature"] == 0.1
    cllm("-T", "translate", "Hi", "--var", "language=German").succeeded()
    assert last_request(provider)[0][1] == "Translate to German:\nHi\nEnd."


def test_the_flags_of_the_command_line_have_priority(cllm, settings, provider, save):
    save("translate", {**TRANSLATE, "model": "openai/other"})
    cllm("-T", "translate", "Hi", "-m", "openai/gpt-test", "-t", "0.5", "--system", "S").succeeded()
    texts, body = last_request(provider)
    assert (texts[0], body["model"], body["temperature"]) == ("S", "gpt-test", 0.5)


def test_without_the_name_input_the_text_follows_the_prompt(cllm, settings, provider, save):
    save("review", {"prompt": "Review this diff.\n"})
    cllm("-T", "review", stdin=b"- a\n+ b\n").succeeded()
    assert last_request(provider)[0] == ["Review this diff.\n- a\n+ b"]
    cllm("-T", "review").succeeded()
    assert last_request(provider)[0] == ["Review this diff."]


def test_a_large_input_is_filled_in(cllm, settings, provider, save):
    save("translate", TRANSLATE)
    text = "wörter " * 100_000
    cllm("-T", "translate", stdin=text.encode()).succeeded()
    assert last_request(provider)[0][1] == f"Translate to French:\n{text}\nEnd."


def test_the_input_is_no_template(cllm, settings, provider, save):
    save("translate", TRANSLATE)
    cllm("-T", "translate", "{{ language }} ${HOME} {% for").succeeded()
    assert "\n{{ language }} ${HOME} {% for\n" in last_request(provider)[0][1]


def test_a_template_of_the_package_needs_no_file(cllm, settings, provider):
    cllm("-T", "summarize", stdin=b"A report.").succeeded()
    texts, _ = last_request(provider)
    assert texts[0].startswith("You summarize.")
    assert texts[1] == "A report."


def test_a_template_of_the_project_replaces_that_of_the_user(cllm, settings, provider, save):
    save("greet", {"prompt": "Greet me."})
    save("greet", {"prompt": "Greet us."}, local=True)
    cllm("-T", "greet").succeeded()
    assert last_request(provider)[0] == ["Greet us."]


def test_a_template_of_the_project_needs_trust_to_run_commands(cllm, settings, provider, save):
    commands = [{"name": "Day", "command": "date"}]
    save("greet", {"prompt": "Greet.", "context_commands": commands}, local=True)
    refused = cllm("-T", "greet")
    refused.failed_with_one_sentence("context_commands", "trust", prefix="Configuration error: ")
    assert provider.requests == []
    cllm("-T", "greet", "--trust").succeeded()


def test_a_conversation_stores_the_filled_in_prompt(cllm, settings, save, home):
    save("translate", TRANSLATE)
    cllm("-T", "translate", "Hi", "--conversation", "demo").succeeded()
    stored = json.loads((home.path / ".cllm/conversations/demo.json").read_text())
    assert stored["messages"][1]["content"] == "Translate to French:\nHi\nEnd."


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"prompt": "{{ missing }}"}, ("missing", "--var")),
        ({"prompt": "{{ lang }}", "variables": {"lang": None}}, ("lang", "--var lang=VALUE")),
        ({"prompt": "{% include 'x' %}"}, ("not allowed",)),
        ({"prompt": "{{ input * 1000000000 }}"}, ("multiply",)),
        ({"prompt": ["a"]}, ("prompt", "must be")),
        ("prompt: [", ("invalid YAML",)),
        ({}, ("No prompt provided",)),
    ],
)
def test_a_bad_template_is_one_sentence(cllm, settings, provider, save, content, words):
    save("bad", content)
    result = cllm("-T", "bad")
    assert result.code == 1
    assert len(result.warnings) == 1
    assert all(word in result.err for word in words), result.report()
    assert provider.requests == []


@pytest.mark.parametrize("name", ["nothing", "../x", "", "default"])
def test_an_unknown_template_names_the_list(cllm, settings, name):
    cllm("-T", name, "Hi").failed_with_one_sentence("cllm templates list")


def test_list_and_show(cllm, save):
    path = save("greet", "# Greets.\nprompt: Greet me.\n")
    save("other", {"prompt": "Second line follows.\nx"})
    listed = cllm("templates", "list").succeeded().out
    assert f"Greets.  ({path})" in listed
    assert "Second line follows." in listed
    rows = json.loads(cllm("templates", "list", "--json").succeeded().out)
    assert {row["name"] for row in rows} >= {"greet", "other", "summarize", "code-review"}
    assert "default" not in {row["name"] for row in rows}
    assert cllm("templates", "show", "greet").succeeded().out == "# Greets.\nprompt: Greet me.\n"
    cllm("templates", "show", "nothing").failed_with_one_sentence("cllm templates list")


def test_piped_content_becomes_the_template(cllm, settings, provider, home):
    cllm("templates", "edit", "greet", stdin=b"prompt: Greet me.\n").succeeded()
    path = home.path / ".cllm/templates/greet.yml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    cllm("-T", "greet").succeeded()
    assert last_request(provider)[0] == ["Greet me."]
    for content in (b"prompt: [", b"", b"prompt: [a]", b"x: " + b"a" * (1 << 20)):
        refused = cllm("templates", "edit", "greet", stdin=content)
        assert (refused.code, len(refused.warnings)) == (1, 1), refused.report()
        assert path.read_bytes() == b"prompt: Greet me.\n"
    assert [file.name for file in path.parent.iterdir()] == ["greet.yml"]
    cllm("templates", "edit", "../x", stdin=b"prompt: a").failed_with_one_sentence(code=2)


def test_an_edited_template_of_the_project_is_trusted(cllm, settings, provider):
    content = yaml.safe_dump(TRANSLATE).encode()
    cllm("templates", "edit", "translate", "--local", stdin=content).succeeded()
    cllm("-T", "translate", "Hi").succeeded()
    assert len(provider.requests) == 1


def test_the_editor_changes_the_template(cllm, home, tmp_path):
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "prompt: Edited." > "$1"\n')
    editor.chmod(0o700)
    env = {"EDITOR": str(editor)}
    result = cllm.on_terminal("templates", "edit", "greet", env=env)
    assert result.code == 0, result.report()
    path = home.path / ".cllm/templates/greet.yml"
    assert path.read_text() == "prompt: Edited.\n"
    editor.write_text('#!/bin/sh\necho "prompt: [" > "$1"\n')
    result = cllm.on_terminal("templates", "edit", "greet", env=env)
    assert result.code == 1
    assert "your changes are in" in result.out
    assert path.read_text() == "prompt: Edited.\n"
    assert (path.parent / ".greet.yml.draft.yml").read_text() == "prompt: [\n"

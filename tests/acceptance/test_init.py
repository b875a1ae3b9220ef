"""`cllm init`: a first Cllmfile, from a template, trusted because cllm wrote it."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from cllm.cli.init import template_names

EXPECTED = [
    "code-review",
    "context-demo",
    "creative",
    "debug",
    "extraction",
    "summarize",
    "task-parser",
]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_templates_are_in_the_package():
    assert template_names() == EXPECTED


def test_they_are_in_the_wheel_too(tmp_path):
    top = Path(__file__).resolve().parents[2]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=top,
        check=True,
        capture_output=True,
        timeout=60,
    )

    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    assert {f"cllm/templates/{name}.yml" for name in EXPECTED} <= set(names)


def test_templates_are_listed_with_a_description(cllm):
    lines = cllm("init", "--list-templates").succeeded().out.splitlines()

    assert [line.split()[0] for line in lines] == EXPECTED
    assert all(len(line.split()) > 3 for line in lines)


def test_without_options_it_is_for_this_folder(cllm, mode):
    result = cllm("init").succeeded()

    file = cllm.home.work / ".cllm" / "Cllmfile.yml"
    assert str(file) in result.out
    assert mode(file) == 0o600


@pytest.mark.parametrize("template", [None, *EXPECTED])
def test_a_file_has_no_model_unless_the_option_is_used(template, cllm):
    chosen = () if template is None else ("--template", template)
    cllm("init", *chosen).succeeded()

    file = cllm.home.work / ".cllm" / "Cllmfile.yml"
    assert "model" not in (read(file) or {})
    cllm("init", *chosen, "--force", "--model", "openai/gpt-4o").succeeded()
    assert read(file)["model"] == "openai/gpt-4o"


def test_the_model_of_the_settings_and_of_the_environment_stays_in_force(provider, settings, cllm):
    settings(model="openai/mine")
    cllm("init").succeeded()

    cllm("Hello").succeeded()
    cllm("Hello", env={"CLLM_MODEL": "openai/of-the-environment"}).succeeded()
    cllm("init", "--force", "--model", "openai/of-the-folder").succeeded()
    cllm("Hello").succeeded()
    cllm("Hello", env={"CLLM_MODEL": "openai/of-the-environment"}).succeeded()
    (cllm.home.work / "named.Cllmfile.yml").write_text("model: openai/named", encoding="utf-8")
    cllm("Hello", "-C", "named").succeeded()
    cllm("Hello", "-C", "named", env={"CLLM_MODEL": "openai/of-the-environment"}).succeeded()

    asked = [request.json["model"] for request in provider.requests]
    assert asked == [
        "mine",
        "of-the-environment",
        "of-the-folder",
        "of-the-environment",
        "named",
        "of-the-environment",
    ]


def test_global_is_for_everywhere(cllm):
    cllm("init", "--global", "--model", "openai/gpt-4o").succeeded()

    assert read(cllm.home.path / ".cllm" / "Cllmfile.yml")["model"] == "openai/gpt-4o"
    assert not (cllm.home.work / ".cllm").exists()
    assert not (cllm.home.work / ".gitignore").exists()


def test_both_can_be_made_at_once(cllm):
    cllm("init", "--global", "--local").succeeded()

    assert (cllm.home.path / ".cllm" / "Cllmfile.yml").exists()
    assert (cllm.home.work / ".cllm" / "Cllmfile.yml").exists()


def test_the_options_are_in_the_file(cllm):
    cllm(
        "init",
        "--model=anthropic/claude-sonnet-4-5",
        "--temperature=0",
        "--max-tokens=50",
        "--timeout=7.5",
        "--system=Be: brief # really",
        "--template=summarize",
    ).succeeded()

    assert read(cllm.home.work / ".cllm" / "Cllmfile.yml") == {
        "model": "anthropic/claude-sonnet-4-5",
        "temperature": 0.0,
        "max_tokens": 50,
        "timeout": 7.5,
        "default_system_message": "Be: brief # really",
    }


@pytest.mark.parametrize("template", EXPECTED)
def test_a_template_works_unchanged(template, provider, settings, cllm):
    settings(providers={"fake": {"type": "openai", "api_base": provider.url, "api_key": "k"}})
    cllm("init", "--template", template, "--model", "fake/m").succeeded()
    answer = {
        "extraction": json.dumps({"people": [], "places": [], "dates": [], "amounts": []}),
        "task-parser": json.dumps({"tasks": []}),
    }
    provider.queue_reply(answer.get(template, "Fine."))

    result = cllm("Go.", "--conversation", "demo").succeeded()

    written = read(cllm.home.work / ".cllm" / "Cllmfile.yml")
    prompt = written["default_system_message"].strip()
    assert provider.requests[0].message_pairs[0][1].startswith(prompt)
    if "context_commands" in written:
        assert "--- Context" in provider.requests[0].message_pairs[0][1]
    assert result.out


def test_an_existing_file_is_not_changed_without_force(cllm):
    cllm("init", "--model", "openai/mine").succeeded()
    before = cllm.home.snapshot(cllm.home.work)

    cllm("init").failed_with_one_sentence("--force")

    assert cllm.home.snapshot(cllm.home.work) == before


def test_force_renames_the_old_file(cllm):
    cllm("init", "--model", "openai/mine").succeeded()

    cllm("init", "--force", "--model", "openai/new").succeeded()

    folder = cllm.home.work / ".cllm"
    assert read(folder / "Cllmfile.yml")["model"] == "openai/new"
    assert read(folder / "Cllmfile.yml.old")["model"] == "openai/mine"


def test_force_overwrites_no_earlier_backup(cllm):
    for model in ("first", "second", "third"):
        cllm("init", "--force", "--model", f"openai/{model}").succeeded()

    folder = cllm.home.work / ".cllm"
    assert read(folder / "Cllmfile.yml.old")["model"] == "openai/first"
    assert read(folder / "Cllmfile.yml.old.2")["model"] == "openai/second"
    assert read(folder / "Cllmfile.yml")["model"] == "openai/third"


def test_conversations_and_logs_are_added_to_gitignore_once(cllm):
    ignored = cllm.home.work / ".gitignore"
    ignored.write_text("build/", encoding="utf-8")

    cllm("init").succeeded()
    cllm("init", "--force").succeeded()

    assert ignored.read_text(encoding="utf-8").splitlines() == [
        "build/",
        ".cllm/conversations/",
        ".cllm/cllm.db*",
        ".cllm/*.log",
    ]


def test_history_moves_the_conversations_of_this_folder_here_and_says_so(settings, cllm):
    cllm("Hello", "--conversation", "before").succeeded()

    done = cllm("init", "--history").succeeded()
    cllm("Hello", "--conversation", "after").succeeded()

    folder = cllm.home.work / ".cllm" / "conversations"
    assert [path.name for path in folder.glob("*.json")] == ["after.json"]
    assert cllm.home.file("before").is_file()
    assert str(folder) in done.out
    assert str(cllm.home.conversations) in done.out
    assert ".cllm/conversations/" in (cllm.home.work / ".gitignore").read_text(encoding="utf-8")


def test_history_can_be_added_to_a_folder_that_has_settings(cllm, mode):
    cllm("init", "--model", "openai/mine").succeeded()
    before = (cllm.home.work / ".cllm" / "Cllmfile.yml").read_bytes()

    cllm("init", "--history").succeeded()
    cllm("init", "--history").succeeded()

    assert (cllm.home.work / ".cllm" / "Cllmfile.yml").read_bytes() == before
    assert mode(cllm.home.work / ".cllm" / "conversations") == 0o700


def test_history_does_not_hide_that_settings_were_not_written(cllm):
    cllm("init").succeeded()

    cllm("init", "--history", "--model", "openai/x").failed_with_one_sentence("--force")

    assert not (cllm.home.work / ".cllm" / "conversations").exists()


def test_a_new_file_is_trusted_and_a_changed_one_is_not(cllm):
    cllm("init", "--template", "context-demo").succeeded()
    file = cllm.home.work / ".cllm" / "Cllmfile.yml"
    cllm("--show-config").succeeded()

    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("date +%A", "touch pwned"), encoding="utf-8")

    cllm("--show-config").failed_with_one_sentence("cllm trust", prefix="Configuration error: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--template", "nonsense"], ["nonsense", "code-review"]),
        (["--template", "../../etc/passwd"], ["no template"]),
        (["--system", "a", "--system-file", "b"], ["--system"]),
        (["--cllm-path", "x", "--global"], ["--cllm-path"]),
        (["--history", "--global"], ["--history", "the current directory"]),
        (["--history", "--cllm-path", "x"], ["--history", "the current directory"]),
    ],
)
def test_an_impossible_option_is_an_error_and_nothing_is_written(arguments, words, cllm):
    cllm("init", *arguments).failed_with_one_sentence(*words, code=2)

    assert cllm.home.snapshot(cllm.home.work) == {}


def test_a_folder_that_cannot_be_written_is_one_sentence(cllm):
    (cllm.home.work / ".cllm").write_text("a file", encoding="utf-8")

    cllm("init").failed_with_one_sentence(".cllm")

"""The settings of `cllm demo`, and when it opens a browser."""

import sys

import pytest

from cllm.cli.demo import fill_store, has_browser, load_demo_settings
from cllm.settings.load import server_store


@pytest.fixture
def home(monkeypatch, tmp_path):
    (tmp_path / ".cllm").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_the_demo_uses_its_own_store_without_keys(home, tmp_path):
    keys = "[{name: a, owner: a, key: key-of-a-0123456789abcdef}]"
    text = f"store: sqlite:mine.db\nserver: {{host: 0.0.0.0, workers: 4, keys: {keys}}}"
    (home / ".cllm/Cllmfile.yml").write_text(text, encoding="utf-8")

    settings = load_demo_settings(tmp_path, 0)

    assert server_store(settings) == settings.store == f"sqlite:{tmp_path / 'cllm.db'}"
    assert settings.is_single_store
    assert (settings.server.host, settings.server.keys) == ("127.0.0.1", ())
    assert settings.server.workers == 1


def test_a_project_s_settings_need_no_trust(home, tmp_path):
    text = "context_commands: [{name: Day, command: date}]"
    (home / "project/Cllmfile.yml").write_text(text, encoding="utf-8")

    assert load_demo_settings(tmp_path, 0).context == ()


@pytest.mark.usefixtures("home")
def test_every_conversation_can_be_stored(tmp_path):
    assert fill_store(load_demo_settings(tmp_path, 0)) == 35
    assert (tmp_path / "cllm.db").is_file()


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="a browser always exists there")
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"DISPLAY": ":0"}, True),
        ({"BROWSER": "firefox"}, True),
        ({"DISPLAY": ""}, False),
    ],
)
def test_a_browser_opens_only_with_a_display(environment, expected):
    assert has_browser(environment) is expected

from pathlib import Path

import pytest
from tests.sqlite_template import write_database

from cllm.app import App
from cllm.cli.places import list_places
from cllm.core.ports import NewConversation
from cllm.settings.load import CommandLine, Environment, load_settings
from cllm.testing.store_contract import start


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def open_app(home: Path, directory: Path) -> App:
    directory.mkdir(parents=True, exist_ok=True)
    env = Environment(home=home, directory=directory, environment={})
    return App(load_settings(env, CommandLine()))


async def test_a_place_is_listed_once(home, tmp_path):
    directory = tmp_path / "a/b"
    for folder in (home, tmp_path / "a", directory):
        (folder / ".cllm/conversations").mkdir(parents=True)
    write_database(home / ".cllm/cllm.db")
    app = open_app(home, directory)
    new = NewConversation(id="cats")
    lease = await app.store.begin_turn("cats", start("t1"), create=new)
    app.record_use(lease)

    assert list_places(app) == [
        f"json:{directory}/.cllm/conversations",
        f"json:{tmp_path}/a/.cllm/conversations",
        f"json:{home}/.cllm/conversations",
        f"sqlite:{home}/.cllm/cllm.db",
    ]
    await app.close()


def test_links_are_not_followed(home, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (tmp_path / "a/.cllm").mkdir(parents=True)
    (tmp_path / "a/.cllm/conversations").symlink_to(secret)
    (tmp_path / "a/.cllm/cllm.db").symlink_to(secret)

    assert list_places(open_app(home, tmp_path / "a/b")) == [f"json:{home}/.cllm/conversations"]


async def test_a_place_that_is_deleted_is_not_listed(home, tmp_path):
    folder = tmp_path / "gone/.cllm/conversations"
    folder.mkdir(parents=True)
    app = open_app(home, tmp_path / "gone")
    lease = await app.store.begin_turn("cats", start("t1"), create=NewConversation(id="cats"))
    app.record_use(lease)
    await app.close()
    here = open_app(home, tmp_path / "here")
    assert f"json:{folder}" in list_places(here)
    folder.rename(tmp_path / "moved")
    assert f"json:{folder}" not in list_places(here)

"""The last conversation of a place: records, the newest file, and errors."""

from pathlib import Path

import pytest

from cllm.app import App, LastUse
from cllm.cli.continuation import find_last_conversation
from cllm.core.errors import UsageError
from cllm.core.ports import NewConversation
from cllm.settings.load import CommandLine, Environment, Settings, load_settings
from cllm.testing.store_contract import start


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    env = Environment(home=tmp_path / "home", directory=tmp_path, environment={})
    return load_settings(env, CommandLine())


async def use(settings: Settings, name: str, **fields: object) -> None:
    """Start a turn, as the shell does; None: an unsaved question follows."""
    app = App(settings)
    new = NewConversation(id=name, **fields)  # type: ignore[arg-type]
    lease = await app.store.begin_turn(name, start(f"turn of {name}"), create=new)
    app.record_use(lease)
    await app.store.drop_turn(lease)
    await app.store.create(new)
    await app.close()


def run(settings: Settings) -> str:
    return find_last_conversation(settings).id


async def test_the_last_use_is_recorded(settings):
    await use(settings, "cats")
    await use(settings, "dogs")
    assert run(settings) == "dogs"
    assert App(settings).list_used_stores() == [settings.store]


async def test_a_recorded_client_is_no_use(settings):
    await use(settings, "cats")
    await use(settings, "agent", source="claude-code")
    await use(settings, "side", is_side=True)
    assert run(settings) == "cats"


async def test_without_a_record_the_newest_file_of_no_client_is_the_last(settings):
    app = App(settings)
    for name, source in (("cats", None), ("agent", "codex")):
        await app.store.create(NewConversation(id=name, source=source))
    assert run(settings) == "cats"


async def test_a_damaged_record_is_no_record(settings, tmp_path):
    await use(settings, "cats")
    (record,) = tmp_path.rglob("places/*.json")
    record.write_text("{", encoding="utf-8")
    assert App(settings).read_last_use() is None
    assert App(settings).list_used_stores() == []
    assert run(settings) == "cats"


async def test_an_unsaved_question_is_recorded_after_a_saved_one_only(settings):
    app = App(settings)
    app.record_use(None)
    assert app.read_last_use() is None
    await use(settings, "cats")
    app.record_use(None)
    expected = LastUse(store=settings.store, conversation="cats", is_saved=False)
    assert app.read_last_use() == expected
    with pytest.raises(UsageError, match="not saved"):
        run(settings)


def test_nothing_to_continue_names_the_place(settings):
    with pytest.raises(UsageError, match="conversations: name one with"):
        run(settings)


async def test_a_database_without_a_record_has_no_last_conversation(tmp_path):
    env = Environment(home=tmp_path / "home", directory=tmp_path, environment={})
    settings = load_settings(env, CommandLine(values={"store": "memory:"}))
    with pytest.raises(UsageError):
        run(settings)

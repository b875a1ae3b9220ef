"""The conversation and the tools of one turn."""

import pytest

from cllm.app import App
from cllm.cli.turn import AskOptions, _build_request, _open_tools, _resolve_ref
from cllm.core.errors import UsageError
from cllm.core.message import Image
from cllm.core.ports import NewConversation
from cllm.settings.load import CommandLine, Environment, load_settings


@pytest.fixture
def open_app(tmp_path):
    def run(**values) -> App:
        env = Environment(home=tmp_path, directory=tmp_path, environment={"OPENAI_API_KEY": "sk"})
        line = CommandLine(values={"model": "openai/gpt-test", "store": "memory:", **values})
        return App(load_settings(env, line))

    return run


def options(**changes) -> AskOptions:
    defaults = {
        "text": "Hello",
        "ref": None,
        "read_only": False,
        "automatic": False,
        "policy": "captured",
    }
    return AskOptions(**{**defaults, **changes})


def test_an_automatic_conversation_has_a_new_id_unless_raw(open_app):
    first, second = (_resolve_ref(open_app(), options(automatic=True)) for _ in range(2))

    assert first
    assert first != second
    assert _resolve_ref(open_app(raw_response=True), options(automatic=True)) is None


def test_raw_does_not_create_a_conversation(open_app, tmp_path):
    app = open_app(raw_response=True, store=f"json:{tmp_path / 'conversations'}")
    assert _resolve_ref(app, options(ref="cats")) is None

    app.run(app.store.create(NewConversation(id="cats")))
    assert _resolve_ref(app, options(ref="cats")) == "cats"


def test_a_turn_without_a_conversation_is_not_saved(open_app):
    storage = _build_request(open_app(), options()).storage

    assert storage.read_only
    assert storage.create is None


def test_a_turn_in_a_conversation_is_saved_unless_read_only(open_app):
    saved = _build_request(open_app(), options(ref="cats")).storage
    read = _build_request(open_app(), options(ref="cats", read_only=True)).storage

    assert saved.create is not None
    assert not saved.read_only
    assert read.create is None


def test_attachments_follow_the_text(open_app):
    image = Image(url="https://a/b.png")
    (message,) = _build_request(open_app(), options(attachments=(image,))).input.messages

    assert message.text == "Hello"
    assert [part["type"] for part in message.json()["content"]] == ["text", "image_url"]


def test_rules_for_commands_need_the_permission(open_app):
    assert _open_tools(open_app(), options()) is None
    with pytest.raises(UsageError, match="--allow-commands"):
        _open_tools(open_app(), options(confirm_commands=True))


def test_the_flag_allows_commands(open_app):
    tools = _open_tools(open_app(), options(allow_commands=True, command_allow=("make",)))

    assert tools is not None
    assert "make" in str(tools.definitions)

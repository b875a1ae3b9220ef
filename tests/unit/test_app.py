"""An app from settings: store, engine, routes and keys."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.sqlite_template import write_database

from cllm.app import (
    DEFAULT_MODEL,
    App,
    new_conversation_id,
    new_id,
    now,
    open_configured_store,
    run_coroutine,
    run_without_loop,
)
from cllm.core.conversation import is_valid_id
from cllm.core.errors import MissingKeyError, ModelNotFoundError, SettingsError
from cllm.core.ports import NewConversation
from cllm.engine.turn import Engine
from cllm.providers.local.slots import SlotFiles
from cllm.providers.openai import OpenAIProvider
from cllm.settings.load import CommandLine, Environment, load_settings
from cllm.stores.json.store import JsonFileStore
from cllm.stores.memory import MemoryStore

ENVIRONMENT = {"OPENAI_API_KEY": "sk-openai", "GROQ_API_KEY": "sk-groq"}


@pytest.fixture
def make_app(tmp_path: Path):
    """Makes an app with these settings in the user's Cllmfile."""

    def make(text: str = "", environment: dict[str, str] | None = None, **values: Any) -> App:
        home = tmp_path / "home"
        (home / ".cllm").mkdir(parents=True, exist_ok=True)
        (home / ".cllm/Cllmfile.yml").write_text(text, encoding="utf-8")
        place = Environment(
            home=home,
            directory=tmp_path,
            environment=ENVIRONMENT if environment is None else environment,
        )
        return App(load_settings(place, CommandLine(values=values)))

    return make


def openai(app: App, model: str) -> OpenAIProvider:
    provider = app.find_route(model).provider
    assert isinstance(provider, OpenAIProvider)
    return provider


class TestParts:
    def test_the_default_model_is_the_local_one(self, make_app):
        no_keys = {"OLLAMA_HOST": "127.0.0.1:9"}
        assert make_app(environment=no_keys).model == DEFAULT_MODEL == "local/smollm2-135m"
        assert make_app("model: openai/x").model == "openai/x"

    @pytest.mark.parametrize(
        ("environment", "cache"),
        [({}, "home/.cache"), ({"XDG_CACHE_HOME": "caches"}, "home/.cache"), (None, "caches")],
    )
    async def test_the_index_of_files_is_in_the_cache_folder(
        self, make_app, tmp_path: Path, environment: dict[str, str] | None, cache: str
    ):
        absolute = {"XDG_CACHE_HOME": str(tmp_path / "caches")}
        app = make_app(environment=absolute if environment is None else environment)
        await app.store.create(NewConversation(id="demo"))
        (found,) = await app.store.list_family("demo")
        assert found.id == "demo"
        assert len(list((tmp_path / cache / "cllm/paths").glob("*.sqlite3"))) == 1
        await app.close()

    @pytest.mark.parametrize(
        ("text", "kind"), [("", JsonFileStore), ("store: 'memory:'", MemoryStore)]
    )
    def test_the_store_is_the_one_that_the_settings_name(self, make_app, text, kind):
        assert isinstance(make_app(text).store, kind)

    @pytest.mark.parametrize("store", ["x", "redis:x", "'json:'"])
    def test_an_unknown_store_is_a_settings_error(self, make_app, store):
        with pytest.raises(SettingsError, match="json:"):
            make_app(f"store: {store}")

    def test_the_retries_of_an_engine_are_from_the_settings(self, make_app):
        engine = make_app("num_retries: 7").engine()

        assert isinstance(engine, Engine)
        assert engine._retry.retries == 7

    def test_ids_are_new_and_valid(self):
        assert new_id() != new_id()
        name = new_conversation_id(now(), "abcdef")
        assert is_valid_id(name)
        assert name.endswith("-abcd")

    def test_the_cache_key_names_store_and_conversation(self, make_app):
        app = make_app("store: 'memory:'")

        assert app.cache_key("demo") == "memory:#demo"

    async def test_closing_closes_everything_that_was_opened(self, make_app):
        app = make_app()
        openai(app, "openai/gpt-4o")

        await app.close()
        await app.close()

    def test_forgetting_an_unknown_conversation_is_no_error(self, make_app):
        make_app().forget("demo")


class TestRoutes:
    def test_the_model_of_a_route_is_the_providers_name_for_it(self, make_app):
        route = make_app().find_route("openai/gpt-4o")

        assert (route.provider.name, route.model) == ("openai", "gpt-4o")

    def test_a_provider_is_opened_once(self, make_app):
        app = make_app()

        assert openai(app, "openai/a") is openai(app, "openai/b")
        assert openai(app, "openai/a") is not openai(app, "groq/a")

    def test_each_local_model_is_a_separate_provider(self, make_app):
        app = make_app("providers: {local: {threads: 2, context: 512}}")
        first = app.find_route("local/smollm2-135m")

        assert first.provider is app.find_route("smollm2-135m").provider
        assert first.model == "smollm2-135m"

    @pytest.mark.parametrize("value", ["0", "-1", "many", "1.5"])
    @pytest.mark.parametrize("option", ["threads", "context"])
    def test_options_of_the_local_model_are_whole_numbers(self, make_app, option, value):
        app = make_app(f"providers: {{local: {{{option}: {value}}}}}")

        with pytest.raises(SettingsError, match=option):
            app.find_route("local/smollm2-135m")

    def test_an_unknown_model_is_an_error(self, make_app):
        with pytest.raises(ModelNotFoundError):
            make_app().find_route("nobody/pro")

    @pytest.mark.parametrize(
        ("text", "model", "url"),
        [
            ("", "openai/x", "https://api.openai.com/v1/chat/completions"),
            ("", "ollama/x", "http://127.0.0.1:11434/v1/chat/completions"),
            (
                "{model: openai/x, api_base: 'http://h:1/v1/'}",
                "openai/x",
                "http://h:1/v1/chat/completions",
            ),
            (
                "{model: openai/x, api_base: 'http://h/v1'}",
                "groq/x",
                "https://api.groq.com/openai/v1/chat/completions",
            ),
            (
                "{model: openai/x, api_base: 'http://a', providers: {openai: {api_base: 'http://b'}}}",
                "openai/x",
                "http://b/chat/completions",
            ),
            (
                "providers: {mine: {api_base: 'http://m/v1', models: [llama]}}",
                "llama",
                "http://m/v1/chat/completions",
            ),
        ],
    )
    def test_the_api_base_of_the_provider_precedes_the_top_level_and_the_default(
        self, make_app, text, model, url
    ):
        assert openai(make_app(text), model)._urls["chat"] == url

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("providers: {mine: {type: gopher, api_base: 'http://x'}}", "providers.mine"),
            ("providers: {mine: {models: [x]}}", "api_base"),
            ("providers: {mine: {api_base: 'ftp://x'}}", "http://"),
            ("providers: {mine: {api_base: 'localhost:8000'}}", "http://"),
        ],
    )
    def test_an_invalid_api_base_is_a_settings_error(self, make_app, text, words):
        with pytest.raises(SettingsError, match=words):
            make_app(text).find_route("mine/x")


class TestKeys:
    @pytest.mark.parametrize(
        ("text", "model", "key"),
        [
            ("", "openai/x", "sk-openai"),
            ("providers: {openai: {api_key: sk-own}}", "openai/x", "sk-own"),
            ("{model: openai/x, api_key: sk-top}", "openai/x", "sk-top"),
            (
                "{model: openai/x, api_key: sk-top, providers: {openai: {api_key: sk-own}}}",
                "openai/x",
                "sk-own",
            ),
            ("", "ollama/x", None),
            ("providers: {mine: {api_base: 'http://m'}}", "mine/x", None),
        ],
    )
    def test_the_key_of_the_provider_precedes_the_top_level_and_the_environment(
        self, make_app, text, model, key
    ):
        assert openai(make_app(text), model)._key == key

    @pytest.mark.parametrize("model", ["groq/x", "mine/x", "ollama/x"])
    def test_a_top_level_key_is_never_sent_to_another_provider(self, make_app, model):
        app = make_app(
            "{model: openai/x, api_key: sk-top, extra_headers: {X-Key: sk-top},"
            " providers: {mine: {api_base: 'http://m'}}}",
            model=model,
        )

        provider = openai(app, model)
        assert provider._key != "sk-top"
        assert provider._headers == {}

    def test_headers_are_merged(self, make_app):
        app = make_app(
            "{model: openai/x, extra_headers: {A: '1', B: '1'},"
            " providers: {openai: {extra_headers: {B: '2'}}}}"
        )

        assert openai(app, "openai/x")._headers == {"A": "1", "B": "2"}

    @pytest.mark.parametrize("environment", [{}, {"OPENAI_API_KEY": ""}])
    def test_a_missing_key_error_names_the_variable(self, make_app, environment):
        with pytest.raises(MissingKeyError) as caught:
            make_app(environment=environment).find_route("openai/x")
        assert caught.value.variable == "OPENAI_API_KEY"

    def test_a_custom_server_may_need_no_key(self, make_app):
        app = make_app("{model: openai/x, api_base: 'http://127.0.0.1:1'}", environment={})

        assert openai(app, "openai/x")._key is None

    def test_an_unset_variable_as_key_is_a_missing_key(self, make_app):
        with pytest.raises(MissingKeyError) as caught:
            make_app("{model: openai/x, api_key: '${MY_KEY}'}").find_route("openai/x")
        assert caught.value.variable == "MY_KEY"

    @pytest.mark.parametrize("key", ["sk-a\n", "  sk-a", "sk-a\r\n"])
    def test_white_space_around_a_key_is_removed(self, make_app, key):
        app = make_app(environment={"OPENAI_API_KEY": key})

        assert openai(app, "openai/x")._key == "sk-a"

    def test_an_explicit_model_does_not_depend_on_the_file_s_model_being_known(self, make_app):
        app = make_app("model: nobody/pro", model="openai/gpt-4o")

        assert openai(app, "openai/gpt-4o")._key == "sk-openai"


class TestTimeouts:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", (10, 600, 120)),
            ("timeout: 5", (10, 5, 5)),
            ("timeout: {connect: 1, idle: 2}", (1, 600, 2)),
            ("timeout: {first_byte: 3}", (10, 3, 120)),
            ("{timeout: 5, providers: {openai: {timeout: 7}}}", (10, 7, 7)),
        ],
    )
    def test_a_number_sets_the_idle_timeout_and_a_mapping_sets_each(self, make_app, text, expected):
        limits = openai(make_app(text, model="openai/x"), "openai/x")._timeouts

        assert (limits.connect, limits.first_byte, limits.idle) == expected


async def answer() -> int:
    return 42


async def wait() -> int:
    await asyncio.sleep(0)
    return 42


async def fail() -> int:
    raise ZeroDivisionError


@pytest.mark.parametrize("coroutine", [answer, wait])
def test_a_coroutine_is_run_to_its_end(coroutine):
    assert run_coroutine(coroutine()) == 42


def test_a_coroutine_that_never_waits_needs_no_event_loop():
    assert run_without_loop(answer()) == 42


@pytest.mark.parametrize("runner", [run_coroutine, run_without_loop])
def test_the_error_of_a_coroutine_is_raised(runner):
    with pytest.raises(ZeroDivisionError):
        runner(fail())


def test_a_coroutine_that_waits_is_refused_and_closed():
    closed = []

    async def waiting() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            closed.append(True)

    with pytest.raises(RuntimeError, match="use run"):
        run_without_loop(waiting())
    assert closed == [True]


class TestOneHistory:
    @pytest.fixture
    def app(self, make_app, tmp_path: Path) -> App:
        path = tmp_path / "home/.cllm/cllm.db"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_database(path)
        app: App = make_app()
        return app

    async def test_the_database_of_the_server_is_part_of_the_store(self, app):
        database = open_configured_store(app.store_urls[1], app.settings)
        await database.create(NewConversation(id=new_id(), name="dogs"))
        await database.close()
        await app.store.create(NewConversation(id="cats"))

        page = await app.store.list_conversations()

        assert [item.ref for item in page.items] == ["cats", "dogs"]
        await app.close()

    def test_reads_of_two_stores_run_in_an_event_loop(self, app):
        assert app.run(app.store.list_conversations()).items == ()

    async def test_a_deleted_conversation_leaves_no_state_of_the_local_model(self, app):
        database = open_configured_store(app.store_urls[1], app.settings)
        created = await database.create(NewConversation(id=new_id(), name="dogs"))
        await database.close()
        slots = SlotFiles(folder=app.cache_paths.slots)
        keys = [
            app.cache_key(ref, store=url) for ref in ("dogs", created.id) for url in app.store_urls
        ]
        slots.create_folder()
        for key in keys:
            name = slots.new_name()
            (slots.folder / name).write_bytes(b"state")
            assert slots.commit(name, key, "model") is not None

        await app.delete_conversation("dogs")

        assert [slots.find(key, "model") for key in keys] == [None] * len(keys)
        await app.close()

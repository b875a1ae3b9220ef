"""Precedence and types of the settings, and the destination of each key."""

import pickle
from pathlib import Path

import msgspec
import pytest

from cllm.core.errors import SettingsError
from cllm.core.secret import Secret
from cllm.history.system_prompt import GivenPrompt
from cllm.settings import sections
from cllm.settings.load import (
    Environment,
    Settings,
    merge,
    operator_store,
    other_store,
    use_single_store,
)

KEY = "sk-0123456789abcdef"


class TestLayers:
    def test_without_files_the_defaults_apply(self, world):
        settings = world.load()

        assert settings.model is None
        assert settings.system == GivenPrompt()
        assert (settings.stream, settings.raw, settings.retries) == (True, False, 2)
        assert settings.on_interrupt == "keep"
        assert settings.save == "named"
        assert settings.parameters == {}
        assert settings.store == f"json:{world.home}/.cllm/conversations"
        assert settings.notices == ()
        assert not settings.model_is_explicit

    def test_a_later_layer_overrides_an_earlier_one(self, world):
        world.write_home("{model: a, temperature: 1, seed: 1, top_p: 1, stop: x}")
        world.write_dot("{model: b, temperature: 2, seed: 2, top_p: 2}")
        world.write_here("{model: c, temperature: 3, seed: 3}")
        world.environment["CLLM_MODEL"] = "d"

        settings = world.load(values={"model": "e", "temperature": 4})

        assert settings.model == "e"
        assert settings.parameters == {"temperature": 4, "seed": 3, "top_p": 2, "stop": "x"}

    @pytest.mark.parametrize(
        ("environment", "values", "model", "explicit"),
        [
            ({}, {}, "file", False),
            ({"CLLM_MODEL": "env"}, {}, "env", False),
            ({"CLLM_MODEL": ""}, {}, "file", False),
            ({"CLLM_MODEL": "env"}, {"model": "line"}, "line", True),
            ({}, {"model": "file"}, "file", True),
        ],
    )
    def test_an_explicit_model_always_wins(self, world, environment, values, model, explicit):
        world.write_home("model: file")
        world.environment.update(environment)

        settings = world.load(values=values)

        assert (settings.model, settings.model_is_explicit) == (model, explicit)

    def test_mappings_are_merged_deeply(self, world):
        world.write_home("providers: {a: {api_base: 'http://a', models: [x, y]}, b: {timeout: 1}}")
        world.write_here("providers: {a: {models: [z]}}")

        settings = world.load(trust=True)

        assert settings.providers["a"].api_base == "http://a"
        assert settings.providers["a"].models == ("z",)
        assert settings.providers["b"].timeout == 1.0

    @pytest.mark.parametrize(
        ("lower", "upper", "expected"),
        [
            ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
            ({"a": {"b": 1}}, {"a": 5}, {"a": 5}),
            ({"a": 5}, {"a": {"b": 1}}, {"a": {"b": 1}}),
            ({"a": [1]}, {"a": [2]}, {"a": [2]}),
            ({"a": 1}, {"a": None}, {"a": None}),
            ({"a": 1}, {}, {"a": 1}),
        ],
    )
    def test_only_mappings_are_merged(self, lower, upper, expected):
        before = repr(lower)

        assert merge(lower, upper) == expected
        assert repr(lower) == before

    def test_an_explicit_folder_replaces_both_default_ones(self, world, tmp_path):
        world.write_home("model: home")
        world.write_dot("model: dot")
        named = tmp_path / "named"
        named.mkdir()
        (named / "Cllmfile.yml").write_text("seed: 1", encoding="utf-8")

        settings = world.load(cllm_path=named)

        assert settings.model is None
        assert settings.parameters == {"seed": 1}
        assert settings.files_folder == named
        assert settings.store == f"json:{named}/conversations"

    def test_the_command_line_overrides_the_folder_of_the_environment(self, world, tmp_path):
        for name in ("env", "line"):
            (tmp_path / name).mkdir()
        world.environment["CLLM_PATH"] = str(tmp_path / "env")

        assert world.load().files_folder == tmp_path / "env"
        assert world.load(cllm_path=tmp_path / "line").files_folder == tmp_path / "line"

    def test_a_file_in_the_home_directory_is_read_once(self, world):
        world.write_home("{model: a, api_base: 'http://x'}")
        env = Environment(home=world.home, directory=world.home, environment={})

        assert world.load(env=env).model == "a"

    def test_the_user_s_own_file_is_recognised_through_a_link(self, world, tmp_path):
        world.write_home("{model: a, api_base: 'http://x'}")
        link = tmp_path / "link"
        link.symlink_to(world.home)
        env = Environment(home=link, directory=world.home, environment={})

        assert world.load(env=env).model == "a"


class TestVariables:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("user: ${WHO}", "Ann"),
            ("user: 'a ${WHO} b ${WHO}'", "a Ann b Ann"),
            ("user: ${UNSET}", "${UNSET}"),
            ("user: $WHO ${ WHO } ${1X}", "$WHO ${ WHO } ${1X}"),
            ("user: [x, {y: '${WHO}'}]", ["x", {"y": "Ann"}]),
            ("user: ${EMPTY}", ""),
            ("user: ${NESTED}", "${WHO}"),
        ],
    )
    def test_variables_are_substituted_once_and_everywhere(self, world, load, text, expected):
        world.environment.update(WHO="Ann", EMPTY="", NESTED="${WHO}")

        assert load(text).parameters["user"] == expected

    def test_other_values_are_unchanged(self, load):
        settings = load("{seed: 5, temperature: 0, top_p: 0.0, logprobs: false, stop: null}")

        assert settings.parameters == {
            "seed": 5,
            "temperature": 0,
            "top_p": 0.0,
            "logprobs": False,
        }


class TestTypes:
    @pytest.mark.parametrize(
        ("text", "key", "line"),
        [
            ("seed: 1\nmodel: 5", "model", 2),
            ("default_system_message: [a]", "default_system_message", 1),
            ("\n\napi_base: {a: 1}", "api_base", 3),
            ("api_key: 123456", "api_key", 1),
            ("store: 5", "store", 1),
            ("conversations_path: 5", "conversations_path", 1),
            ("providers: [a]", "providers", 1),
            ("extra_headers: text", "extra_headers", 1),
            ("num_retries: many", "num_retries", 1),
            ("num_retries: -1", "num_retries", 1),
            ("num_retries: 21", "num_retries", 1),
            ("num_retries: 1.5", "num_retries", 1),
            ("'num_retries' : 99", "num_retries", 1),
            ("max_retries: many", "max_retries", 1),
            ("on_interrupt: maybe", "on_interrupt", 1),
            ("save: some", "save", 1),
            ("stream: maybe", "stream", 1),
            ("raw_response: 1", "raw_response", 1),
        ],
    )
    def test_a_value_of_the_wrong_type_is_reported_with_file_and_line(self, world, text, key, line):
        path = world.write_home(text)

        with pytest.raises(SettingsError, match=f"`{key}`") as caught:
            world.load()
        assert (caught.value.path, caught.value.line) == (str(path), line)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("providers: {a: 5}", "providers.a"),
            ("providers: {a: null}", "providers.a"),
            ("providers: {a: {models: x}}", "models"),
            ("providers: {a: {models: [1]}}", "models"),
            ("providers: {a: {timeout: long}}", "timeout"),
            ("providers: {a: {timeout: {connect: x}}}", "timeout"),
            ("timeout: [1]", "timeout"),
            ("timeout: 0", "timeout"),
            ("timeout: -1", "timeout"),
            ("timeout: {first_byte: 3, unknown: 4}", "timeout"),
            ("providers: {a: {api_base: 5}}", "api_base"),
            ("providers: {a: {extra_headers: [x]}}", "extra_headers"),
            ("providers: {a: {extra_headers: text}}", "extra_headers"),
        ],
    )
    def test_a_provider_s_settings_are_checked(self, load, text, words):
        with pytest.raises(SettingsError, match=words):
            load(text)

    def test_a_value_of_the_wrong_type_is_reported_with_its_source(self, world):
        with pytest.raises(SettingsError) as caught:
            world.load(values={"model": 5})
        assert (caught.value.path, caught.value.line) == ("command line", None)

    @pytest.mark.parametrize(
        "text",
        ["{}", "model: null", "model: ''", "stream: null", "num_retries: 0", "providers: null"],
    )
    def test_empty_values_are_valid(self, load, text):
        assert load(text).model is None

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("num_retries: 5", 5),
            ("max_retries: 7", 7),
            ("{num_retries: 0, max_retries: 7}", 0),
            ("num_retries: null", 2),
        ],
    )
    def test_the_number_of_retries(self, load, text, expected):
        assert load(text).retries == expected

    def test_an_invalid_model_of_a_file_is_reported_even_if_overridden(self, world):
        world.write_home("model: 5")

        with pytest.raises(SettingsError, match="`model`"):
            world.load(values={"model": "openai/gpt-4o"})


class TestSystemPrompt:
    @pytest.mark.parametrize("text", ["null", "''", "'  '", "'\n\n'"])
    def test_an_empty_prompt_is_not_configured(self, load, text):
        assert load(f"default_system_message: {text}").system == GivenPrompt()

    def test_the_configured_prompt_has_its_source(self, world):
        world.write_home("default_system_message: Home.")
        world.write_here("default_system_message: Here.")

        assert world.load().system == GivenPrompt(
            text="Here.", source="Cllmfile.yml: default_system_message"
        )

    def test_the_command_line_overrides_the_configured_prompt(self, load):
        prompt = GivenPrompt(text="Loud.", source="--system", explicit=True)

        assert load("default_system_message: Home.", system=prompt).system == prompt


class TestWhereKeysGo:
    def test_unknown_keys_and_sampling_go_into_the_body(self, load):
        settings = load("{temperature: 0, logit_bias: {a: 1}, something_new: [1]}")

        assert settings.parameters == {
            "temperature": 0,
            "logit_bias": {"a": 1},
            "something_new": [1],
        }

    def test_a_budget_is_refused_instead_of_ignored(self, load):
        with pytest.raises(SettingsError, match="`budget` must be removed"):
            load("budget: 5")

    @pytest.mark.parametrize(
        "key", sorted((sections.CLLM_KEYS | sections.PROVIDER_KEYS) - {"budget"})
    )
    def test_keys_of_cllm_and_of_the_provider_never_go_into_the_body(self, load, key):
        values = {
            "aliases": "{fast: openai/x}",
            "on_interrupt": "keep",
            "save": "all",
            "providers": "{}",
            "server": "{}",
            "extra_headers": "{}",
            "timeout": "5",
            "num_retries": "1",
            "max_retries": "1",
            "stream": "true",
            "strict": "true",
            "debug": "true",
            "verbosity": "1",
            "window": "{}",
            "allow_dynamic_commands": "true",
            "dynamic_commands": "{}",
            "json_logs": "true",
            "context_commands": "[{command: date}]",
            "variables": "{A: 1}",
            "fallbacks": "[openai/gpt-4o]",
            "raw_response": "true",
        }

        assert load(f"{key}: {values.get(key, 'word')}").parameters == {}

    def test_no_key_is_in_two_sections(self):
        assert not sections.CLLM_KEYS & sections.PROVIDER_KEYS
        assert not (sections.CLLM_KEYS | sections.PROVIDER_KEYS) & sections.BODY_KEYS

    @pytest.mark.parametrize(
        ("key", "meant"),
        [
            ("temprature", "temperature"),
            ("max_token", "max_tokens"),
            ("default_system_mesage", "default_system_message"),
            ("api_bse", "api_base"),
        ],
    )
    def test_an_unknown_key_close_to_a_known_one_is_a_warning(self, load, key, meant):
        (notice,) = load(f"{key}: x").notices

        assert (notice.code, notice.path) == ("unknown_key", key)
        assert f"`{key}`" in notice.message
        assert f"`{meant}`" in notice.message

    @pytest.mark.parametrize("key", ["min_p", "guided_json", "repetition_penalty"])
    def test_other_unknown_keys_are_passed_on(self, load, key):
        settings = load(f"{key}: 1")

        assert settings.notices == ()
        assert settings.parameters == {key: 1}

    def test_a_provider_has_its_fields_and_the_rest_as_options(self, load):
        row = load(
            "providers: {a: {type: openai, base_url: 'http://x', api_key: 5, timeout: {idle: 3},"
            " extra_headers: {X-A: 1}, models: [m], region: eu}}"
        ).providers["a"]

        assert (row.kind, row.api_base, row.models) == ("openai", "http://x", ("m",))
        assert row.api_key == Secret("5")
        assert row.headers == {"X-A": Secret("1")}
        assert row.timeout == {"idle": 3.0}
        assert row.options == {"region": "eu"}


class TestStore:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("store: 'memory:'", "memory:"),
            ("{store: 'json:/x', conversations_path: /y}", "json:/x"),
            ("conversations_path: /y", "json:/y"),
            ("conversations_path: sub", "json:{work}/sub"),
        ],
    )
    def test_the_store_is_configured_or_derived_from_the_folder(self, world, load, text, expected):
        assert load(text).store == expected.format(work=world.work)

    def test_conversations_of_the_directory_are_its_history(self, world):
        (world.work / ".cllm/conversations").mkdir(parents=True)

        assert world.load().store == f"json:{world.work}/.cllm/conversations"

    @pytest.mark.parametrize("name", ["Cllmfile.yml", "my.Cllmfile.yml", "cllm.log"])
    def test_no_other_file_of_the_directory_moves_the_history(self, world, name):
        (world.work / ".cllm").mkdir()
        (world.work / ".cllm" / name).touch()

        assert world.load().store == f"json:{world.home}/.cllm/conversations"

    def test_an_explicit_folder_always_has_the_history(self, world, tmp_path):
        (world.work / ".cllm/conversations").mkdir(parents=True)

        assert world.load(cllm_path=tmp_path).store == f"json:{tmp_path}/conversations"

    def test_the_environment_and_the_command_line_set_a_folder(self, world):
        world.environment["CLLM_CONVERSATIONS_PATH"] = "/env"

        assert world.load().store == "json:/env"
        assert world.load(values={"conversations_path": "/line"}).store == "json:/line"

    def test_loading_creates_nothing(self, world):
        before = sorted(Path(world.home.parent).rglob("*"))

        world.load()

        assert sorted(Path(world.home.parent).rglob("*")) == before


class TestSecrets:
    @pytest.fixture
    def settings(self, world):
        world.environment["OPENAI_API_KEY"] = KEY
        world.write_home(
            "api_key: ${OPENAI_API_KEY}\nproviders: {a: {api_key: '${OPENAI_API_KEY}'}}"
        )
        return world.load()

    def test_the_key_is_loaded(self, settings):
        assert settings.top_providers[-1].settings.api_key == Secret(KEY)
        assert settings.providers["a"].api_key == Secret(KEY)

    @pytest.mark.parametrize("show", [repr, str, "{}".format, lambda value: repr([value])])
    def test_a_key_is_never_printed(self, settings, show):
        assert KEY not in show(settings.top_providers[-1].settings)
        assert KEY not in show(settings.providers)
        assert KEY not in repr(settings.parameters)
        assert KEY not in show(settings)

    @pytest.mark.parametrize("write", [msgspec.json.encode, msgspec.to_builtins, pickle.dumps])
    def test_a_key_is_never_serialised(self, settings, write):
        with pytest.raises(TypeError) as caught:
            write(settings.top_providers[-1].settings)
        assert KEY not in str(caught.value)


class TestStores:
    """Which folder has the files, and which the database."""

    def folders(self, settings: Settings) -> tuple[Path, Path]:
        return settings.files_folder, settings.database_folder

    def test_the_folder_of_the_user_is_the_default(self, world):
        user = world.home / ".cllm"
        world.write_dot("model: a")

        assert self.folders(world.load()) == (user, user)

    def test_a_folder_of_files_moves_both(self, world):
        local = world.work / ".cllm"
        (local / "conversations").mkdir(parents=True)

        assert self.folders(world.load()) == (local, local)

    def test_a_database_moves_only_the_database(self, world):
        local = world.work / ".cllm"
        local.mkdir(parents=True, exist_ok=True)
        (local / "cllm.db").touch()

        assert self.folders(world.load()) == (world.home / ".cllm", local)
        assert other_store(world.load()) == f"sqlite:{local}/cllm.db"

    def test_an_explicit_folder_has_both(self, world, tmp_path):
        (world.work / ".cllm").mkdir(parents=True, exist_ok=True)
        (world.work / ".cllm/cllm.db").touch()
        named = tmp_path / "named"
        named.mkdir()

        assert self.folders(world.load(cllm_path=named)) == (named, named)

    def test_a_database_that_does_not_exist_is_no_other_store(self, world):
        assert other_store(world.load()) is None

    @pytest.mark.parametrize(
        "text",
        [
            "store: sqlite:x.db",
            "store: json:x",
            "server: {keys: [{name: a, owner: a, hash: " + "a" * 64 + "}]}",
            "server: {store: 'memory:'}",
        ],
    )
    def test_a_configured_store_or_server_keys_separate_the_stores(self, world, text):
        world.write_home(text)
        (world.home / ".cllm/cllm.db").touch()

        assert other_store(world.load()) is None

    def test_the_configured_store_of_the_server_is_the_other_store(self, world):
        world.write_home("server: {store: 'postgresql://host/db'}")

        assert other_store(world.load()) == "postgresql://host/db"

    def test_a_single_store_has_no_other(self, world):
        world.write_home("model: a")
        (world.home / ".cllm/cllm.db").touch()
        settings = world.load()

        assert other_store(settings) == f"sqlite:{world.home}/.cllm/cllm.db"
        assert other_store(use_single_store(settings, "memory:")) is None

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("store: json:x", "sqlite:{home}/.cllm/cllm.db"),
            (
                "server: {keys: [{name: a, owner: a, hash: " + "a" * 64 + "}]}",
                "sqlite:{home}/.cllm/cllm.db",
            ),
            ("store: json:x\nserver: {store: 'postgresql://host/db'}", "postgresql://host/db"),
            ("store: sqlite:x.db\nserver: {store: sqlite:y.db}", "sqlite:y.db"),
            ("store: sqlite:x.db", None),
            ("store: sqlite:x.db?synchronous=full\nserver: {store: sqlite:x.db}", None),
            (
                "store: postgresql:///db?host=/a\nserver: {store: 'postgresql:///db?host=/b'}",
                "postgresql:///db?host=/b",
            ),
            ("server: {store: 'memory:'}", None),
            ("server: {store: json:x}", None),
        ],
    )
    def test_an_operator_saves_the_store_of_the_server(self, world, text, expected):
        world.write_home(text)
        found = operator_store(world.load())
        assert found == (expected and expected.format(home=world.home))

    def test_the_passwords_of_both_stores_are_secrets(self, world):
        world.write_home(
            "store: 'postgresql://a:one@h/db'\nserver: {store: 'postgresql://a:two@h/db'}"
        )

        assert {"one", "two"} <= set(world.load().secrets())

    @pytest.mark.parametrize("name", ["cllm.db", "cllm.db-wal"])
    def test_a_link_out_of_a_project_is_no_other_store(self, world, name):
        local = world.work / ".cllm"
        local.mkdir(parents=True, exist_ok=True)
        (local / "cllm.db").touch()
        (local / name).unlink(missing_ok=True)
        (world.home / "secret").touch()
        (local / name).symlink_to(world.home / "secret")

        assert other_store(world.load()) is None


USING = """
variables: {language: French}
prompt: Translate {{ input }}
context_commands:
  - {name: files, command: "ls {{ folder | shellquote }} {% if depth %}-R{% endif %}"}
"""


class TestUnusedVariables:
    """A variable of the command line that only resembles one that the settings use."""

    @pytest.mark.parametrize(
        ("name", "meant"),
        [("langauge", "language"), ("folders", "folder"), ("Language", "language")],
    )
    def test_a_close_name_is_a_warning(self, load, name, meant):
        (notice,) = load(USING, variables={name: "x"}).notices

        assert (notice.code, notice.path) == ("unused_variable", name)
        assert notice.message == (
            f"No command or prompt of the settings uses the variable `{name}`; did you mean "
            f"`{meant}`?"
        )

    @pytest.mark.parametrize("name", ["language", "folder", "depth", "input", "branch", "x"])
    def test_a_name_that_is_used_or_resembles_none_is_not(self, load, name):
        """`--exec` can use a variable that the settings do not know."""
        assert load(USING, variables={name: "x"}).notices == ()

    def test_without_templates_there_is_no_warning(self, load):
        assert load("model: a/b", variables={"language": "x"}).notices == ()

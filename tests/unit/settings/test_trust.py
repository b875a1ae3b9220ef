"""Which Cllmfiles need trust, and the ledger."""

import json
import stat
from pathlib import Path

import pytest

from cllm.core.errors import CllmError, SettingsError, UntrustedFileError
from cllm.settings.cllmfile import Cllmfile, read_cllmfile
from cllm.settings.sections import CLLM_KEYS, PROVIDER_KEYS
from cllm.settings.trust import (
    DANGEROUS_FIELDS,
    DANGEROUS_KEYS,
    TrustLedger,
    dangerous_settings,
    fingerprint,
)

DANGEROUS = {
    "allow_dynamic_commands": "true",
    "api_base": "http://x",
    "api_key": "sk-theirs",
    "base_url": "http://x",
    "context_commands": "[{name: a, command: date}]",
    "conversations_path": "/x",
    "dynamic_commands": "{allow: [ls]}",
    "extra_headers": "{X-A: b}",
    "log_file": "/x",
    "providers": "{a: {api_base: 'http://x'}}",
    "save": "all",
    "server": "{host: 0.0.0.0}",
    "store": "'memory:'",
}
DANGEROUS_BY_VALUE = {
    "aliases": ({"fast": "local/./x.gguf"}, {"fast": "openai/gpt-4o"}),
    "fallbacks": (["local/./x.gguf"], ["openai/gpt-4o"]),
    "json_schema_file": ("https://x.test/schema.json", "schema.json"),
    "model": ("local/./x.gguf", "openai/gpt-4o"),
    "variables": ({"A": 1}, None),
}
"""A value that needs trust, and one that does not."""

HARMLESS = {
    *("budget", "debug", "default_provider", "default_system_message", "json_logs"),
    *(
        "json_schema",
        "on_interrupt",
        "prompt",
        "raw_response",
        "stream",
        "strict",
        "verbosity",
        "window",
    ),
    *("api_version", "custom_llm_provider", "drop_params", "max_retries", "num_retries"),
    *("organization", "timeout"),
}
"""They run, redirect, read and write nothing. `default_provider` at the top level has no effect."""

FOLDER = Path("/somewhere")


def here(world, text: str) -> Cllmfile:
    file = read_cllmfile(world.write_here(text), in_user_folder=False)
    assert file is not None
    return file


def ledger(world) -> TrustLedger:
    return TrustLedger(world.home / ".cllm")


def test_every_dangerous_key_of_the_design_needs_trust():
    assert set(DANGEROUS) == set(DANGEROUS_KEYS)


def test_every_key_is_either_dangerous_or_known_to_be_harmless():
    """A new key must be added to one of the three lists, after a look at what it can do."""
    assert {*DANGEROUS_KEYS, *DANGEROUS_BY_VALUE, *HARMLESS} == CLLM_KEYS | PROVIDER_KEYS
    assert len({*DANGEROUS_KEYS, *DANGEROUS_BY_VALUE, *HARMLESS}) == sum(
        map(len, (DANGEROUS_KEYS, DANGEROUS_BY_VALUE, HARMLESS))
    )


@pytest.mark.parametrize("key", sorted(DANGEROUS_BY_VALUE))
def test_some_keys_are_dangerous_by_value(key):
    dangerous, harmless = DANGEROUS_BY_VALUE[key]

    assert dangerous_settings({key: dangerous}) == {key: dangerous}
    if harmless is not None:
        assert dangerous_settings({key: harmless}) == {}


@pytest.mark.parametrize("field", DANGEROUS_FIELDS)
def test_a_field_that_sends_prompts_elsewhere_needs_trust(field):
    assert dangerous_settings({field: ["x"]}) == {field: ["x"]}


@pytest.mark.parametrize(
    ("tools", "is_dangerous"),
    [
        ([{"type": "mcp", "server_url": "https://x.test"}], True),
        ([{"type": "function", "function": {"name": "f"}}, {"type": "web_search"}], True),
        ([{"type": ["mcp"]}], True),
        ([{"type": "function", "function": {"name": "f"}}, {"type": "custom"}], False),
        ([{"name": "f", "input_schema": {}}], False),
        ("web_search", False),
    ],
)
def test_a_tool_that_the_provider_runs_needs_trust(tools, is_dangerous):
    assert bool(dangerous_settings({"tools": tools})) == is_dangerous


@pytest.mark.parametrize("key", sorted(DANGEROUS))
@pytest.mark.parametrize("folder", ["", ".cllm/"])
def test_a_dangerous_key_of_the_directory_needs_trust(world, key, folder):
    text = f"model: a\n{key}: {DANGEROUS[key]}\n"
    path = world.write_dot(text) if folder else world.write_here(text)

    with pytest.raises(UntrustedFileError) as caught:
        world.load()
    assert caught.value.keys == (key,)
    assert caught.value.path == str(path)
    assert f"cllm trust {path}" in str(caught.value)


@pytest.mark.parametrize("key", sorted(DANGEROUS))
def test_the_user_s_own_files_are_trusted(world, tmp_path, key):
    text = f"{key}: {DANGEROUS[key]}\n"
    world.write_home(text)
    named = tmp_path / "named"
    named.mkdir()
    (named / "Cllmfile.yml").write_text(text, encoding="utf-8")

    assert world.load().notices == ()
    assert world.load(cllm_path=named).notices == ()


def test_with_an_explicit_folder_the_file_of_the_directory_is_not_read(world, tmp_path):
    world.write_here("api_base: http://x")

    assert world.load(cllm_path=tmp_path).top_providers == ()


def test_the_ledger_is_flushed_to_disk_before_it_replaces_the_old_one(world, monkeypatch):
    world.write_here("api_base: http://x")
    flushed = []
    monkeypatch.setattr(
        "os.fsync", lambda _: flushed.append((world.home / ".cllm/trusted.json").exists())
    )

    ledger = TrustLedger(world.home / ".cllm")
    file = read_cllmfile(world.work / "Cllmfile.yml", in_user_folder=False)
    assert file is not None
    ledger.trust(file)

    assert flushed == [False]
    assert (world.home / ".cllm/trusted.json").exists()


def test_harmless_keys_need_no_trust(world):
    world.write_here("{model: a, temperature: 1, default_system_message: Hi, user: '${HOME}'}")

    assert world.load().model == "a"


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "GH_TOKEN", "my_secret", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY"]
)
@pytest.mark.parametrize("shape", ["'${%s}'", "['a ${%s} b']", "{x: {y: '${%s}'}}"])
def test_a_variable_that_looks_like_a_secret_needs_trust_under_any_key(world, name, shape):
    world.write_here(f"user: {shape % name}")

    with pytest.raises(UntrustedFileError) as caught:
        world.load()
    assert caught.value.keys == ("user",)


@pytest.mark.parametrize("name", ["HOME", "USER", "KEYBOARD", "MONKEY_NAME", "TOKENIZER"])
def test_other_variables_need_no_trust(world, name):
    world.write_here(f"user: '${{{name}}}'")

    world.load()


@pytest.mark.parametrize(
    ("value", "trusted"), [("always", True), ("", False), ("1", False), ("never", False)]
)
def test_only_cllm_trust_always_trusts_every_file(world, value, trusted):
    world.write_here("api_base: http://x")
    world.environment["CLLM_TRUST"] = value

    if trusted:
        assert world.load().top_providers[-1].settings.api_base == "http://x"
    else:
        with pytest.raises(UntrustedFileError):
            world.load()


def test_the_command_line_can_trust_one_run(world):
    world.write_here("api_base: http://x")

    assert world.load(trust=True).top_providers[-1].settings.api_base == "http://x"
    with pytest.raises(UntrustedFileError):
        world.load()


class TestLedger:
    def test_a_trusted_file_takes_effect(self, world):
        file = here(world, "{api_base: 'http://x', store: 'memory:', model: a}")

        assert ledger(world).trust(file) == ("api_base", "store")
        assert world.load().store == "memory:"

    def test_a_file_with_nothing_dangerous_leaves_no_entry(self, world):
        assert ledger(world).trust(here(world, "model: a")) == ()
        assert not (world.home / ".cllm/trusted.json").exists()

    @pytest.mark.parametrize(
        "edited",
        [
            "model: b\ndefault_system_message: Other.\napi_base: http://x\nstore: 'memory:'",
            "# a comment\nstore: 'memory:'\napi_base: 'http://x'\n",
        ],
        ids=["other keys", "another order"],
    )
    def test_editing_harmless_keys_does_not_revoke_trust(self, world, edited):
        ledger(world).trust(here(world, "{model: a, api_base: 'http://x', store: 'memory:'}"))
        world.write_here(edited)

        world.load()

    @pytest.mark.parametrize(
        "edited",
        [
            "{api_base: 'http://y'}",
            "{api_base: 'http://x', store: 'memory:'}",
            "{api_base: 'http://x', user: '${MY_KEY}'}",
            "{api_base: 'http://x', providers: {}}",
        ],
    )
    def test_changing_or_adding_a_dangerous_key_revokes_trust(self, world, edited):
        ledger(world).trust(here(world, "{api_base: 'http://x'}"))
        world.write_here(edited)

        with pytest.raises(UntrustedFileError):
            world.load()

    def test_removing_a_dangerous_key_needs_no_trust(self, world):
        ledger(world).trust(here(world, "{api_base: 'http://x'}"))
        world.write_here("model: a")

        world.load()

    def test_several_files_can_be_trusted(self, world):
        for address in ("http://x", "http://y"):
            ledger(world).trust(here(world, f"api_base: {address}"))
        for address in ("http://x", "http://y"):
            world.write_here(f"api_base: {address}")
            assert world.load().top_providers[-1].settings.api_base == address

    def test_trust_applies_to_the_raw_value(self, world):
        world.environment["WHERE"] = "http://x"
        ledger(world).trust(here(world, "api_base: ${WHERE}"))
        world.environment["WHERE"] = "http://y"

        assert world.load().top_providers[-1].settings.api_base == "http://y"

    def test_the_ledger_is_private_and_names_the_file(self, world):
        file = here(world, "api_base: http://x")
        ledger(world).trust(file)
        path = world.home / ".cllm/trusted.json"

        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert json.loads(path.read_bytes()) == {
            fingerprint({"api_base": "http://x"}, file.path.parent): str(file.path)
        }
        assert [entry.name for entry in path.parent.iterdir()] == ["trusted.json"]

    @pytest.mark.parametrize(
        "content",
        [b"", b"{", b"[]", b'{"a": 1}', b"\xff", b'{"a": "\xff"}'],
    )
    def test_an_unreadable_ledger_is_an_error_and_not_overwritten(self, world, content):
        path = world.home / ".cllm/trusted.json"
        path.write_bytes(content)
        file = here(world, "api_base: http://x")

        for act in (ledger(world).check, ledger(world).trust):
            with pytest.raises(SettingsError) as caught:
                act(file)
            assert caught.value.path == str(path)
        assert path.read_bytes() == content

    def test_a_broken_ledger_is_ignored_if_nothing_needs_trust(self, world):
        (world.home / ".cllm/trusted.json").write_bytes(b"{")
        world.write_here("model: a")

        assert world.load().model == "a"

    def test_an_unwritable_ledger_is_one_sentence(self, world, tmp_path):
        (tmp_path / "file").touch()

        with pytest.raises(CllmError, match=r"Cannot write|cannot be read"):
            TrustLedger(tmp_path / "file" / "deep").trust(here(world, "api_base: http://x"))


@pytest.mark.parametrize(
    "text",
    [
        "providers: {1: {}, b: {c: null}}",
        "context_commands: [{timeout: 2025-01-01}, {at: 2025-01-01 12:00:00}]",
        "store: .nan",
        "store: 123456789012345678901234567890",
        "extra_headers: {a: yes, b: 0o17, c: '\u2028'}",
    ],
)
def test_every_yaml_value_has_a_fingerprint(world, text):
    file = here(world, text)

    parts = dangerous_settings(file.content)
    assert fingerprint(parts, FOLDER) == fingerprint(
        dangerous_settings(here(world, text).content), FOLDER
    )
    with pytest.raises(UntrustedFileError):
        ledger(world).check(file)


def test_the_fingerprint_does_not_depend_on_the_order_of_keys():
    assert fingerprint({"a": {"x": 1, "y": 2}, "b": 3}, FOLDER) == fingerprint(
        {"b": 3, "a": {"y": 2, "x": 1}}, FOLDER
    )
    assert fingerprint({"a": [1, 2]}, FOLDER) != fingerprint({"a": [2, 1]}, FOLDER)

"""API keys in the keyring and in the file."""

import json
import stat
from pathlib import Path

import keyring
import pytest
from keyring.backends import fail
from tests.file_keyring import VARIABLE, FileKeyring

from cllm.core.errors import CllmError, SettingsError
from cllm.settings.saved_keys import KEYRING, SavedKeys


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SavedKeys:
    monkeypatch.setattr(keyring, "get_keyring", fail.Keyring)
    return SavedKeys(tmp_path / ".cllm")


@pytest.fixture
def keyring_file(keys: SavedKeys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the keyring that the system has."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "keyring.json"))
    monkeypatch.setattr(keyring, "get_keyring", FileKeyring)
    return tmp_path / "keyring.json"


def find(keys: SavedKeys, provider: str) -> tuple[str, str] | None:
    found = keys.find(provider, is_needed=True)
    return None if found is None else (found.key, found.place)


def test_without_a_keyring_the_key_is_in_a_private_file(keys: SavedKeys) -> None:
    assert find(keys, "openai") is None
    assert keys.save("openai", "sk-1") == str(keys.path)
    assert find(keys, "openai") == ("sk-1", str(keys.path))
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.path.parent.stat().st_mode) == 0o700
    assert "sk-1" not in repr(keys.find("openai", is_needed=True))


def test_a_key_replaces_the_earlier_one_only(keys: SavedKeys) -> None:
    for provider, key in (("openai", "sk-1"), ("groq", "gsk"), ("openai", "sk-2")):
        keys.save(provider, key)
    assert find(keys, "openai") == ("sk-2", str(keys.path))
    assert find(keys, "groq") == ("gsk", str(keys.path))
    assert [one.provider for one in keys.list_keys()] == ["groq", "openai"]
    assert [one.key for one in keys.list_keys()] == ["", ""]


def test_the_last_removed_key_removes_the_file(keys: SavedKeys) -> None:
    keys.save("openai", "sk-1")
    assert keys.remove("groq") is None
    assert keys.remove("openai") == str(keys.path)
    assert keys.remove("openai") is None
    assert not keys.path.exists()


def test_a_key_in_the_keyring_is_not_in_the_file(keys: SavedKeys, keyring_file: Path) -> None:
    keys.save("groq", "gsk")
    keyring_file.unlink()
    assert keys.save("openai", "sk-1") == KEYRING
    assert find(keys, "openai") == ("sk-1", KEYRING)
    assert "sk-1" not in keys.path.read_text()
    assert keys.read_file_keys() == []
    assert [(one.provider, one.place) for one in keys.list_keys()][1] == ("openai", KEYRING)
    assert keys.remove("openai") == KEYRING
    assert json.loads(keyring_file.read_text()) == {}


def test_the_keyring_has_priority_over_the_file(keys: SavedKeys, keyring_file: Path) -> None:
    keys.path.parent.mkdir()
    keys.path.write_text('{"openai": {"key": "sk-file"}}')
    assert find(keys, "openai") == ("sk-file", str(keys.path))
    keyring_file.write_text('{"cllm/openai": "sk-ring"}')
    assert find(keys, "openai") == ("sk-ring", KEYRING)


def test_the_keyring_is_read_only_for_listed_providers(keys: SavedKeys, keyring_file: Path) -> None:
    keyring_file.write_text('{"cllm/ollama": "x"}')
    assert keys.find("ollama", is_needed=False) is None
    keys.save("ollama", "y")
    found = keys.find("ollama", is_needed=False)
    assert found is not None
    assert found.key == "y"


def test_a_locked_keyring_is_an_error_only_if_it_has_the_key(
    keys: SavedKeys, keyring_file: Path
) -> None:
    keys.save("openai", "sk-1")
    keyring_file.unlink()
    keyring_file.mkdir()
    with pytest.raises(SettingsError, match=r"unlock it.*cllm keys set openai"):
        keys.find("openai", is_needed=True)
    with pytest.raises(SettingsError, match="unlock it"):
        keys.remove("openai")
    assert keys.find("groq", is_needed=True) is None
    assert keys.save("openai", "sk-2") == str(keys.path)
    assert find(keys, "openai") == ("sk-2", str(keys.path))


@pytest.mark.parametrize("content", ["not json", "[]", '{"openai": 1}', '{"openai": {"key": 1}}'])
def test_a_damaged_file_is_named_and_not_replaced(keys: SavedKeys, content: str) -> None:
    keys.path.parent.mkdir()
    keys.path.write_text(content)
    with pytest.raises(SettingsError, match="repair or delete it"):
        keys.find("openai", is_needed=True)
    with pytest.raises(SettingsError, match="repair or delete it"):
        keys.save("openai", "sk-1")
    assert keys.path.read_text() == content


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CllmError, match=r"Cannot write .*/file/keys.json \(not a directory\)"):
        SavedKeys(tmp_path / "file").save("openai", "sk-1")


def test_a_keyring_that_cannot_be_loaded_is_not_used(
    keys: SavedKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_to_load() -> None:
        raise ModuleNotFoundError("No module named 'nowhere'")

    monkeypatch.setattr(keyring, "get_keyring", fail_to_load)
    assert find(keys, "openai") is None
    assert keys.save("openai", "sk-1") == str(keys.path)
    assert find(keys, "openai") == ("sk-1", str(keys.path))
    assert keys.remove("openai") == str(keys.path)


class ForgetfulKeyring(FileKeyring):
    """Accepts every key, and has another value."""

    value: object = None

    def get_password(self, service: str, username: str) -> str | None:  # noqa: ARG002
        return self.value  # type: ignore[return-value]

    def set_password(self, service: str, username: str, password: str) -> None:
        """Save nothing."""


@pytest.mark.parametrize("value", [None, 42])
def test_a_key_that_the_keyring_does_not_return_is_in_the_file(
    keys: SavedKeys, monkeypatch: pytest.MonkeyPatch, value: object
) -> None:
    monkeypatch.setattr(ForgetfulKeyring, "value", value)
    monkeypatch.setattr(keyring, "get_keyring", ForgetfulKeyring)
    assert find(keys, "openai") is None
    assert keys.save("openai", "sk-1") == str(keys.path)
    assert find(keys, "openai") == ("sk-1", str(keys.path))


def test_a_key_in_the_file_is_removed_although_the_keyring_is_locked(
    keys: SavedKeys, keyring_file: Path
) -> None:
    keyring_file.mkdir()
    assert keys.save("openai", "sk-1") == str(keys.path)
    assert keys.remove("openai") == str(keys.path)
    assert not keys.path.exists()

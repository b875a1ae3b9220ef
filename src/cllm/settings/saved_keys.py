"""API keys that `cllm keys set` saves: in the system keyring, or in a file of the user.

The file lists all providers with a saved key. The key of a provider is in the file, or in the
keyring under the service `cllm`.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from cllm.core.errors import CllmError, SettingsError, StoreUnavailableError
from cllm.files import FileTooLargeError, NotRegularFileError, read_regular_file
from cllm.stores.durable_files import fsync_folder, lock_folder, make_folder, write_file

FILE_NAME = "keys.json"
KEYRING = "system keyring"
SERVICE = "cllm"
MAX_BYTES = 1 << 20
MIN_PRIORITY = 1
"""A backend below this priority is not secure, or refuses every operation."""


class SavedKey(msgspec.Struct, frozen=True, kw_only=True):
    """The key of one provider and where it is; an error message or a log must not contain it."""

    provider: str
    place: str
    key: str = ""

    def __repr__(self) -> str:
        return f"SavedKey(provider={self.provider!r}, place={self.place!r})"


class _Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """`key` is None if the keyring has it."""

    key: str | None = None


class SavedKeys:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / FILE_NAME

    def find(self, provider: str, *, is_needed: bool) -> SavedKey | None:
        """Return the key in the keyring, else the key in the file.

        Unless it `is_needed`, the keyring is read only for a provider that the file lists.
        """
        entry = self._entries().get(provider)
        if is_needed or entry is not None:
            key = self._read_keyring(provider, entry)
            if key:
                return SavedKey(provider=provider, place=KEYRING, key=key)
        if entry is None or not entry.key:
            return None
        return SavedKey(provider=provider, place=str(self.path), key=entry.key)

    def list_keys(self) -> list[SavedKey]:
        """Return the providers with a saved key, without the keys."""
        return [
            SavedKey(provider=name, place=KEYRING if entry.key is None else str(self.path))
            for name, entry in sorted(self._entries().items())
        ]

    def read_file_keys(self) -> list[str]:
        """Return the keys in the file, for the redaction of logs."""
        return [entry.key for entry in self._entries().values() if entry.key]

    def save(self, provider: str, key: str) -> str:
        """Save the key in the keyring if one works, else in the file; return the place."""
        with self._lock():
            entries = self._entries()
            is_in_keyring = self._write_keyring(provider, key)
            self._write(entries | {provider: _Entry(None if is_in_keyring else key)})
        return KEYRING if is_in_keyring else str(self.path)

    def remove(self, provider: str) -> str | None:
        """Delete a key; return its place, or None if no key was saved."""
        with self._lock():
            entries = self._entries()
            entry = entries.pop(provider, None)
            place = self._delete_from_keyring(provider, entry)
            if entry is not None:
                self._write(entries)
                place = place or (KEYRING if entry.key is None else str(self.path))
        return place

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Exclude other processes from a change of the file."""
        try:
            make_folder(self._folder)
            with lock_folder(self._folder):
                yield
        except (OSError, StoreUnavailableError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            reason = os.strerror(getattr(cause, "errno", 0) or 0).lower()
            raise CllmError(f"Cannot write {self.path} ({reason}); check its folder.") from error

    def _entries(self) -> dict[str, _Entry]:
        try:
            data = read_regular_file(self.path, limit=MAX_BYTES)
            return msgspec.json.decode(data, type=dict[str, _Entry])
        except FileNotFoundError:
            return {}
        except (
            OSError,
            msgspec.MsgspecError,
            UnicodeDecodeError,
            NotRegularFileError,
            FileTooLargeError,
        ) as error:
            raise SettingsError(
                "it cannot be read; repair or delete it.", path=str(self.path)
            ) from error

    def _write(self, entries: dict[str, _Entry]) -> None:
        if entries:
            data = msgspec.json.format(msgspec.json.encode(entries), indent=2) + b"\n"
            write_file(self._folder, FILE_NAME, data)
        else:
            self.path.unlink(missing_ok=True)
            fsync_folder(self._folder)

    def _read_keyring(self, provider: str, entry: _Entry | None) -> str | None:
        backend = _find_keyring()
        if backend is None:
            return None
        try:
            key = backend.get_password(SERVICE, provider)
        except Exception as error:
            if entry is None or entry.key is not None:
                return None
            raise SettingsError(
                f"The {KEYRING} has the key of provider '{provider}', but cannot be read "
                f"({type(error).__name__}); unlock it, or save the key again: "
                f"cllm keys set {provider}"
            ) from error
        return key if isinstance(key, str) else None

    def _write_keyring(self, provider: str, key: str) -> bool:
        """Save the key and read it back; return whether the keyring has it."""
        backend = _find_keyring()
        if backend is None:
            return False
        try:
            backend.set_password(SERVICE, provider, key)
            return bool(backend.get_password(SERVICE, provider) == key)
        except Exception:  # noqa: BLE001 - backends raise errors of other packages
            return False

    def _delete_from_keyring(self, provider: str, entry: _Entry | None) -> str | None:
        backend = _find_keyring()
        if backend is None:
            return None
        try:
            if backend.get_password(SERVICE, provider) is None:
                return None
            backend.delete_password(SERVICE, provider)
        except Exception as error:
            if entry is not None and entry.key is not None:
                # The key is in the file.
                return None
            raise SettingsError(
                f"The {KEYRING} cannot delete the key of provider '{provider}' "
                f"({type(error).__name__}); unlock it and try again."
            ) from error
        return KEYRING


def _find_keyring() -> Any:
    """Return the keyring of the system, or None if no secure one exists or it cannot be loaded."""
    if find_spec("keyring") is None:
        return None
    try:
        # A slow import, only for a provider without a configured key.
        import keyring  # noqa: PLC0415

        backend = keyring.get_keyring()
    except Exception:  # noqa: BLE001 - backends raise errors of other packages
        return None
    return backend if getattr(backend, "priority", 0) >= MIN_PRIORITY else None

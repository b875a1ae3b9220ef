"""A keyring backend in a file, for machines without a keyring: PYTHON_KEYRING_BACKEND names it."""

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

VARIABLE = "TEST_KEYRING_FILE"


class FileKeyring(KeyringBackend):
    priority = 5.0

    @property
    def _path(self) -> Path:
        return Path(os.environ[VARIABLE])

    def _read(self) -> dict[str, str]:
        if self._path.is_dir():
            raise KeyringLocked
        return json.loads(self._path.read_text()) if self._path.exists() else {}

    def get_password(self, service: str, username: str) -> str | None:
        return self._read().get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._path.write_text(json.dumps(self._read() | {f"{service}/{username}": password}))

    def delete_password(self, service: str, username: str) -> None:
        entries = self._read()
        del entries[f"{service}/{username}"]
        self._path.write_text(json.dumps(entries))

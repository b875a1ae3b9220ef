"""The cached model lists of providers; docs/decisions/0028. Never calls a provider.

Shell completion reads them, so this module imports no network library.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from cllm.files import CacheFolder
from cllm.wire.remote_models import RemoteModel

FOLDER = "model-lists"
MAX_FILES = 32
MAX_FILE_BYTES = 512 * 1024
MAX_AGE = timedelta(days=1)


class _CachedList(msgspec.Struct, frozen=True, kw_only=True):
    saved_at: datetime
    models: tuple[RemoteModel, ...]
    provider: str = ""


class CachedModels:
    """`root` is the user's cache folder of cllm. A list is that of a provider at an address."""

    def __init__(self, root: Path) -> None:
        self._files = CacheFolder(
            folder=root / FOLDER, max_files=MAX_FILES, max_bytes=MAX_FILE_BYTES
        )

    def read(self, provider: str, url: str, *, now: datetime) -> tuple[RemoteModel, ...] | None:
        """Return the list; None if it does not exist or is older than a day."""
        data = self._files.read(_make_key(provider, url))
        cached = None if data is None else _decode(data)
        try:
            is_current = cached is not None and timedelta(0) <= now - cached.saved_at < MAX_AGE
        except TypeError:
            # The time has no zone.
            return None
        return cached.models if cached is not None and is_current else None

    def save(
        self, provider: str, url: str, models: tuple[RemoteModel, ...], *, now: datetime
    ) -> None:
        """Save a list, unless it is empty: the server may still load its models."""
        data = msgspec.json.encode(_CachedList(saved_at=now, models=models, provider=provider))
        if models and len(data) <= MAX_FILE_BYTES:
            self._files.write(_make_key(provider, url), data)

    def list_names(self) -> Iterator[str]:
        """Yield the models of all lists, also of old ones, as `provider/name`."""
        for data in self._files.read_all():
            cached = _decode(data)
            if cached is not None and cached.provider:
                yield from (f"{cached.provider}/{model.name}" for model in cached.models)


def _make_key(provider: str, url: str) -> str:
    return f"{provider}\n{url}"


def _decode(data: bytes) -> _CachedList | None:
    try:
        return msgspec.json.decode(data, type=_CachedList)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None

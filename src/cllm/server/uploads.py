"""Archives that clients upload in pieces, each in a private folder until its import ends.

The folders are in the user's cache folder, by store, so that all workers of a machine find them. A
lock says that a process writes to an upload or imports it; the system releases it with the process.
Never reads the content of an archive.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from cllm.core.conversation import is_valid_id
from cllm.files import write_new_file
from cllm.server.http.errors import ApiError
from cllm.terminal import one_line

FOLDER = "imports"
INFO, PROGRESS, LOCK, DATA = "info.json", "progress.json", "lock", "data"
LIFETIME = timedelta(hours=1)
"""How long an upload without new pieces, and the report of an import, are stored."""
MAX_OPEN = 4
"""Uploads and running imports of one owner."""
MAX_FINISHED = 8
"""Reports of one owner; older ones are deleted."""
MAX_NAME = 100
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
INTERRUPTED = "The server stopped during the import; import the archive again."

UploadState = Literal["uploading", "running", "complete", "failed"]


class UploadInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is the name of the file as the client sent it, for messages only."""

    id: str
    owner: str
    name: str
    size: int
    created_at: datetime


class ImportProgress(msgspec.Struct, frozen=True, kw_only=True):
    """`conversations` counts those that were read. `report` follows at the end."""

    state: UploadState = "running"
    conversations: int = 0
    error: str | None = None
    report: dict[str, Any] | None = None


UPLOADING = ImportProgress(state="uploading")


class Upload:
    """One upload: its folder and what was stored when it was created."""

    def __init__(self, folder: Path, info: UploadInfo) -> None:
        self.info = info
        self._folder = folder
        safe_name = UNSAFE.sub("_", info.name).lstrip(".")[-MAX_NAME:]
        self.path = folder / DATA / (safe_name or "archive")
        """The archive. Readers see the end of its name, by which some recognise formats."""

    @property
    def exists(self) -> bool:
        return (self._folder / INFO).exists()

    @property
    def received(self) -> int:
        """The number of bytes that have arrived; those of an imported archive are deleted."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return self.info.size if self.progress.state != "uploading" else 0

    @property
    def progress(self) -> ImportProgress:
        progress = self._read_progress()
        if progress.state != "running":
            return progress
        try:
            with self.lock():
                progress = self._read_progress()
        except ApiError:
            return progress
        if progress.state == "running":
            return msgspec.structs.replace(progress, state="failed", error=INTERRUPTED)
        return progress

    def _read_progress(self) -> ImportProgress:
        try:
            data = (self._folder / PROGRESS).read_bytes()
        except FileNotFoundError:
            return UPLOADING
        return msgspec.json.decode(data, type=ImportProgress)

    def write_progress(self, progress: ImportProgress) -> None:
        """Replace the progress; does nothing if the upload was deleted."""
        temporary = self._folder / f"{PROGRESS}.{os.urandom(4).hex()}"
        with contextlib.suppress(FileNotFoundError):
            write_new_file(temporary, msgspec.json.encode(progress))
            temporary.replace(self._folder / PROGRESS)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the upload; raises ApiError if another request has it."""
        try:
            descriptor = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            raise not_found() from None
        with os.fdopen(descriptor):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise conflict("Another request uses this import; wait for its end.") from None
            yield

    def append(self, offset: int, data: bytes) -> int:
        """Write a piece and return the new size; a piece is written whole or not at all."""
        with self.lock():
            if self._read_progress().state != "uploading":
                raise conflict("The archive is complete and its import has started.")
            received = self.received
            if offset != received:
                raise conflict(
                    f"The next piece starts at offset {received}; send the bytes from there on."
                )
            if offset + len(data) > self.info.size:
                raise conflict(
                    f"The archive has {self.info.size} bytes, and this piece exceeds them; start a "
                    "new import with the right size."
                )
            with _report_os_error(), self.path.open("r+b") as file:
                try:
                    file.seek(offset)
                    file.write(data)
                    file.flush()
                except OSError:
                    with contextlib.suppress(OSError):
                        os.ftruncate(file.fileno(), offset)
                    raise
            return offset + len(data)

    def delete_archive(self) -> None:
        shutil.rmtree(self.path.parent, ignore_errors=True)

    def delete(self) -> None:
        # First the file by which the process that imports it notices.
        (self._folder / INFO).unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def is_expired(self, now: datetime) -> bool:
        times = [
            path.stat().st_mtime
            for path in (self.path, self._folder / PROGRESS, self._folder / INFO)
            if path.exists()
        ]
        is_old = max(times, default=0) < (now - LIFETIME).timestamp()
        return is_old and self.progress.state != "running"


class UploadFolder:
    """The uploads of one store. `cache` is the user's cache folder."""

    def __init__(self, cache: Path, store: str) -> None:
        digest = hashlib.sha256(store.encode()).hexdigest()[:16]
        self._root = cache / FOLDER / digest

    def create(self, info: UploadInfo) -> Upload:
        self.delete_expired(info.created_at)
        self._check_number(info.owner)
        upload = Upload(self._root / info.id, info)
        with _report_os_error():
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._root.chmod(0o700)
            upload.path.parent.parent.mkdir(mode=0o700)
            upload.path.parent.mkdir(mode=0o700)
            write_new_file(upload.path, b"")
            write_new_file(self._root / info.id / INFO, msgspec.json.encode(info))
        return upload

    def find(self, upload_id: str, owner: str) -> Upload:
        upload = self._load(upload_id) if is_valid_id(upload_id) else None
        if upload is None or upload.info.owner != owner:
            raise not_found()
        return upload

    def delete(self, upload_id: str) -> None:
        upload = self._load(upload_id)
        if upload is not None:
            upload.delete()

    def delete_expired(self, now: datetime) -> None:
        """Delete old uploads, and folders without a description, as a crash leaves them."""
        with contextlib.suppress(OSError):
            for folder in self._root.iterdir():
                upload = self._load(folder.name)
                if upload is not None:
                    is_old = upload.is_expired(now)
                else:
                    is_old = folder.stat().st_mtime < (now - LIFETIME).timestamp()
                if is_old:
                    shutil.rmtree(folder, ignore_errors=True)

    def list_uploads(self, owner: str) -> list[Upload]:
        """Return the uploads of an owner, the newest first."""
        mine = [upload for upload in self._list() if upload.info.owner == owner]
        return sorted(mine, key=lambda one: one.info.created_at, reverse=True)

    def _check_number(self, owner: str) -> None:
        mine = self.list_uploads(owner)
        finished = [one for one in mine if one.progress.state in ("complete", "failed")]
        if len(mine) - len(finished) >= MAX_OPEN:
            raise ApiError(
                "too_many_imports",
                f"At most {MAX_OPEN} imports can be open at the same time; finish or delete one.",
            )
        for upload in finished[MAX_FINISHED - 1 :]:
            upload.delete()

    def _list(self) -> list[Upload]:
        try:
            names = [path.name for path in self._root.iterdir()]
        except OSError:
            return []
        return [upload for name in names if (upload := self._load(name)) is not None]

    def _load(self, name: str) -> Upload | None:
        folder = self._root / name
        try:
            info = msgspec.json.decode((folder / INFO).read_bytes(), type=UploadInfo)
        except (OSError, msgspec.DecodeError):
            return None
        return Upload(folder, info)


def not_found() -> ApiError:
    return ApiError(
        "import_not_found",
        "No import has this ID, or it has expired; start a new one with POST /v1/imports.",
    )


def conflict(message: str) -> ApiError:
    return ApiError("import_conflict", message)


@contextlib.contextmanager
def _report_os_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = one_line(os.strerror(error.errno or 0).lower())
        raise ApiError(
            "imports_unavailable",
            f"The server cannot store the archive ({reason}); import it with `cllm conversations "
            "import` instead.",
        ) from error

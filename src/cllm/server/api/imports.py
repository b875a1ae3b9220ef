"""Import of archives that clients upload in pieces: of other programs, and backups of cllm.

`POST /v1/imports` creates an upload, pieces follow, then the import runs in the background. Its
progress and report are read with GET from any worker of the machine.
"""

import asyncio
import logging
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from cllm.app import find_cache
from cllm.core.errors import CllmError
from cllm.logs import describe_exception, log
from cllm.server.api.views import json_response
from cllm.server.http.errors import UNEXPECTED, ApiError
from cllm.server.http.limits import read_bytes
from cllm.server.http.parameters import read_json, read_query
from cllm.server.state import ApiRequest, ServerState
from cllm.server.uploads import (
    LIFETIME,
    ImportProgress,
    Upload,
    UploadFolder,
    UploadInfo,
    UploadState,
    conflict,
)
from cllm.transfer.import_source import import_source
from cllm.transfer.report import ImportReport
from cllm.transfer.writer import ImportWriter

MAX_PIECE_BYTES = 8 * 1024 * 1024
MAX_LISTED = 200
"""Skipped conversations in a report; the numbers count all."""
PROGRESS_SECONDS = 0.3
STOP_SECONDS = 2
"""How long a cancelled import may take to read its current conversation."""


class NewImportBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name and the size of the file. Its format is recognised by its content."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    size: Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class PieceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`offset` is the number of bytes before the piece."""

    offset: Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class ImportView(msgspec.Struct, frozen=True, kw_only=True):
    """`received` bytes of `size` have arrived; a piece has at most `piece_bytes`.

    `conversations` were read so far. `report` (the numbers of imported, continued, unchanged and
    skipped conversations, and the reasons) and `error` are set at the end.
    """

    id: str
    name: str
    size: int
    received: int
    piece_bytes: int
    state: UploadState
    conversations: int
    error: str | None
    report: dict[str, Any] | None
    created_at: datetime


async def create_import(request: ApiRequest) -> Response:
    """POST /v1/imports."""
    state = request.server
    body = await read_json(request, NewImportBody)
    limit = state.settings.limits.import_bytes
    if body.size > limit:
        raise ApiError(
            "request_too_large",
            f"The archive may have at most {limit} bytes; import it with `cllm conversations "
            "import`, or raise server.limits.import_bytes.",
            param="size",
        )
    info = UploadInfo(
        id=state.new_id(),
        owner=request.caller.owner,
        name=body.name,
        size=body.size,
        created_at=state.clock(),
    )
    upload = await asyncio.to_thread(_open_folder(state).create, info)
    state.imports[info.id] = None
    loop = asyncio.get_running_loop()
    loop.call_later(LIFETIME.total_seconds() + 1, _delete_if_expired, upload, state)
    return await _respond(upload, state, 201)


class ImportListView(msgspec.Struct, frozen=True, kw_only=True):
    imports: tuple[ImportView, ...]


async def list_imports(request: ApiRequest) -> Response:
    """GET /v1/imports: the newest first."""
    state = request.server

    def view_all() -> ImportListView:
        uploads = _open_folder(state).list_uploads(request.caller.owner)
        return ImportListView(imports=tuple(_view(upload, state) for upload in uploads))

    return json_response(await asyncio.to_thread(view_all))


async def append_piece(request: ApiRequest) -> Response:
    """POST /v1/imports/{import_id}/pieces: the body has the bytes from `offset` on."""
    query = read_query(request, PieceQuery)
    upload = await _find(request)
    data = await read_bytes(request, request.server.body_quota)
    try:
        await asyncio.to_thread(upload.append, query.offset, data)
    except ApiError:
        request.error_headers = {"Upload-Offset": str(upload.received)}
        raise
    return await _respond(upload, request.server)


async def run_import(request: ApiRequest) -> Response:
    """POST /v1/imports/{import_id}/run."""
    state = request.server
    upload = await _find(request)
    with ExitStack() as stack:
        stack.enter_context(upload.lock())
        if upload.progress.state != "uploading":
            raise conflict("The import has started already; GET it to read its progress.")
        if upload.received < upload.info.size:
            raise conflict(
                f"{upload.received} of {upload.info.size} bytes have arrived; send the rest first."
            )
        upload.write_progress(ImportProgress())
        lock = stack.pop_all()
    report = ImportReport()
    task = asyncio.create_task(_run(upload, report, state))
    task.add_done_callback(partial(_on_end, upload, lock, report))
    state.imports[upload.info.id] = task
    return await _respond(upload, state, 202)


async def get_import(request: ApiRequest) -> Response:
    """GET /v1/imports/{import_id}."""
    return await _respond(await _find(request), request.server)


async def delete_import(request: ApiRequest) -> Response:
    """DELETE /v1/imports/{import_id}: cancel it. Conversations that were added stay."""
    upload = await _find(request)
    task = request.server.imports.pop(upload.info.id, None)
    if task is not None:
        task.cancel()
        await asyncio.wait((task,), timeout=STOP_SECONDS)
    await asyncio.to_thread(upload.delete)
    return Response(status_code=204)


async def delete_expired_imports(state: ServerState) -> None:
    """Delete what a killed server left behind, unless it is an upload of the last hour."""
    await asyncio.to_thread(_open_folder(state).delete_expired, state.clock())


async def stop_imports(state: ServerState) -> None:
    """Cancel the imports of this process and delete its uploads."""
    tasks = [task for task in state.imports.values() if task is not None]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=STOP_SECONDS)
    folder = _open_folder(state)
    for upload_id in state.imports:
        folder.delete(upload_id)
    state.imports.clear()


def _open_folder(state: ServerState) -> UploadFolder:
    settings = state.app.settings
    return UploadFolder(find_cache(settings.env), settings.store)


async def _find(request: ApiRequest) -> Upload:
    folder = _open_folder(request.server)
    owner = request.caller.owner
    return await asyncio.to_thread(folder.find, request.path_params["import_id"], owner)


async def _respond(upload: Upload, state: ServerState, status: int = 200) -> Response:
    return json_response(await asyncio.to_thread(_view, upload, state), status)


def _view(upload: Upload, state: ServerState) -> ImportView:
    info, progress = upload.info, upload.progress
    return ImportView(
        id=info.id,
        name=info.name,
        size=info.size,
        received=upload.received,
        piece_bytes=min(MAX_PIECE_BYTES, state.settings.limits.body_bytes),
        state=progress.state,
        conversations=progress.conversations,
        error=progress.error,
        report=progress.report,
        created_at=info.created_at,
    )


def _delete_if_expired(upload: Upload, state: ServerState) -> None:
    if upload.exists and upload.is_expired(state.clock()):
        upload.delete()
        state.imports.pop(upload.info.id, None)


class _CancelledImportError(CllmError):
    """Another request deleted the import."""


async def _run(upload: Upload, report: ImportReport, state: ServerState) -> None:
    counter = _Counter(upload)
    owner = upload.info.owner
    writer = ImportWriter(state.store, report, clock=state.clock, owner=owner)
    error: str | None = None
    try:
        await import_source(
            upload.path,
            writer,
            name=None,
            clock=state.clock,
            on_item=counter.add,
            can_read_neighbours=False,
        )
    except _CancelledImportError:
        return
    except CllmError as problem:
        error = str(problem).replace(str(upload.path), upload.info.name)
    upload.write_progress(
        ImportProgress(
            state="complete" if error is None else "failed",
            conversations=counter.count,
            error=error,
            report=_shorten(report),
        )
    )


def _shorten(report: ImportReport) -> dict[str, Any]:
    fields = report.fields()
    skipped = fields["skipped_conversations"][:MAX_LISTED]
    return {**fields, "skipped_conversations": skipped}


def _on_end(
    upload: Upload, lock: ExitStack, report: ImportReport, task: asyncio.Task[None]
) -> None:
    """Delete the archive, record a bug, and release the lock."""
    upload.delete_archive()
    if task.cancelled():
        upload.delete()
    elif (bug := task.exception()) is not None:
        log("server", logging.ERROR, "unexpected error", fault=describe_exception(bug))
        error = UNEXPECTED.message
        upload.write_progress(ImportProgress(state="failed", error=error, report=_shorten(report)))
    lock.close()


class _Counter:
    """Counts conversations, and writes the number at most every PROGRESS_SECONDS."""

    def __init__(self, upload: Upload) -> None:
        self.count = 0
        self._upload = upload
        self._loop = asyncio.get_running_loop()
        self._written_at = self._loop.time()

    def add(self) -> None:
        self.count += 1
        if not self._upload.exists:
            raise _CancelledImportError
        if self._loop.time() - self._written_at >= PROGRESS_SECONDS:
            self._written_at = self._loop.time()
            self._upload.write_progress(ImportProgress(conversations=self.count))

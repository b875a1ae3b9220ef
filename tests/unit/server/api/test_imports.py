"""Import of archives in pieces: uploads, progress, report, limits and owners."""

import asyncio
import io
import json
import os
import stat
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.import_sources import chatgpt_cats, chatgpt_conversation, chatgpt_node
from tests.server_app import KEYS, SETTINGS_WITH_KEYS, ServerApp, open_server_app

from cllm.server.api.imports import delete_expired_imports, stop_imports
from cllm.server.http.errors import UNEXPECTED
from cllm.server.uploads import LIFETIME, MAX_OPEN

ALICE = {"Authorization": f"Bearer {KEYS['alice']}"}
BOB = {"Authorization": f"Bearer {KEYS['bob']}"}
UNKNOWN = "11111111-2222-4333-8444-555555555555"


def zip_bytes(files: dict[str, Any]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content if isinstance(content, bytes) else json.dumps(content))
    return target.getvalue()


NODES = (
    chatgpt_node("q", None, "user", "A question?"),
    chatgpt_node("a", "q", "assistant", "Yes."),
)
CATS = zip_bytes({"conversations.json": [chatgpt_cats()]})


async def start(server: ServerApp, data: bytes, name: str = "cats.zip", **options: Any) -> str:
    body = {"name": name, "size": len(data)}
    created = await server("POST", "/v1/imports", json=body, **options)
    assert created.status_code == 201, created.text
    import_id: str = created.json()["id"]
    return import_id


async def send(server: ServerApp, import_id: str, offset: int, data: bytes, **options: Any) -> Any:
    path = f"/v1/imports/{import_id}/pieces?offset={offset}"
    return await server("POST", path, content=data, **options)


async def wait_for_end(server: ServerApp, import_id: str, **options: Any) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            view: dict[str, Any] = await server.get(f"/v1/imports/{import_id}", **options)
            if view["state"] in ("complete", "failed"):
                return view
            await asyncio.sleep(0.01)


async def import_bytes(server: ServerApp, data: bytes, name: str = "cats.zip") -> dict[str, Any]:
    import_id = await start(server, data, name)
    assert (await send(server, import_id, 0, data)).status_code == 200
    run = await server("POST", f"/v1/imports/{import_id}/run")
    assert run.status_code == 202
    return await wait_for_end(server, import_id)


def list_files(folder: Path) -> list[Path]:
    return [path for path in (folder / "home/.cache/cllm/imports").rglob("*") if path.is_file()]


async def test_an_archive_is_imported_in_pieces(tmp_path):
    async with open_server_app(tmp_path) as server:
        import_id = await start(server, CATS)
        half = len(CATS) // 2
        first = await send(server, import_id, 0, CATS[:half])
        assert (first.json()["received"], first.json()["state"]) == (half, "uploading")
        early = await server("POST", f"/v1/imports/{import_id}/run")
        assert (early.status_code, early.json()["error"]["code"]) == (409, "import_conflict")
        again = await send(server, import_id, 0, CATS[:half])
        assert again.status_code == 409
        assert f"offset {half}" in again.json()["error"]["message"]
        assert again.headers["upload-offset"] == str(half)
        await send(server, import_id, half, CATS[half:])
        spooled = [path for path in list_files(tmp_path) if path.name == "cats.zip"]
        assert [stat.S_IMODE(path.stat().st_mode) for path in spooled] == [0o600]
        assert [path.read_bytes() for path in spooled] == [CATS]

        await server("POST", f"/v1/imports/{import_id}/run")
        view = await wait_for_end(server, import_id)

        assert (view["state"], view["error"], view["conversations"]) == ("complete", None, 1)
        assert view["report"]["conversations"]["imported"] == 1
        assert (await server.get("/v1/conversations"))["total"] >= 1
        assert not [path for path in list_files(tmp_path) if path.name == "cats.zip"]
        assert [one["id"] for one in (await server.get("/v1/imports"))["imports"]] == [import_id]
        twice = await server("POST", f"/v1/imports/{import_id}/run")
        assert twice.status_code == 409
        assert (await send(server, import_id, len(CATS), b"")).status_code == 409
        deleted = await server("DELETE", f"/v1/imports/{import_id}")
        assert deleted.status_code == 204
        assert (await server("GET", f"/v1/imports/{import_id}")).status_code == 404
        assert list_files(tmp_path) == []


async def test_importing_again_adds_nothing(tmp_path):
    async with open_server_app(tmp_path) as server:
        await import_bytes(server, CATS)
        view = await import_bytes(server, CATS)
        numbers = view["report"]["conversations"]
        assert numbers["imported"] == 0
        assert numbers["unchanged"] >= 1


async def test_requests_can_reach_different_workers(tmp_path):
    """Two applications with one home and one database are two workers."""
    store = f"sqlite:{tmp_path / 'both.db'}"
    async with (
        open_server_app(tmp_path, store=store) as one,
        open_server_app(tmp_path, store=store) as other,
    ):
        import_id = await start(one, CATS)
        await send(other, import_id, 0, CATS[:100])
        await send(one, import_id, 100, CATS[100:])
        await other("POST", f"/v1/imports/{import_id}/run")
        view = await wait_for_end(one, import_id)
        assert view["report"]["conversations"]["imported"] == 1


async def test_uploads_are_deleted_when_the_server_stops(tmp_path):
    async with open_server_app(tmp_path) as server:
        await send(server, await start(server, CATS), 0, CATS[:50])
        assert list_files(tmp_path)
        await stop_imports(server.state)
        assert list_files(tmp_path) == []


async def test_a_running_import_can_be_cancelled_by_any_worker(tmp_path):
    store = f"sqlite:{tmp_path / 'both.db'}"
    many = zip_bytes(
        {"conversations.json": [chatgpt_conversation(f"n{n}", *NODES) for n in range(2000)]}
    )
    async with (
        open_server_app(tmp_path, store=store) as one,
        open_server_app(tmp_path, store=store) as other,
    ):
        for canceller in (one, other):
            import_id = await start(one, many)
            await send(one, import_id, 0, many)
            await one("POST", f"/v1/imports/{import_id}/run")
            task = one.state.imports[import_id]
            assert (await canceller("DELETE", f"/v1/imports/{import_id}")).status_code == 204
            assert task is not None
            await asyncio.wait((task,), timeout=20)
            assert task.done()
            assert (await one("GET", f"/v1/imports/{import_id}")).status_code == 404
            assert list_files(tmp_path) == []
        assert (await one.get("/v1/conversations"))["total"] < 2000


HOSTILE = {
    "empty.zip": b"PK\x05\x06" + bytes(18),
    "text.zip": b"This is not an archive.",
    "cut.zip": CATS[: len(CATS) // 2],
    "deep.json": b'{"mapping":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep.zip": zip_bytes({"conversations.json": b"[" * 200_000}),
    "bomb.zip": zip_bytes({"conversations.json": bytes(30_000_000)}),
    "names.zip": zip_bytes({"../../etc/passwd": b"x", "/conversations.json": [{"mapping": {}}]}),
    "types.json": json.dumps(
        [{"mapping": {"a": {"message": 3, "parent": []}}, "title": {}}]
    ).encode(),
    "loop.json": json.dumps(
        [{"mapping": {"a": {"id": "a", "parent": "a", "children": ["a"]}}}]
    ).encode(),
    "data.db": b"SQLite format 3\0" + bytes(range(256)) * 20,
    "lone.jsonl": b'{"sessionId": "\\ud800", "type": "user"}\n' * 3,
    "../../../x\0.zip": CATS,
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_archive_ends_with_a_report(tmp_path, name):
    async with open_server_app(tmp_path) as server:
        view = await import_bytes(server, HOSTILE[name], name)

        assert view["state"] in ("complete", "failed")
        assert view["report"] is not None
        assert view["error"] != UNEXPECTED.message
        assert str(tmp_path) not in json.dumps(view)
        assert not [one for one in list_files(tmp_path) if one.parent.name == "data"]


async def test_another_owner_sees_no_import(tmp_path):
    async with open_server_app(tmp_path, SETTINGS_WITH_KEYS) as server:
        import_id = await start(server, CATS, headers=ALICE)
        for method, path in (
            ("GET", ""),
            ("POST", "/run"),
            ("POST", "/pieces?offset=0"),
            ("DELETE", ""),
        ):
            texts = []
            for one in (import_id, UNKNOWN, "..", "%2e%2e%2f"):
                response = await server(method, f"/v1/imports/{one}{path}", headers=BOB)
                assert response.status_code in (404, 405), (method, path, one)
                texts.append(response.text)
            assert texts[0] == texts[1]
        assert (await server.get("/v1/imports", headers=BOB))["imports"] == []
        await send(server, import_id, 0, CATS, headers=ALICE)
        await server("POST", f"/v1/imports/{import_id}/run", headers=ALICE)
        await wait_for_end(server, import_id, headers=ALICE)
        assert (await server.get("/v1/conversations", headers=ALICE))["total"] >= 1
        assert (await server.get("/v1/conversations", headers=BOB))["total"] == 0


async def test_the_size_and_the_number_of_uploads_are_limited(tmp_path):
    async with open_server_app(tmp_path, "server: {limits: {import_bytes: 1000}}") as server:
        large = await server("POST", "/v1/imports", json={"name": "a.zip", "size": 1001})
        assert (large.status_code, large.json()["error"]["code"]) == (413, "request_too_large")
        ids = [await start(server, b"x" * 10) for _ in range(MAX_OPEN)]
        more = await server("POST", "/v1/imports", json={"name": "a.zip", "size": 10})
        assert (more.status_code, more.json()["error"]["code"]) == (429, "too_many_imports")
        beyond = await send(server, ids[0], 0, b"x" * 11)
        assert (beyond.status_code, beyond.json()["error"]["code"]) == (409, "import_conflict")
        await server("DELETE", f"/v1/imports/{ids[0]}")
        await start(server, b"x" * 10)


async def test_an_abandoned_upload_expires(tmp_path):
    async with open_server_app(tmp_path) as server:
        import_id = await start(server, CATS)
        old = (server.state.clock() - LIFETIME - timedelta(minutes=1)).timestamp()
        for path in list_files(tmp_path):
            os.utime(path, (old, old))
        await delete_expired_imports(server.state)
        assert (await server("GET", f"/v1/imports/{import_id}")).status_code == 404
        assert list_files(tmp_path) == []


async def test_a_folder_that_cannot_be_written_is_an_error_with_advice(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.cache").write_text("a file", encoding="utf-8")
    async with open_server_app(tmp_path) as server:
        response = await server("POST", "/v1/imports", json={"name": "a.zip", "size": 10})
        assert (response.status_code, response.json()["error"]["code"]) == (
            503,
            "imports_unavailable",
        )
        assert "cllm conversations import" in response.json()["error"]["message"]

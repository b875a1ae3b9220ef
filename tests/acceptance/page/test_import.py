"""Import of archives in the page: drop, progress, report, cancel."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect
from tests.import_sources import chatgpt_cats, chatgpt_conversation, chatgpt_node, write_zip
from tests.server_process import Server

DROP = """
(data) => {
  const bytes = Uint8Array.from(atob(data.content), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], data.name, { type: data.kind }));
  const options = { dataTransfer: transfer, bubbles: true, cancelable: true };
  const target = document.querySelector(data.target);
  target.dispatchEvent(new DragEvent("dragover", options));
  globalThis.hadOverlay = Boolean(document.querySelector(".import-overlay"));
  target.dispatchEvent(new DragEvent("drop", options));
}
"""


@pytest.fixture(scope="module")
def served_settings() -> dict[str, Any]:
    return {"server": {"limits": {"body_bytes": 1000}}}


@pytest.fixture
def drop(page: Page) -> Callable[..., None]:
    def drop(path: Path, target: str = "#list", *, kind: str = "application/zip") -> None:
        content = base64.b64encode(path.read_bytes()).decode()
        data = {"content": content, "name": path.name, "target": target, "kind": kind}
        page.evaluate(DROP, data)

    return drop


def find_panel(page: Page) -> Locator:
    return page.get_by_role("region", name="Import an archive")


def test_a_dropped_archive_is_imported_in_pieces_with_a_report(
    server: Server, page: Page, drop: Callable[..., None], tmp_path: Path
):
    """The archive is larger than the body limit."""
    damaged = {"id": "broken", "title": "Broken one", "mapping": 3}
    archive = write_zip(tmp_path / "chatgpt.zip", {"conversations.json": [chatgpt_cats(), damaged]})
    assert archive.stat().st_size > 1000
    page.goto("/")
    drop(archive)
    assert page.evaluate("globalThis.hadOverlay")

    panel = find_panel(page)
    expect(panel).to_contain_text("chatgpt.zip is imported")
    expect(panel).to_contain_text("Imported: 1")
    panel.get_by_text("Details (").click()
    expect(panel.locator("li").first).to_be_visible()
    expect(page.locator(".import-overlay")).to_have_count(0)
    expect(page.locator("#rows .row").first).to_be_visible()
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_have_count(0)
    assert server("GET", "/v1/imports").json["imports"] == []


def test_an_upload_continues_after_a_lost_connection(
    page: Page, drop: Callable[..., None], tmp_path: Path, expected_problems: list[str]
):
    expected_problems.append("ERR_CONNECTION_RESET")
    archive = write_zip(tmp_path / "again.zip", {"conversations.json": [chatgpt_cats()]})
    requests: list[str] = []

    def fail_once(route: Route) -> None:
        requests.append(route.request.url)
        if len(requests) == 2:
            route.abort("connectionreset")
        else:
            route.continue_()

    page.route("**/pieces*", fail_once)
    page.goto("/")
    drop(archive)
    expect(find_panel(page)).to_contain_text("again.zip is imported")
    assert requests[1] == requests[2]


def test_an_unknown_file_is_reported_in_the_server_s_words(
    page: Page, drop: Callable[..., None], tmp_path: Path
):
    path = tmp_path / "notes.zip"
    path.write_bytes(b"This is not an archive.")
    page.goto("/")
    drop(path)
    panel = find_panel(page)
    expect(panel).to_contain_text("notes.zip was not imported completely")
    expect(panel.locator(".failure")).to_contain_text("The format of notes.zip is not known")


def test_an_import_can_be_cancelled(
    server: Server, page: Page, drop: Callable[..., None], tmp_path: Path
):
    nodes = (
        chatgpt_node("q", None, "user", "A question?"),
        chatgpt_node("a", "q", "assistant", "Yes."),
    )
    many = [chatgpt_conversation(f"n{number}", *nodes) for number in range(20)]
    archive = write_zip(tmp_path / "many.zip", {"conversations.json": many})
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/pieces*", hold)
    page.goto("/")
    drop(archive)
    panel = find_panel(page)
    expect(panel).to_contain_text("Uploading many.zip")
    panel.get_by_role("button", name="Cancel").click()
    expect(page.locator(".toast", has_text="many.zip is cancelled")).to_be_visible()
    expect(panel).to_have_count(0)
    page.wait_for_function("fetch('/v1/imports').then(r => r.json()).then(d => !d.imports.length)")
    for route in held:
        route.abort()


def test_an_archive_is_imported_and_a_text_attached_in_an_open_conversation(
    server: Server, page: Page, drop: Callable[..., None], tmp_path: Path
):
    conversation = server.complete(("user", "Hello."), conversation="").conversation
    text = tmp_path / "notes.txt"
    text.write_text("Some notes.", encoding="utf-8")
    archive = write_zip(tmp_path / "here.zip", {"conversations.json": [chatgpt_cats()]})
    page.goto(f"/c/{conversation}")
    expect(page.locator("#composer")).to_be_visible()

    drop(text, "#turns", kind="text/plain")
    assert not page.evaluate("globalThis.hadOverlay")
    expect(page.locator("#composer .attachments")).to_contain_text("notes.txt")
    expect(find_panel(page)).to_have_count(0)
    drop(archive, "#turns")
    assert page.evaluate("globalThis.hadOverlay")
    expect(find_panel(page)).to_contain_text("here.zip is imported")
    expect(page.locator("#composer .attachments li")).to_have_count(1)


def test_a_file_can_be_selected(page: Page, tmp_path: Path):
    archive = write_zip(tmp_path / "picked.zip", {"conversations.json": [chatgpt_cats()]})
    page.goto("/")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Import an archive").click()
    chooser.value.set_files(archive)
    expect(find_panel(page)).to_contain_text("picked.zip is imported")

"""Rename, archive, restore, delete and export in the page, with the mouse and the keyboard."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.server_process import Server


@pytest.fixture
def conversation(server: Server) -> str:
    """A conversation that is the newest in the list."""
    created = server.complete(("user", "Tell me about owls."), conversation="").conversation
    assert created is not None
    return created


def read(server: Server, conversation: str) -> dict[str, object]:
    fields: dict[str, object] = server("GET", f"/v1/conversations/{conversation}").json
    return fields


def test_a_title_is_changed_in_place(server: Server, page: Page, conversation: str):
    page.goto(f"/c/{conversation}")
    page.get_by_role("button", name="Rename").first.click()
    field = page.get_by_label("Title", exact=True)
    expect(field).to_be_focused()
    expect(field).to_have_value("Tell me about owls.")
    field.fill("Never saved")
    field.press("Escape")
    expect(page.locator("#title")).to_have_text("Tell me about owls.")

    page.keyboard.press("F2")
    field.fill("<b>Owls</b> & friends")
    field.press("Enter")

    expect(page.locator("#title")).to_have_text("<b>Owls</b> & friends")
    expect(page.locator(f".row[data-id='{conversation}'] .title")).to_have_text(
        "<b>Owls</b> & friends"
    )
    expect(page).to_have_title(re.compile("^<b>Owls</b> & friends .* cllm$"))
    assert read(server, conversation)["title"] == "<b>Owls</b> & friends"


def test_archiving_can_be_undone(server: Server, page: Page, conversation: str):
    page.goto("/")
    row = page.locator(f".row[data-id='{conversation}']")
    row.focus()
    page.keyboard.press("a")
    toast = page.locator(".toast", has_text="is in the archive")
    expect(toast).to_be_visible()
    expect(row).to_have_count(0)
    assert read(server, conversation)["archived_at"] is not None

    toast.get_by_role("button", name="Undo").click()

    expect(row).to_be_visible()
    assert read(server, conversation)["archived_at"] is None


def test_an_undone_archive_leaves_the_conversation_at_its_place(
    server: Server, page: Page, conversation: str
):
    for number in range(2):
        server.complete(("user", f"Newer {number}"), conversation="")
    page.goto("/")
    ids = "rows => rows.map((row) => row.dataset.id)"
    rows = page.locator("#rows .row")
    headings = page.locator("#rows .day")
    before, days = rows.evaluate_all(ids), headings.all_text_contents()
    assert before[2] == conversation
    other = page.context.new_page()
    other.goto("/")
    expect(other.locator("body")).to_have_attribute("data-feed", "ready")

    rows.nth(2).focus()
    page.keyboard.press("a")
    for view in (page, other):
        expect(view.locator(f".row[data-id='{conversation}']")).to_have_count(0)
    page.locator(".toast").get_by_role("button", name="Undo").click()

    for view in (page, other):
        expect(view.locator(f".row[data-id='{conversation}']")).to_be_visible()
        assert view.locator("#rows .row").evaluate_all(ids) == before
    assert headings.all_text_contents() == days
    other.close()


def test_only_an_archived_conversation_can_be_deleted_permanently(
    server: Server, page: Page, conversation: str
):
    page.goto(f"/c/{conversation}")
    actions = page.get_by_label("Actions")
    actions.press("Enter")
    expect(page.get_by_role("button", name="Delete permanently…")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(actions).to_be_focused()
    actions.press("Enter")
    page.get_by_role("button", name="Archive", exact=True).press("Enter")
    expect(page.locator(".menu[data-archived]")).to_be_attached()

    page.get_by_label("Actions").click()
    page.get_by_role("button", name="Delete permanently…").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert read(server, conversation)["archived_at"] is not None
    page.get_by_label("Actions").click()
    page.get_by_role("button", name="Delete permanently…").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()

    expect(page.locator(".toast", has_text="is deleted")).to_be_visible()
    expect(page.locator("body")).to_have_attribute("data-view", "list")
    assert server("GET", f"/v1/conversations/{conversation}").status == 404


def test_an_archived_conversation_is_restored(server: Server, page: Page, conversation: str):
    server("DELETE", f"/v1/conversations/{conversation}")
    page.goto(f"/c/{conversation}?archive_filter=archived")
    page.keyboard.press("a")
    expect(page.locator(".toast", has_text="is restored")).to_be_visible()
    expect(page.locator(".menu[data-archived]")).to_have_count(0)
    assert read(server, conversation)["archived_at"] is None


@pytest.mark.parametrize(("label", "ending"), [("JSON", ".json"), ("Markdown", ".md")])
def test_an_export_is_downloaded(page: Page, conversation: str, label: str, ending: str):
    page.goto(f"/c/{conversation}")
    page.get_by_label("Actions").click()
    with page.expect_download() as download:
        page.get_by_role("link", name=f"Export as {label}").click()
    saved = Path(download.value.path()).read_text(encoding="utf-8")
    assert download.value.suggested_filename == f"{conversation}{ending}"
    assert "Tell me about owls." in saved
    assert ending != ".json" or json.loads(saved)["messages"]


def test_an_error_is_shown_in_the_server_s_words(
    server: Server, page: Page, conversation: str, expected_problems: list[str]
):
    expected_problems.append("404")
    page.goto(f"/c/{conversation}")
    server("DELETE", f"/v1/conversations/{conversation}?permanent=true")
    page.keyboard.press("F2")
    page.get_by_label("Title", exact=True).fill("Too late")
    page.keyboard.press("Enter")
    message = server("GET", f"/v1/conversations/{conversation}").error["message"]
    # The feed can report the deletion too.
    expect(page.locator(".toast.error").first).to_contain_text(message)
    expect(page.locator("#title")).to_have_text("Tell me about owls.")

"""The list in a browser: pages, search, filters, keyboard, changed rows, phone."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect
from tests.acceptance.page.conftest import PHONE
from tests.acceptance.page.seed import add_conversations, build_conversation
from tests.server_process import Server

COUNT = 230
# In Berlin, 23:30 in UTC is on the next day.
LATE = build_conversation(
    0, "Which day is it?", "It depends.", at=datetime(2025, 3, 4, 23, 30, tzinfo=UTC)
)
NEEDLE = build_conversation(3, "Where is it?", "The needle is in the haystack, next to another.")


@pytest.fixture(scope="module")
def fill_store() -> Callable[[Path], None]:
    conversations = [build_conversation(number) for number in range(COUNT - 2)]
    return lambda database: add_conversations(database, [LATE, NEEDLE, *conversations])


def test_pages_are_loaded_while_scrolling_and_grouped_by_local_days(page: Page):
    page.goto("/")
    rows = page.locator("#rows .row")
    expect(page.locator("#rows .day").first).to_have_text(re.compile("Today|Yesterday"))
    assert rows.first.evaluate("row => row.getBoundingClientRect().height") == 64

    assert rows.count() == 100
    # The next page is loaded before the end is visible.
    page.locator("#rows").evaluate("rows => rows.scrollTo(0, rows.scrollHeight / 2 + 500)")
    expect(rows).to_have_count(200)
    page.locator("#rows").evaluate("rows => rows.scrollTo(0, rows.scrollHeight)")
    expect(rows).to_have_count(COUNT)

    expect(page.locator("#rows .next")).to_have_count(0)
    expect(page.locator("#rows .day").last).to_have_text("5 March 2025")
    row = page.locator(f".row[data-id='{LATE.id}']")
    expect(row.locator("time")).to_have_text("00:30")
    expect(row.locator(".line")).to_have_text("It depends.")
    expect(row.locator(".tokens")).to_contain_text("1.2k")
    expect(row.locator(".cost")).to_have_text("$0.25")
    ids = rows.evaluate_all("rows => rows.map((row) => row.dataset.id)")
    assert len(set(ids)) == COUNT


def test_a_conversation_opens_in_place_and_back_returns(page: Page):
    page.goto("/")
    page.evaluate("window.isSameDocument = true")
    rows = page.locator("#rows")
    rows.evaluate("rows => rows.scrollTo(0, 2000)")
    row = page.locator(".row").nth(35)

    row.click()

    expect(page.locator("#main h1")).to_have_text(row.locator(".title").inner_text())
    expect(row).to_have_attribute("aria-current", "page")
    assert page.url.endswith(row.get_attribute("href") or "-")
    assert rows.evaluate("rows => rows.scrollTop") == 2000
    page.go_back()
    expect(page.locator("body")).to_have_attribute("data-view", "list")
    expect(page.locator(".row[aria-current]")).to_have_count(0)
    assert rows.evaluate("rows => rows.scrollTop") == 2000
    page.go_forward()
    expect(row).to_have_attribute("aria-current", "page")
    assert page.evaluate("window.isSameDocument")


def test_a_search_shows_matches_while_typing_and_survives_reload_and_back(page: Page):
    page.goto("/")
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()

    page.keyboard.type("need")

    hit = page.locator(".row.hit")
    expect(hit).to_have_count(1)
    page.keyboard.type("le")
    expect(hit.locator("b")).to_have_text("needle")
    expect(page).to_have_url(re.compile(r"/search\?q=needle$"))
    expect(page.locator("#list-status")).to_have_text("1 message")
    expect(page.locator("#q")).to_be_focused()
    page.reload()
    expect(hit).to_have_count(1)
    expect(page.locator("#q")).to_have_value("needle")
    hit.click()
    expect(page).to_have_url(re.compile(rf"/c/{NEEDLE.id}\?at=2#m-2$"))
    expect(hit).to_have_attribute("aria-current", "page")
    page.reload()
    expect(hit).to_have_count(1)
    page.go_back()
    expect(page).to_have_url(re.compile(r"/search\?q=needle$"))
    page.fill("#q", "")
    expect(page.locator(".row.hit")).to_have_count(0)
    expect(page.locator(".row").first).to_be_visible()


def test_an_unknown_conversation_is_an_error_in_the_main_column(
    page: Page, expected_problems: list[str]
):
    expected_problems.append("status of 404")
    page.goto("/")
    page.locator(".row").first.evaluate("row => { row.href = '/c/' + crypto.randomUUID(); }")

    page.locator(".row").first.click()

    expect(page.locator("#main .failure")).to_contain_text("does not exist")
    page.get_by_text("Back to the conversations").click()
    expect(page.locator(".welcome")).to_be_visible()


def test_a_fragment_and_a_search_do_not_load_the_conversation_again(page: Page):
    page.goto(f"/c/{NEEDLE.id}")
    page.locator("#main").evaluate("main => { main.isSame = main.firstElementChild; }")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#main$"))

    page.fill("#q", "needle")
    expect(page.locator(".row.hit")).to_have_count(1)
    page.go_back()

    expect(page.locator(".row.hit")).to_have_count(0)
    expect(page.locator("#q")).to_have_value("")
    expect(page).to_have_url(re.compile(f"/c/{NEEDLE.id}#main$"))
    assert page.locator("#main").evaluate("main => main.isSame === main.firstElementChild")


def test_only_the_newest_search_is_shown(page: Page):
    page.goto("/")
    held: list[Route] = []
    page.route("**/search?q=Question*", lambda route: held.append(route))  # noqa: PLW0108

    page.fill("#q", "Question")
    expect(page.locator("#rows[aria-busy] .skeleton").first).to_be_attached()
    page.fill("#q", "needle")

    expect(page.locator(".row.hit")).to_have_count(1)
    expect(page.locator("#rows")).not_to_have_attribute("aria-busy", "true")
    assert len(held) == 1


def test_rows_are_selected_and_opened_with_keys(page: Page):
    page.goto("/")
    rows = page.locator(".row")

    page.keyboard.press("j")
    expect(rows.nth(0)).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(rows.nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(rows.nth(1)).to_have_attribute("aria-current", "page")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("j")
    expect(rows.nth(2)).to_be_focused()
    page.keyboard.press("?")
    expect(page.locator("dialog dt")).to_contain_text(["?", "/", "j", "k", "Enter"])
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)


def test_a_changed_conversation_moves_to_the_start_and_an_archived_one_disappears(
    server: Server, page: Page
):
    page.goto("/")
    row = page.locator(".row").nth(5)
    conversation = row.get_attribute("data-id") or ""
    announce = "([name, id]) => document.dispatchEvent(new CustomEvent(name, {detail: {id}}))"
    count = page.locator(".row").count()

    server.complete(("user", "Again."), conversation=conversation)
    page.evaluate(announce, ["cllm:feed", conversation])

    expect(page.locator(".row").first).to_have_attribute("data-id", conversation)
    expect(page.locator(f".row[data-id='{conversation}']")).to_have_count(1)
    server("PATCH", f"/v1/conversations/{conversation}", {"archived": True})
    page.evaluate(announce, ["cllm:changed", conversation])
    expect(page.locator(f".row[data-id='{conversation}']")).to_have_count(0)
    expect(page.locator(".row")).to_have_count(count - 1)
    page.locator(".filters summary").click()
    page.select_option("[name=archive_filter]", "archived")
    expect(page.locator(f".row[data-id='{conversation}']")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"/\?archive_filter=archived$"))
    page.go_back()
    expect(page.locator(".row")).to_have_count(count)
    page.get_by_text("Shell", exact=True).click()
    expect(page.locator(".empty h2")).to_have_text("No conversation matches the filters")
    page.get_by_text("Show all conversations").click()
    expect(page.locator(".row")).to_have_count(count)
    server("PATCH", f"/v1/conversations/{conversation}", {"archived": False})


def test_a_phone_shows_one_column_and_keeps_the_scroll_position(
    open_context: Callable[..., BrowserContext], problems: list[str]
):
    page = open_context(viewport=PHONE).new_page()
    page.goto("/")
    rows = page.locator("#rows")
    rows.evaluate("rows => rows.scrollTo(0, 1500)")
    expect(page.locator("#main")).not_to_be_visible()

    page.locator(".row").nth(28).click()

    expect(page.locator("#main h1")).to_be_visible()
    expect(page.locator("#q")).not_to_be_visible()
    page.click(".back")
    expect(page.locator("#q")).to_be_visible()
    assert rows.evaluate("rows => rows.scrollTop") == 1500
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert problems == []


def test_without_scripts_a_person_can_read_search_and_page(
    open_context: Callable[..., BrowserContext],
):
    page = open_context(java_script_enabled=False).new_page()
    page.goto("/")
    expect(page.locator(".row")).to_have_count(100)
    page.click("#rows .next")
    expect(page.locator(".row")).to_have_count(100)
    page.fill("#q", "needle")
    page.keyboard.press("Enter")
    expect(page.locator(".row.hit")).to_have_count(1)
    page.click(".row.hit")
    expect(page.locator("#main h1")).to_be_visible()


def test_the_theme_is_saved_for_the_next_visit(page: Page):
    page.goto("/")
    button = page.locator(".change-theme")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)

    button.click()
    button.click()

    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate(background) != light
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(button).to_have_accessible_name("Colours: dark")

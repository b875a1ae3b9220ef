"""Keys, hosts and origins of the page in a browser."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect
from tests.import_sources import chatgpt_cats, write_zip
from tests.server_app import KEYS
from tests.server_process import Server, completion_body

LIST = "conversations"
ALICE = {"Authorization": f"Bearer {KEYS['alice']}"}


@pytest.fixture(scope="module")
def served_settings() -> dict[str, Any]:
    keys = [{"name": name, "owner": name, "key": key} for name, key in KEYS.items()]
    return {"server": {"keys": keys}}


@pytest.fixture
def conversation(server: Server) -> str:
    body = completion_body(("user", "A secret of Alice."))
    return server(
        "POST", "/v1/chat/completions", body, {**ALICE, "X-Conversation-ID": ""}
    ).conversation


def test_a_key_is_requested_once_per_tab_and_never_leaves_its_header(
    server: Server, page: Page, conversation: str, expected_problems: list[str]
):
    expected_problems.append("status of 401")
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    page.goto(f"/c/{conversation}")
    field = page.locator("#key-field")
    expect(field).to_be_focused()

    field.fill("wrong-key-0123456789")
    page.keyboard.press("Enter")
    expect(page.locator("#key [role=alert]")).to_contain_text("does not accept this key")
    field.fill("ключ")
    page.keyboard.press("Enter")
    expect(page.locator("#key [role=alert]")).to_contain_text("does not accept this key")
    field.fill(KEYS["alice"])
    page.keyboard.press("Enter")

    expect(page.locator("#main h1")).to_have_text("A secret of Alice.")
    expect(page.locator(".row[aria-current]")).to_have_count(1)
    page.click(".brand")
    expect(page.locator("body")).to_have_attribute("data-view", "list")
    page.reload()
    expect(page.locator(".row")).to_have_count(1)
    assert page.context.cookies() == []
    assert page.evaluate("Object.keys(localStorage)") == []
    assert not any(key in url for url in urls for key in KEYS.values())
    assert KEYS["alice"] not in server.log
    other_tab = page.context.new_page()
    other_tab.goto("/")
    expect(other_tab.locator("#key-field")).to_be_focused()
    page.click(".forget-key")
    expect(field).to_be_focused()
    assert page.evaluate("Object.keys(sessionStorage)") == []


def test_a_draft_is_shown_to_no_other_key(
    open_context: Callable[..., BrowserContext], conversation: str
):
    context = open_context()
    page = context.new_page()

    def enter_key(page: Page, owner: str) -> Locator:
        page.locator("#key-field").fill(KEYS[owner])
        page.keyboard.press("Enter")
        return page.locator("#composer [name=prompt]")

    page.goto("/")
    enter_key(page, "alice").fill("A draft of Alice.")
    page.reload()
    expect(page.locator("#composer [name=prompt]")).to_have_value("A draft of Alice.")

    other_tab = context.new_page()
    other_tab.goto("/")
    expect(enter_key(other_tab, "bob")).to_have_value("")
    assert page.evaluate("Object.keys(localStorage)") == []

    page.locator("#composer [name=prompt]").fill("Another draft of Alice.")
    page.click(".forget-key")
    expect(enter_key(page, "bob")).to_have_value("")
    assert page.evaluate("Object.keys(localStorage)") == []


def test_exports_and_imports_send_the_key(
    server: Server, page: Page, conversation: str, expected_problems: list[str], tmp_path: Path
):
    expected_problems.append("status of 401")
    archive = write_zip(tmp_path / "cats.zip", {"conversations.json": [chatgpt_cats()]})
    page.goto(f"/c/{conversation}")
    page.locator("#key-field").fill(KEYS["alice"])
    page.keyboard.press("Enter")

    page.get_by_label("Actions").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Export as Markdown").click()
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Import an archive").click()
    chooser.value.set_files(archive)

    expect(page.get_by_text("cats.zip is imported")).to_be_visible()
    assert "A secret of Alice." in Path(download.value.path()).read_text(encoding="utf-8")
    titles = [
        [one["title"] for one in server("GET", "/v1/conversations", None, headers).json[LIST]]
        for headers in (ALICE, {"Authorization": f"Bearer {KEYS['bob']}"})
    ]
    assert len(titles[0]) > 1
    assert titles[1] == []


def test_without_scripts_the_form_explains_the_header(
    open_context: Callable[..., BrowserContext],
):
    page = open_context(java_script_enabled=False).new_page()

    response = page.goto("/")

    assert response is not None
    assert response.status == 401
    expect(page.locator("#key")).not_to_be_visible()
    expect(page.get_by_text("send the key in a header")).to_be_visible()


@pytest.mark.parametrize("path", ["/", "/search?q=x", "/usage", "/static/page.js"])
@pytest.mark.parametrize(
    "headers", [{"Origin": "https://other.example"}, {"Origin": "null"}], ids=["other", "null"]
)
def test_a_foreign_origin_is_refused(server: Server, path: str, headers: dict[str, str]):
    response = server("GET", path, None, {**ALICE, **headers})

    assert response.status == 403
    assert response.error["code"] == "origin_not_allowed"
    assert "access-control-allow-origin" not in response.headers

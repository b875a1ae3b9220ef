"""The list in a browser."""

from playwright.sync_api import Page, expect
from tests.server_process import Server


def test_a_conversation_opens_without_loading_the_document_again(server: Server, page: Page):
    conversation = server.complete(("user", "Hello."), conversation="").conversation
    page.goto("/")
    page.evaluate("window.isSameDocument = true")

    page.click(f"#rows a[href='/c/{conversation}']")

    expect(page.locator("#main h1")).to_be_visible()
    expect(page.locator("body")).to_have_attribute("data-view", "conversation")
    assert page.url.endswith(f"/c/{conversation}")
    assert page.evaluate("window.isSameDocument")

"""Talking in the page: sending, streaming, stopping, attachments, drafts, edits."""

import json

from playwright.sync_api import Page, expect
from tests.fake_provider import FakeProvider
from tests.server_process import Server


def send(page: Page, text: str) -> None:
    page.locator("#composer [name=prompt]").fill(text)
    page.locator("#composer [name=prompt]").press("Control+Enter")


def start_conversation(server: Server, text: str = "Hello") -> str:
    return server.complete(("user", text), conversation="").conversation


def test_a_new_conversation_streams_and_is_rendered(page: Page, upstream: FakeProvider):
    gate = upstream.queue_held_reply("# Title\n\n", "Some *text* and\n\n", "the ", "end.", at=3)
    page.goto("/")
    page.keyboard.press("c")
    expect(page.locator("#composer [name=prompt]")).to_be_focused()

    send(page, "Write something.")

    live = page.locator("#turns .turn .live")
    expect(live.locator("em")).to_have_text("text")
    expect(live.locator(".tail")).to_have_text("the ")
    expect(page.locator("#composer .stop")).to_be_visible()
    expect(page.locator("#composer .send")).to_be_hidden()
    assert "/c/" in page.url
    gate.open()
    expect(page.locator("#turns .turn[data-state=complete]")).to_have_count(1)
    expect(page.locator(".live")).to_have_count(0)
    expect(page.locator("#turns .message[data-role=assistant] h3")).to_have_text("Title")
    expect(page.locator("#composer .send")).to_be_visible()
    expect(page.locator("#rows .row").first).to_contain_text("Write something.")
    sent = json.loads(upstream.requests[-1].body)
    assert [one["content"] for one in sent["messages"]] == ["Write something."]

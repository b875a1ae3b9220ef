"""A conversation in the browser: messages, folding, copying, variants, long ones, the inspector."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect
from tests.acceptance.page.conftest import MEDIUM, PHONE
from tests.acceptance.page.samples import LONG, LONG_TURNS, SAMPLE, VARIANTS, build_all
from tests.acceptance.page.seed import add_conversations
from tests.fake_provider import FakeProvider

FRAMES = """() => new Promise((done) => {
  let count = 3;
  const next = () => (count-- ? requestAnimationFrame(next) : done());
  next();
})"""


@pytest.fixture(scope="module")
def fill_store() -> Callable[[Path], None]:
    return lambda database: add_conversations(database, build_all())


def test_parts_are_folded_and_copied(page: Page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"/c/{SAMPLE}")

    tool = page.locator("#t-turn-2 details.tool").first
    expect(tool.locator("summary")).to_contain_text("run_command ls -la src/cllm/server/page")
    expect(tool.locator("pre").last).to_be_hidden()
    tool.locator("summary").click()
    expect(tool.locator("pre").last).to_contain_text("-rw-r--r-- page.py")
    tool.locator(".copy").last.click()
    expect(tool.locator(".copy").last).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "total 0\n-rw-r--r-- page.py"

    expect(page.locator("#t-turn-2 .thinking em")).to_be_hidden()
    expect(page.locator("#t-turn-2 .media img")).to_have_js_property("naturalWidth", 1)
    expect(page.locator("#t-turn-3 .status")).to_contain_text("rate limit reached")
    expect(page.locator("#t-turn-3 [data-action=retry]")).to_be_visible()
    expect(page.locator("#m-9 time")).to_have_text("16 Nov, 13:06")

    message = page.locator("#m-2")
    message.hover()
    message.locator("[data-action=copy]").click()
    expect(message.locator("[data-action=copy]")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()").startswith("Here is the **plan**")

    wide = message.locator("figure.code pre")
    assert wide.evaluate("one => one.scrollWidth > one.clientWidth")
    assert page.evaluate("document.getElementById('main').scrollWidth") <= 1120
    assert page.locator("#m-9 .text p").evaluate("one => getComputedStyle(one).direction") == "rtl"


def test_a_variant_is_stepped_through_by_links_and_keys(page: Page):
    page.goto(f"/c/{VARIANTS}")
    expect(page.locator(".position")).to_have_text("2/3")

    page.keyboard.press("[")
    expect(page.locator(".position")).to_have_text("1/3")
    expect(page.locator("#turns")).to_contain_text("Joke 0.")
    assert page.url.endswith(f"/c/{VARIANTS}/t/variant-0")
    page.get_by_label("Next variant").click()
    expect(page.locator(".position")).to_have_text("2/3")
    page.keyboard.press("]")
    expect(page.locator("#turns")).to_contain_text("Joke 2.")
    page.go_back()
    page.go_back()
    expect(page.locator("#turns")).to_contain_text("Joke 0.")
    page.reload()
    expect(page.locator("#turns")).to_contain_text("Joke 0.")
    expect(page.locator("#turns")).not_to_contain_text("Joke 1.")


def test_earlier_messages_are_loaded_without_moving_the_others(page: Page):
    page.goto(f"/c/{LONG}")
    newest = page.locator(f"#t-long-{LONG_TURNS - 1}")
    expect(newest).to_be_in_viewport()
    # The page scrolls to its end again when the heights of the turns are known.
    page.evaluate(FRAMES)
    count = page.locator("#turns > .turn").count()
    assert count <= 60

    first = page.locator("#turns > .turn").first.get_attribute("id")
    page.locator("#turns > .turn").first.scroll_into_view_if_needed()
    expect(page.locator("#turns > .turn").nth(count)).to_be_attached()
    expect(page.locator(f"#{first}")).to_be_in_viewport()
    page.wait_for_function("() => document.querySelector('#turns > .earlier:not([aria-busy])')")
    numbers = [
        int(name.removeprefix("t-long-"))
        for name in page.locator("#turns > .turn").evaluate_all("all => all.map(one => one.id)")
    ]
    assert numbers == list(range(numbers[0], LONG_TURNS))

    page.goto(f"/c/{LONG}?at=401#m-401")
    expect(page.locator("#m-401")).to_be_in_viewport()
    page.goto(f"/c/{LONG}#m-801")
    expect(page.locator("#m-801")).to_be_in_viewport()
    page.goto(f"/c/{LONG}/t/long-123")
    expect(page.locator("#t-long-123")).to_be_in_viewport()


def test_the_inspector_shows_what_the_model_saw(page: Page):
    page.goto(f"/c/{SAMPLE}")

    inspector = page.locator("#inspector")
    expect(inspector.locator(".total")).to_contain_text("3.1k tokens")
    expect(inspector.locator(".left-out")).to_contain_text(["outside of the window", "failed turn"])
    expect(inspector.locator(".prompt .system .preview")).to_contain_text("Be brief.")
    expect(inspector.locator(".figures")).to_contain_text("Read from the cache2,048")
    widths = inspector.locator(".bar rect").evaluate_all(
        "all => all.map(one => one.width.baseVal.value)"
    )
    assert widths[0] == 1000
    assert 999 < sum(widths[1:]) < 1001
    with page.expect_download() as download:
        inspector.locator("[data-action=download-prompt]").click()
    assert json.loads(download.value.path().read_bytes())["turn_id"] == "turn-5"

    page.goto(f"/c/{VARIANTS}")
    expect(inspector).to_be_visible()
    page.evaluate("() => { window.isSameDocument = true; }")
    inspector.locator(".tree a.variant").first.click()
    expect(page.locator("#turns")).to_contain_text("Joke 0.")
    expect(inspector.locator(".tree a.current.variant")).to_have_count(1)
    assert page.evaluate("window.isSameDocument"), "the tree is a part of the page"
    page.keyboard.press("i")
    expect(inspector).to_be_hidden()
    page.reload()
    expect(page.get_by_role("button", name="What the model saw")).to_be_visible()
    expect(inspector).to_be_hidden()


def test_at_medium_width_the_inspector_is_over_the_conversation(
    open_context: Callable[..., BrowserContext],
):
    page = open_context(viewport=MEDIUM).new_page()
    page.goto(f"/c/{SAMPLE}")
    width = page.locator("#main").evaluate("one => one.clientWidth")

    page.get_by_role("button", name="What the model saw").click()

    expect(page.locator("#inspector .prompt")).to_be_visible()
    assert page.locator("#main").evaluate("one => one.clientWidth") == width
    page.keyboard.press("Escape")
    expect(page.locator("#inspector")).to_be_hidden()


def test_a_phone_has_one_column(open_context: Callable[..., BrowserContext]):
    page = open_context(viewport=PHONE).new_page()
    page.goto(f"/c/{SAMPLE}")

    expect(page.locator("#main")).to_be_visible()
    expect(page.locator("#t-turn-1")).to_be_attached()
    assert page.evaluate("document.getElementById('main').scrollWidth") <= PHONE["width"]


def test_without_scripts_a_conversation_can_be_read(open_context: Callable[..., BrowserContext]):
    page = open_context(java_script_enabled=False).new_page()
    page.goto(f"/c/{LONG}")
    expect(page.locator("#turns")).to_contain_text(f"Answer {LONG_TURNS - 1}")
    expect(page.locator("[data-action=copy]").first).to_be_hidden()

    page.get_by_role("link", name="Earlier messages").click()

    expect(page.locator("#turns")).to_contain_text(f"Answer {LONG_TURNS - 31}")
    expect(page.locator("#turns")).not_to_contain_text(f"Answer {LONG_TURNS - 1}")
    page.get_by_role("link", name="Later messages").click()
    expect(page.locator("#turns")).to_contain_text(f"Answer {LONG_TURNS - 1}")
    page.locator(".permalink").last.click()
    expect(page.locator("#inspector .prompt")).to_be_visible()


def test_the_inspector_follows_new_turns(page: Page, upstream: FakeProvider):
    page.goto(f"/c/{VARIANTS}")
    expect(page.locator("#inspector .prompt")).to_contain_text("Another one.")
    upstream.queue_reply("A new reply.")

    page.locator("#composer [name=prompt]").fill("A new question.")
    page.locator("#composer [name=prompt]").press("Control+Enter")

    expect(page.locator("#turns")).to_contain_text("A new reply.")
    expect(page.locator("#inspector .prompt")).to_contain_text("A new question.")

"""axe-core finds no serious or critical fault on any view, light and dark, wide and phone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from playwright.sync_api import BrowserContext, FilePayload, Page, expect
from tests.acceptance.page.conftest import PHONE, WIDE
from tests.acceptance.page.seed import add_conversations, build_conversation
from tests.node_programs import install_packages

MARKDOWN = (
    "# Title\n\nA [link](https://example.org), `code` and *text*.\n\n- one\n- two\n\n"
    "```python\ndef add(a: int, b: int) -> int:\n    # a comment\n    return a + b  # 1\n```\n\n"
    "| a | b |\n|---|---|\n| 1 | 2 |\n"
)
CONVERSATION = build_conversation(0, "How do I add numbers?", MARKDOWN, "Thanks.", "Welcome.")
VIEWS = ("/", "/search?q=numbers", "/search?q=nothing", f"/c/{CONVERSATION.id}", "/usage", "/c/x")
CHECK = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations.filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => node.html).join(" ")}`);
}"""


@pytest.fixture(scope="module")
def fill_store() -> Callable[[Path], None]:
    return lambda database: add_conversations(database, [CONVERSATION])


@pytest.fixture(scope="module")
def axe() -> str:
    return (install_packages() / "node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")


def find_faults(page: Page, axe: str) -> list[str]:
    page.evaluate(axe)
    faults: list[str] = page.evaluate(CHECK)
    return faults


@pytest.mark.parametrize(
    ("scheme", "viewport"),
    [("light", WIDE), ("dark", WIDE), ("dark", PHONE)],
    ids=["light", "dark", "phone"],
)
def test_no_view_has_a_serious_fault(
    open_context: Callable[..., BrowserContext], axe: str, scheme: str, viewport: dict[str, Any]
):
    page = open_context(bypass_csp=True, color_scheme=scheme, viewport=viewport).new_page()

    faults = {}
    for view in VIEWS:
        page.goto(view)
        faults[view] = find_faults(page, axe)

    assert faults == {view: [] for view in VIEWS}


def test_overlays_have_no_serious_fault(open_context: Callable[..., BrowserContext], axe: str):
    page = open_context(bypass_csp=True).new_page()
    page.goto("/")

    page.locator(".filters summary").click()
    page.keyboard.press("Escape")
    assert find_faults(page, axe) == []
    page.locator(".show-shortcuts").click()
    expect(page.locator("dialog")).to_be_visible()
    assert find_faults(page, axe) == []


def test_every_control_of_the_list_is_reached_with_tab_and_shows_its_focus(page: Page):
    page.goto("/")
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        focus = page.evaluate(
            "() => { const e = document.activeElement;"
            "const shown = e.matches('[type=radio]') ? e.nextElementSibling : e;"
            "return [e.className || e.id || e.name || e.localName,"
            "getComputedStyle(shown).outlineStyle]; }"
        )
        reached.append(focus[0])
        assert focus[1] == "solid", focus
        if focus[0] == "row":
            break

    assert reached[0] == "skip"
    names = (
        "brand",
        "button",
        "icon change-theme",
        "icon show-shortcuts",
        "q",
        "origin",
        "summary",
    )
    assert [name for name in names if name not in reached] == []
    assert reached[-1] == "row"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_menus_questions_and_reports_have_no_serious_fault(
    open_context: Callable[..., BrowserContext], axe: str, scheme: str
):
    page = open_context(bypass_csp=True, color_scheme=scheme).new_page()
    page.goto(f"/c/{CONVERSATION.id}")
    page.get_by_label("Actions").click()
    faults = find_faults(page, axe)
    page.keyboard.press("Escape")
    page.keyboard.press("F2")
    faults += find_faults(page, axe)
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    page.locator(".menu[data-archived]").wait_for()
    faults += find_faults(page, axe)
    page.get_by_label("Actions").click()
    page.get_by_role("button", name="Delete permanently…").click()
    faults += find_faults(page, axe)
    page.get_by_role("button", name="Cancel").click()
    page.keyboard.press("a")
    page.locator(".menu:not([data-archived])").wait_for()
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Import an archive").click()
    file = {"name": "broken.zip", "mimeType": "application/zip", "buffer": b"broken"}
    chooser.value.set_files(cast("FilePayload", file))
    page.get_by_text("broken.zip was not imported").wait_for()
    faults += find_faults(page, axe)

    assert faults == []

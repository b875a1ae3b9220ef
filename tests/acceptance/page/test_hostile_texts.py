"""Hostile texts in every field: nothing runs, nothing is loaded, and the policy blocks the rest."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Dialog, Page, Route, expect
from tests.acceptance.page.samples import HOSTILE, build_hostile
from tests.acceptance.page.seed import add_conversations, build_conversation
from tests.hostile_texts import ALERT, HOSTILE_TEXTS, OUTSIDE

VIOLATIONS = """
  globalThis.violations = [];
  document.addEventListener("securitypolicyviolation", (event) =>
    globalThis.violations.push(event.effectiveDirective));
"""
HACKED = "() => globalThis.hacked"


@pytest.fixture(scope="module")
def fill_store() -> Callable[[Path], None]:
    def fill(database: Path) -> None:
        titles = [" ".join(text.replace("\0", "")[:200].split()) for text in HOSTILE_TEXTS]
        rows = [
            build_conversation(number, title, title, model=title[:80], source=title[:40] or None)
            for number, title in enumerate(titles, 10)
        ]
        add_conversations(database, [build_hostile(), *rows])

    return fill


@pytest.fixture
def events(page: Page) -> list[str]:
    """Dialogs, and requests for documents other than those that the test opens."""
    seen: list[str] = []

    def refuse(dialog: Dialog) -> None:
        seen.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", refuse)
    page.on("popup", lambda popup: seen.append(f"popup: {popup.url}"))
    page.on("framenavigated", lambda frame: seen.append(f"frame: {frame.url}"))
    return seen


def load_everything(page: Page) -> None:
    """Load all turns, and open everything that is folded."""
    while (earlier := page.locator("#turns > .earlier")).count():
        count = page.locator("#turns > .turn").count()
        earlier.click()
        page.wait_for_function(
            "count => document.querySelectorAll('#turns > .turn').length > count", arg=count
        )
    page.evaluate(
        "for (const one of document.querySelectorAll('details')) one.open = true;"
        "for (const one of document.querySelectorAll('.turn')) one.scrollIntoView();"
    )


def test_no_hostile_text_runs_or_loads_anything(page: Page, events: list[str]):
    page.goto(f"/c/{HOSTILE}")
    load_everything(page)

    expect(page.locator("#turns > .turn")).to_have_count(len(HOSTILE_TEXTS))
    expect(page.locator("#inspector .prompt")).to_be_visible()
    shown = page.locator("#turns").text_content() or ""
    for text in (HOSTILE_TEXTS[0], HOSTILE_TEXTS[3], HOSTILE_TEXTS[5], HOSTILE_TEXTS[30]):
        assert text in shown
    page.goto("/?q=window")
    page.goto("/search?q=window")
    expect(page.locator("#rows .row").first).to_be_visible()
    page.goto("/")
    expect(page.locator("#rows .row").first).to_be_visible()

    assert page.evaluate(HACKED) is None
    assert [
        event for event in events if "127.0.0.9" in event or not event.startswith("frame")
    ] == []
    tags = page.evaluate(
        "[...new Set([...document.body.querySelectorAll('*')].map(e => e.tagName))]"
    )
    assert {"SCRIPT", "IFRAME", "OBJECT", "EMBED", "STYLE", "LINK", "META", "BASE", "MATH"} & set(
        tags
    ) == set()


def test_an_unknown_conversation_with_a_hostile_id_is_an_error(
    page: Page, events: list[str], expected_problems: list[str]
):
    expected_problems.append("404")
    expected_problems.append("422")
    expected_problems.append("400")
    page.goto(f"/c/%22%3E%3Cimg%20src=x%20onerror={ALERT}%3E")

    assert page.evaluate(HACKED) is None
    assert page.locator("img").count() == 0


def test_the_policy_blocks_what_rendering_would_miss(
    page: Page, events: list[str], expected_problems: list[str]
):
    """Serve raw HTML as if it were not escaped. No policy blocks a refresh, so that is left out."""
    expected_problems += [
        "Content Security Policy",
        "127.0.0.9",
        "ERR_",
        "(Bad Request)",
        "Trusted",
    ]
    raw = "".join(text for text in HOSTILE_TEXTS[:26] if "refresh" not in text)
    failed: list[tuple[str, str | None]] = []

    def spoil(route: Route) -> None:
        response = route.fetch()
        body = response.text().replace('<div id="turns">', f'<div id="turns">{raw}', 1)
        route.fulfill(response=response, body=body)

    page.add_init_script(VIOLATIONS)
    page.on("requestfailed", lambda request: failed.append((request.url, request.failure)))
    # Only the document: a part could still load at the end of the test.
    page.route(re.compile(r"/c/[^/?]+$"), spoil)
    page.goto(f"/c/{HOSTILE}")

    expected = {"script-src-elem", "script-src-attr", "style-src-elem", "style-src-attr", "img-src"}
    page.wait_for_function(
        "expected => expected.every((one) => globalThis.violations.includes(one))",
        arg=sorted(expected),
    )
    assert page.evaluate(HACKED) is None
    assert [event for event in events if not event.startswith("frame")] == []
    outside = {reason for url, reason in failed if url.startswith(OUTSIDE)}
    assert outside == {"csp"}


def test_scripts_of_the_page_cannot_insert_html(page: Page, expected_problems: list[str]):
    """Only navigation.js parses HTML: Trusted Types refuse it elsewhere."""
    expected_problems += ["Trusted", "Content Security Policy"]
    page.goto(f"/c/{HOSTILE}")
    attempts = [
        f"document.getElementById('main').innerHTML = '<img src=x onerror={ALERT}>'",
        f"document.createElement('img').setAttribute('onerror', '{ALERT}')",
        f"document.createElement('script').text = '{ALERT}'",
        "document.createElement('iframe').srcdoc = '<script></script>'",
    ]
    for attempt in attempts:
        error = page.evaluate(
            f"() => {{ try {{ {attempt} }} catch (error) {{ return error.name }} return 'none' }}"
        )
        assert error == "TypeError", attempt
    assert page.evaluate(HACKED) is None

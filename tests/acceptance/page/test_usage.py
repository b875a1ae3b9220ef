"""The usage view in a browser."""

from collections.abc import Callable

from playwright.sync_api import BrowserContext, Page, expect
from tests.acceptance.page.conftest import PHONE
from tests.server_process import Server


def test_usage_has_totals_plots_and_the_same_numbers_in_tables(server: Server, page: Page):
    page.goto("/usage")
    expect(page.locator(".usage")).to_contain_text("No call in this period")
    for text in ("Hello.", "Hello again."):
        server.complete(("user", text), conversation="")

    page.reload()

    expect(page.locator(".totals div", has_text="Calls").locator("dd")).to_have_text("2")
    expect(page.locator(".plot rect").first).to_be_visible()
    model = page.locator(".usage table").first.locator("tbody tr").first
    expect(model.locator("td").first).to_have_text("2")
    expect(page.locator(".usage table").nth(1).locator("tbody tr")).to_have_count(1)


def test_the_period_is_part_of_the_address_and_works_without_scripts(
    server: Server, page: Page, open_context: Callable[..., BrowserContext]
):
    server.complete(("user", "Hello."), conversation="")
    page.goto("/usage")
    page.click(".periods >> text=7 days")
    expect(page.locator(".periods [aria-current]")).to_have_text("7 days")
    assert page.url.endswith("/usage?days=7")

    plain = open_context(java_script_enabled=False, viewport=PHONE).new_page()
    plain.goto("/usage?days=90")
    expect(plain.locator(".periods [aria-current]")).to_have_text("90 days")
    overflow = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert not overflow


def test_an_unknown_period_is_an_error_page(page: Page, expected_problems: list[str]):
    expected_problems.append("422")
    response = page.goto("/usage?days=8")
    assert response is not None
    assert response.status == 422
    expect(page.locator("body")).to_contain_text("days")

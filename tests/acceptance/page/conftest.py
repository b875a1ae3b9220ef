"""Fixtures of the browser tests: Chromium, a `cllm serve` with a fake provider, and a page.

`page` fails its test on errors in the console (which include violations of the policy), on
uncaught exceptions and on requests to other hosts. A test that provokes an error lists a part of
its text in `expected_problems`.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)
from playwright.sync_api import Request as BrowserRequest
from tests.fake_provider import FakeProvider
from tests.home import Home, write_settings
from tests.server_process import DATABASE, Server
from tests.sqlite_template import write_database

CHROMIUM_OPTIONS = ["--no-sandbox", "--disable-gpu", "--no-first-run"]
WIDE = {"width": 1440, "height": 900}
MEDIUM = {"width": 1024, "height": 800}
PHONE = {"width": 390, "height": 844}
TIMEOUT = 20_000
expect.set_options(timeout=TIMEOUT)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium. Playwright runs an event loop in this thread, so it ends with the module."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        problem = "Chromium is not installed"
        pytest.fail(problem, pytrace=False) if os.environ.get("CI") else pytest.skip(problem)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def served_settings() -> dict[str, Any]:
    """Keys of the server's Cllmfile; a module overrides it."""
    return {}


@pytest.fixture(scope="module")
def fill_store() -> Callable[[Path], None]:
    """Adds to the SQLite database before the server starts; a module overrides it."""
    return lambda _database: None


@pytest.fixture(scope="module")
def server(
    served_home: Home,
    served_settings: dict[str, Any],
    fill_store: Callable[[Path], None],
    upstream: FakeProvider,
) -> Iterator[Server]:
    """A `cllm serve` that the tests of a module share."""
    write_settings(served_home, upstream, **served_settings)
    database = served_home.path / DATABASE
    write_database(database)
    fill_store(database)
    with Server(
        environment=served_home.environment,
        directory=served_home.work,
        store=f"sqlite:{database}",
    ) as running:
        yield running


@pytest.fixture
def expected_problems() -> list[str]:
    """Parts of the problems that a test expects; it adds to the list."""
    return []


@pytest.fixture
def problems() -> list[str]:
    return []


@pytest.fixture
def open_context(
    browser: Browser, server: Server, problems: list[str]
) -> Iterator[Callable[..., BrowserContext]]:
    """Opens a context of the browser, whose problems are recorded. Options as in Playwright."""
    contexts: list[BrowserContext] = []

    def check_request(request: BrowserRequest) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and request.url.find(server.address) != 0:
            problems.append(f"request to another host: {request.url}")

    def check_message(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            problems.append(f"console: {message.text}")

    def open_context(**options: Any) -> BrowserContext:
        defaults = {"base_url": server.address, "viewport": WIDE, "locale": "en-GB"}
        context = browser.new_context(**{**defaults, "timezone_id": "Europe/Berlin", **options})
        context.set_default_timeout(TIMEOUT)
        context.on("request", check_request)
        context.on("console", check_message)
        context.on("weberror", lambda error: problems.append(f"exception: {error.error}"))
        contexts.append(context)
        return context

    yield open_context
    for context in contexts:
        context.close()


@pytest.fixture
def page(
    open_context: Callable[..., BrowserContext], problems: list[str], expected_problems: list[str]
) -> Iterator[Page]:
    """A page 1440 pixels wide. Paths such as `/c/ID` can be passed to `goto`."""
    yield open_context().new_page()
    unexpected = [
        problem
        for problem in problems
        if not any(expected in problem for expected in expected_problems)
    ]
    assert unexpected == []

"""Measures the web page with 10,000 conversations and one of 2,000 messages, in Chromium.

The baseline is a static page from the same process: the same document and style sheets, without
scripts, and with the same rows or messages. First paint is that of a new browser context, so
nothing is cached; the baseline has the rows that the server sends first. While scrolling, the page
loads further rows and messages; the baseline has all of them. The longest task is that of the
renderer's main thread, in CPU time, from Chromium's trace.
"""

import asyncio
import json
import multiprocessing
import random
import re
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright
from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import plain_message
from cllm.core.reply import Usage
from cllm.stores.sqlite.store import SqliteStore
from machine import command_version
from results import CPU, WALL, Results, make_parser, program
from sample_conversations import SampleConversations, make_text
from store_sqlite import fill_file

LIMIT = 3.0
ROUNDS = 5
FRAMES = 150
STEP = 500
"""Pixels per frame while scrolling."""
VIEWPORT: ViewportSize = {"width": 1440, "height": 900}
CHROMIUM_OPTIONS = ["--no-sandbox", "--disable-gpu", "--no-first-run"]
STATIC = "/bench/"
SCRIPT = re.compile(r"<script\b.*?</script>\n?", re.DOTALL)
NEXT_ROWS = re.compile(r'<a class="next"[^>]*href="([^"]+)"[^>]*>.*?</a>', re.DOTALL)
EARLIER = re.compile(r'<a class="more earlier"[^>]*href="([^"]+)"[^>]*>.*?</a>', re.DOTALL)
TURNS = re.compile(
    r'<div id="turns"[^>]*>(.*)</div>\s*</div>\s*<(?:form|p) id="composer"', re.DOTALL
)
LATER = re.compile(r'<p class="more later">.*?</p>', re.DOTALL)
LONG = "11111111-2222-4333-8444-555555555555"
TRACE = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"]
CODE = "```python\nfor number in range(10):\n    print(number)\n```"

SCROLL = """
([selector, step, frames]) => new Promise((resolve) => {
  const element = document.querySelector(selector);
  let left = frames;
  const move = () => {
    element.scrollBy(0, step);
    left -= 1;
    if (left > 0) requestAnimationFrame(move);
    else resolve(element.scrollTop);
  };
  requestAnimationFrame(move);
})
"""


# Data


def fill_database(path: Path, conversations: int, messages: int) -> None:
    fill_file(path, SampleConversations(), conversations)

    async def add_long() -> None:
        store = SqliteStore(path, clock=lambda: datetime.now(UTC))
        await store.add(make_long_conversation(messages), preserve_times=True)
        await store.close()

    asyncio.run(add_long())


def make_long_conversation(messages: int) -> StoredConversation:
    chance = random.Random(3)  # noqa: S311
    start = datetime.now(UTC) - timedelta(minutes=messages)
    turns = tuple(
        Turn(
            id=f"turn-{number}",
            place=f"turn-{number}",
            state="complete",
            model="openai/gpt-5",
            provider="openai",
            messages=(
                plain_message("user", make_text(chance, 200)),
                plain_message("assistant", f"{make_text(chance, 600)}\n\n{CODE}"),
            ),
            started_at=start + timedelta(minutes=number),
            ended_at=start + timedelta(minutes=number, seconds=5),
            usage=Usage(input=1000, output=200),
            cost=0.01,
        )
        for number in range(messages // 2)
    )
    return StoredConversation(
        id=LONG, title="A long conversation", created_at=start, updated_at=start, turns=turns
    )


# Server


class StaticPages:
    """The application of cllm, and static pages from a folder below `/bench/`."""

    def __init__(self, app: Any, folder: Path) -> None:
        self._app = app
        self._folder = folder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(STATIC):
            name = scope["path"].removeprefix(STATIC)
            response = FileResponse(self._folder / name, media_type="text/html; charset=utf-8")
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def serve(database: Path, folder: Path, port: int) -> None:
    import uvicorn  # noqa: PLC0415 - only in the child

    from cllm.server.http.app import build_app  # noqa: PLC0415
    from cllm.server.state import open_server_state  # noqa: PLC0415
    from cllm.settings.load import CommandLine, Environment, load_settings  # noqa: PLC0415

    environment = Environment(home=folder, directory=folder, environment={})
    values = {"store": f"sqlite:{database}", "model": "openai/gpt-5"}
    state = open_server_state(load_settings(environment, CommandLine(values=values)))
    app = StaticPages(build_app(state), folder)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", loop="uvloop")


@contextmanager
def run_server(database: Path, folder: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = multiprocessing.get_context("spawn").Process(
        target=serve, args=(database, folder, port)
    )
    process.start()
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(f"{address}/health")
        yield address
    finally:
        process.terminate()
        process.join()


def wait_until_ready(url: str) -> None:
    for _ in range(300):
        try:
            with urlopen(url):
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("The server did not start.")


def fetch(url: str) -> str:
    with urlopen(url) as response:
        text: str = response.read().decode()
        return text


# Static pages


def write_static_pages(address: str, folder: Path) -> tuple[int, int]:
    """Write the baselines; return the numbers of rows and messages that they have in all."""
    first_list = SCRIPT.sub("", fetch(f"{address}/"))
    (folder / "list.html").write_text(first_list, encoding="utf-8")
    all_rows = NEXT_ROWS.sub(lambda link: collect_rows(address, link[1]), first_list)
    (folder / "all-rows.html").write_text(all_rows, encoding="utf-8")
    conversation = SCRIPT.sub("", fetch(f"{address}/c/{LONG}"))
    (folder / "conversation.html").write_text(conversation, encoding="utf-8")
    whole = EARLIER.sub(lambda link: collect_turns(address, link[1]), conversation)
    (folder / "all-messages.html").write_text(whole, encoding="utf-8")
    return all_rows.count('class="row"'), whole.count("data-message=")


def collect_rows(address: str, href: str) -> str:
    pages = []
    while href:
        page = fetch(f"{address}{href.replace('&amp;', '&')}&part=rows")
        link = NEXT_ROWS.search(page)
        pages.append(NEXT_ROWS.sub("", page))
        href = link[1] if link else ""
    return "".join(pages)


def collect_turns(address: str, href: str) -> str:
    pages: list[str] = []
    while href:
        page = fetch(f"{address}{href.replace('&amp;', '&')}&part=main")
        link = EARLIER.search(page)
        turns = TURNS.search(page)
        assert turns is not None, "the markup of #turns has changed"
        pages.insert(0, EARLIER.sub("", LATER.sub("", turns[1])))
        href = link[1] if link else ""
    return "".join(pages)


# Measurements


def measure_paint(browser: Browser, url: str) -> float:
    """Return the seconds until the first contentful paint, in a new context."""
    context = browser.new_context(viewport=VIEWPORT)
    try:
        page = context.new_page()
        page.goto(url)
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
        paint: float = page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        )
        return paint / 1000
    finally:
        context.close()


def measure_scroll(browser: Browser, url: str, selector: str, step: int) -> float:
    """Return the CPU seconds of the longest task while the element scrolls."""
    context = browser.new_context(viewport=VIEWPORT)
    try:
        page = context.new_page()
        page.goto(url, wait_until="load")
        prepare_scroll(page, selector, step)
        browser.start_tracing(page=page, categories=TRACE)
        before = page.evaluate("(name) => document.querySelector(name).scrollTop", selector)
        after = page.evaluate(SCROLL, [selector, step, FRAMES])
        assert before != after, f"{selector} of {url} does not scroll"
        return find_longest_task(json.loads(browser.stop_tracing()))
    finally:
        context.close()


def prepare_scroll(page: Page, selector: str, step: int) -> None:
    page.wait_for_function("document.readyState === 'complete'")
    if step < 0:
        page.evaluate("(name) => document.querySelector(name).scrollTo(0, 1e9)", selector)
    # The tasks of loading are not those of scrolling.
    page.wait_for_timeout(500)


def find_longest_task(trace: dict[str, Any]) -> float:
    events = trace["traceEvents"]
    threads = {
        (event["pid"], event["tid"])
        for event in events
        if event.get("name") == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    return max(
        float(event.get("tdur", event["dur"])) / 1e6
        for event in events
        if event.get("name", "").endswith("RunTask")
        and event.get("ph") == "X"
        and (event["pid"], event["tid"]) in threads
    )


def compare(measures: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Return the median of each measure; the rounds are interleaved, after one to warm up."""
    values: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(rounds + 1):
        for name, measure in measures.items():
            value = measure()
            if number:
                values[name].append(value)
    return {name: statistics.median(each) for name, each in values.items()}


def report(results: Results, title: str, medians: dict[str, float], measure: str) -> None:
    page, static = medians["page"], medians["static"]
    print(f"{title}: page {page * 1000:.1f} ms, static page {static * 1000:.1f} ms")
    results.compare(title, page, static, LIMIT, floor="static page", measure=measure)


def main() -> int:
    parser = make_parser(__doc__, rounds=ROUNDS)
    parser.add_argument("--conversations", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--chromium", type=program, required=True)
    options = parser.parse_args()
    chromium = str(options.chromium)
    results = Results("page")
    results.versions["Chromium"] = command_version([chromium, "--version"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database = folder / "page.db"
        fill_database(database, options.conversations, options.messages)
        with run_server(database, folder) as address, sync_playwright() as playwright:
            rows, messages = write_static_pages(address, folder)
            print(f"{rows} rows, {messages} messages; medians of {options.rounds} rounds")
            browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_OPTIONS)
            measure_all(results, browser, address, options.rounds)
            browser.close()
    return results.finish(options.json)


def measure_all(results: Results, browser: Browser, address: str, rounds: int) -> None:
    static = f"{address}{STATIC}"
    conversation = f"{address}/c/{LONG}"
    paints = {
        "first paint of the list": (f"{address}/", f"{static}list.html"),
        "first paint of a conversation": (conversation, f"{static}conversation.html"),
    }
    for title, (url, baseline) in paints.items():
        measures = {
            "page": partial(measure_paint, browser, url),
            "static": partial(measure_paint, browser, baseline),
        }
        report(results, title, compare(measures, rounds), WALL)
    scrolls = {
        "longest task, list": (f"{address}/", f"{static}all-rows.html", "#rows", STEP),
        "longest task, conversation": (conversation, f"{static}all-messages.html", "#main", -STEP),
    }
    for title, (url, baseline, selector, step) in scrolls.items():
        measures = {
            "page": partial(measure_scroll, browser, url, selector, step),
            "static": partial(measure_scroll, browser, baseline, selector, step),
        }
        report(results, title, compare(measures, rounds), CPU)


if __name__ == "__main__":
    sys.exit(main())

"""Writes the pictures of the documentation: `python -m tests.screenshots [FOLDER]`.

Runs `cllm demo` and Chromium, in light and dark colours and at the width of a phone. Waits for what
each view shows; a view that does not appear is reported, and the others are still written.
"""

import re
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright
from playwright.sync_api import Error as BrowserError

FOLDER = Path(__file__).parents[1] / "docs/images"
COMMAND = Path(sys.executable).with_name("cllm")
CHROMIUM_OPTIONS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
    # Coloured edges of letters would make the files larger.
    "--disable-lcd-text",
]
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
WIDE, PHONE = (1240, 760), (390, 844)
LOOKS = {"light": ("light", WIDE), "dark": ("dark", WIDE), "phone": ("light", PHONE)}
TIMEOUT = 15_000
MAX_BYTES = 200_000
MAX_TOTAL_BYTES = 1_500_000
TABLE = "Which region grew fastest last quarter?"
WINDOW = "Campaign notes: the lighthouse of Old Verrin"


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    problems: list[str] = []
    with serve_demo() as address, open_browser() as browser:
        for look, (scheme, size) in LOOKS.items():
            for name, show in VIEWS.items():
                path = folder / f"{name}-{look}.png"
                try:
                    take_picture(browser, address, path, show, scheme=scheme, size=size)
                except (BrowserError, AssertionError) as error:
                    problems.append(f"{path.name}: {str(error).strip().splitlines()[0]}")
    problems += check_sizes(folder)
    for line in problems:
        sys.stderr.write(f"{line}\n")
    return 1 if problems else 0


@contextmanager
def serve_demo() -> Iterator[str]:
    """Yield the address of a `cllm demo`."""
    arguments = [str(COMMAND), "demo", "--no-open"]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            addresses = (found[0] for line in lines if (found := ADDRESS.search(line)))
            address = next(addresses, None)
            if address is None:
                sys.exit("`cllm demo` did not start.")
            yield address
        finally:
            process.terminate()


@contextmanager
def open_browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        sys.exit("Chromium is not installed; install the package chromium.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_OPTIONS)
        yield browser
        browser.close()


def take_picture(
    browser: Browser,
    address: str,
    path: Path,
    show: Callable[[Page], None],
    *,
    scheme: str,
    size: tuple[int, int],
) -> None:
    width, height = size
    context = browser.new_context(
        base_url=address,
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        locale="en-GB",
        timezone_id="Europe/Berlin",
        reduced_motion="reduce",
        is_mobile=size == PHONE,
    )
    try:
        context.set_default_timeout(TIMEOUT)
        page = context.new_page()
        show(page)
        page.evaluate("document.fonts.ready")
        # Without focus rings and the cursor of a text field.
        page.evaluate("document.activeElement?.blur()")
        path.write_bytes(compress_png(page.screenshot(animations="disabled", caret="hide")))
    finally:
        context.close()


# Views


def show_list(page: Page) -> None:
    page.goto("/")
    expect(page.locator("#rows .row").nth(5)).to_be_visible(timeout=TIMEOUT)


def show_conversation(page: Page) -> None:
    open_conversation(page, TABLE)
    page.locator("#main").evaluate("element => element.scrollTo(0, 0)")


def show_prompt(page: Page) -> None:
    """Show what the model saw in a turn that did not send the whole history."""
    page.add_init_script("localStorage.setItem('cllm-inspector', 'shown')")
    open_conversation(page, WINDOW)
    turn = page.locator("#turns .turn[data-turn]").all()[-2].get_attribute("data-turn")
    page.goto(f"{page.url}/t/{turn}")
    inspector = page.locator("#inspector")
    if page.viewport_size == {"width": PHONE[0], "height": PHONE[1]}:
        # A phone shows it only on request.
        page.keyboard.press("i")
    expect(inspector).to_be_visible(timeout=TIMEOUT)
    expect(inspector).to_contain_text("Not sent", timeout=TIMEOUT)


def show_usage(page: Page) -> None:
    page.goto("/usage")
    expect(page.locator("#main svg").first).to_be_visible(timeout=TIMEOUT)


VIEWS: dict[str, Callable[[Page], None]] = {
    "list": show_list,
    "conversation": show_conversation,
    "prompt": show_prompt,
    "usage": show_usage,
}


def open_conversation(page: Page, title: str) -> None:
    page.goto("/")
    row = page.locator("#rows .row", has_text=title).last
    page.goto(row.get_attribute("href") or "/")
    expect(page.locator("#title")).to_have_text(title, timeout=TIMEOUT)
    expect(page.locator("#turns .turn").first).to_be_attached(timeout=TIMEOUT)


# Files


def check_sizes(folder: Path) -> Iterator[str]:
    sizes = {path.name: path.stat().st_size for path in sorted(folder.glob("*.png"))}
    for name, size in sizes.items():
        if size > MAX_BYTES:
            yield f"{name}: {size} bytes, more than {MAX_BYTES}"
    if sum(sizes.values()) > MAX_TOTAL_BYTES:
        yield f"{folder}: {sum(sizes.values())} bytes, more than {MAX_TOTAL_BYTES}"


def compress_png(data: bytes) -> bytes:
    """Return the same picture, compressed as well as zlib can; Chromium prefers speed."""
    chunks = list(read_chunks(data))
    pixels = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    compressor = zlib.compressobj(9, zlib.DEFLATED, 15, 9)
    smaller = compressor.compress(pixels) + compressor.flush()
    head = next(body for kind, body in chunks if kind == b"IHDR")
    parts = ((b"IHDR", head), (b"IDAT", smaller), (b"IEND", b""))
    return data[:8] + b"".join(write_chunk(kind, body) for kind, body in parts)


def read_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = 8
    while position < len(data):
        (length,) = struct.unpack_from(">I", data, position)
        kind = data[position + 4 : position + 8]
        yield kind, data[position + 8 : position + 8 + length]
        position += 12 + length


def write_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


if __name__ == "__main__":
    sys.exit(main())

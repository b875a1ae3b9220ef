"""The scripts and styles of the page."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import cllm.server.page.static_files
from cllm.server.page.static_files import MEDIA_TYPES

STATIC = Path(cllm.server.page.static_files.__file__).parent / "static"
FILES = sorted(STATIC.iterdir())
MODULES = [path for path in FILES if path.suffix == ".js"]
MAX_BYTES = 150_000


def test_all_files_together_are_small_and_have_a_known_type():
    assert sum(path.stat().st_size for path in FILES) < MAX_BYTES
    assert {path.suffix.removeprefix(".") for path in FILES} <= set(MEDIA_TYPES)


def test_every_module_is_valid():
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    check = [node, "--check", "--input-type=module"]
    for path in MODULES:
        result = subprocess.run(check, input=path.read_bytes(), capture_output=True, check=False)
        assert result.returncode == 0, result.stderr.decode()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_only_the_navigation_parses_html_and_no_module_uses_another_host(path):
    code = path.read_text(encoding="utf-8")

    if path.name != "navigation.js":
        parsers = r"innerHTML|outerHTML|insertAdjacentHTML|DOMParser|createContextualFragment"
        assert re.search(parsers, code) is None
    assert re.search(r"\beval\(|new Function|document\.write", code) is None
    assert re.search(r"""["'`]https?://(?!www\.w3\.org/)""", code) is None
    for name in re.findall(r"""from ["']([^"']+)["']""", code):
        assert (STATIC / name).is_file(), name


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_the_entry_starts_every_module_that_has_a_start(path):
    entry = (STATIC / "page.js").read_text(encoding="utf-8")

    if "export function start(" in path.read_text(encoding="utf-8"):
        assert f"import {{ start as start{path.stem.title().replace('_', '')} }}" in entry


async def test_a_file_is_sent_once_and_then_confirmed(server):
    response = await server("GET", "/static/page.js")
    again = await server(
        "GET", "/static/page.js", headers={"If-None-Match": response.headers["etag"]}
    )

    assert response.headers["content-type"] == "text/javascript; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["unknown.js", "..%2fpages.py", "..%2f..%2fstate.py", ".js"])
async def test_an_unknown_file_is_not_found(server, name):
    response = await server("GET", f"/static/{name}")

    assert response.status_code == 404

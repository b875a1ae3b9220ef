"""The documentation site: builds without a warning, and can be searched."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def build(source: Path, target: Path) -> "subprocess.CompletedProcess[str]":
    # As `make docs`. A link to a page, heading or file that does not exist is a warning.
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "-q"]
    return subprocess.run(
        [*command, "-b", "html", source, target],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    target: Path = tmp_path_factory.mktemp("site")
    done = build(DOCS, target)
    assert (done.returncode, done.stderr) == (0, "")
    return target


def test_every_page_is_in_the_site_and_in_its_navigation(site):
    navigation = (site / "index.html").read_text(encoding="utf-8")
    pages = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")]

    assert len(pages) > 60
    for page in pages:
        assert (site / page).is_file(), page
        if page.parent.name != "decisions":
            assert f'href="{page}"' in navigation or page.name == "index.html", page


@pytest.mark.parametrize("word", ["idempot", "pgbounc", "smollm2", "regener", "litellm"])
def test_the_search_finds_words_of_the_pages(site, word):
    index = (site / "searchindex.js").read_text(encoding="utf-8")

    assert re.search(rf'"?{word}\w*"?:', index)


def test_pages_load_nothing_from_other_sites(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", text):
            assert not re.search(r'(?:src|href)="(?:https?:)?//', tag), (page, tag)


def test_a_dead_link_fails_the_build(tmp_path):
    (tmp_path / "conf.py").write_text((DOCS / "conf.py").read_text(encoding="utf-8"))
    (tmp_path / "index.md").write_text("# Title\n\n[one](#title) [two](#nothing) [three](no.md)\n")

    done = build(tmp_path, tmp_path / "site")

    assert done.returncode != 0
    assert "#nothing" in done.stderr or "'nothing'" in done.stderr
    assert "no.md" in done.stderr
    assert "title'" not in done.stderr

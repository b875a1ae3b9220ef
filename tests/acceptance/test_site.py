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


@pytest.mark.long
def test_the_site_has_every_page_and_a_search_and_loads_nothing_from_other_sites(tmp_path):
    # One test, so that parallel test processes build the site once.
    done = build(DOCS, tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    check_pages(tmp_path)
    check_copy_buttons(tmp_path)
    check_search(tmp_path)
    check_sources(tmp_path)


def check_pages(site: Path) -> None:
    navigation = (site / "index.html").read_text(encoding="utf-8")
    pages = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")]
    assert len(pages) > 60
    for page in pages:
        assert (site / page).is_file(), page
        if page.parent.name != "decisions":
            assert f'href="{page}"' in navigation or page.name == "index.html", page


def check_copy_buttons(site: Path) -> None:
    assert 'src="_static/copybutton.js' in (site / "tutorial.html").read_text(encoding="utf-8")
    script = (site / "_static" / "copybutton.js").read_text(encoding="utf-8")
    assert "formatCopyText(text, '$ ', false, true" in script


def check_search(site: Path) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    for word in ("idempot", "pgbounc", "smollm2", "regener", "litellm"):
        assert re.search(rf'"?{word}\w*"?:', index), word


def check_sources(site: Path) -> None:
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

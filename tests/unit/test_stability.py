"""Everything that docs/reference/stability.md promises exists."""

import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import cllm
from cllm.__main__ import EXIT_INTERRUPTED
from cllm.providers import third_party
from cllm.server.http.routes import ROUTES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "reference" / "stability.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`(cllm\.[\w.]+)`", TEXT)) - {"cllm.providers"})
"""All stable Python names; `cllm.providers` is the name of an entry point group."""


def resolve(name: str) -> Any:
    """Return a module, or an object of a module."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return getattr(import_module(module), attribute)


@pytest.mark.parametrize("name", NAMES)
def test_a_stable_name_exists(name):
    assert resolve(name) is not None


def test_a_missing_name_is_found():
    with pytest.raises(AttributeError):
        resolve("cllm.core.ports.Missing")


def test_every_public_name_is_stable():
    assert {name.removeprefix("cllm.") for name in NAMES if name.count(".") == 1} == set(
        cllm.__all__
    )


def test_the_entry_point_group_is_the_documented_one():
    assert '"cllm.providers"' in (third_party.__doc__ or "")


def test_the_python_versions_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [line for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)]
    oldest, newest = (line.rpartition(" ")[2] for line in (lines[0], lines[-1]))
    assert f"Python {oldest} to {newest}" in TEXT


def test_the_exit_codes_are_those_of_the_command():
    assert f"{EXIT_INTERRUPTED} Ctrl-C" in TEXT


def test_the_routes_outside_v1_exist():
    paths = {route.path for route in ROUTES}
    for path in re.findall(r"`(/[a-z.]+)`", TEXT):
        assert path in paths or any(one.startswith(f"{path}/") for one in paths), path


def test_the_links_lead_to_existing_pages_and_headings():
    for page, anchor in re.findall(r"\]\(([\w./-]*\.md)?(?:#([\w-]+))?\)", TEXT):
        target = ROOT / "docs" / "reference" / (page or "stability.md")
        headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-") for one in headings}
        assert not anchor or anchor in slugs, f"{page}#{anchor}"

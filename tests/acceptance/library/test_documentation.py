"""The reference of the library: every example runs, and every public name has its line."""

import inspect
import re
from pathlib import Path

import pytest

import cllm
from cllm.library.stores import BlockingStore, OpenStore

PAGE = (Path(__file__).parents[3] / "docs/reference/library.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def public(kind: type) -> list[str]:
    return [name for name in vars(kind) if not name.startswith("_")]


@pytest.mark.parametrize("source", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_example_runs(provider, program, source):
    assert program(source)
    assert provider.requests


def test_there_are_examples_of_everything():
    assert len(EXAMPLES) >= 7


@pytest.mark.parametrize("name", sorted(set(cllm.__all__) - {"__version__"}))
def test_the_public_name_has_its_line(name):
    assert re.search(rf"`(cllm\.)?{name}[`(]", PAGE)


@pytest.mark.parametrize("name", sorted({*public(BlockingStore), "capture"} - {"kept"}))
def test_the_operation_of_a_store_has_its_line(name):
    assert f"`{name}`" in PAGE
    assert inspect.iscoroutinefunction(getattr(OpenStore, name))

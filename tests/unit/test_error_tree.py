"""The error tree in docs/reference/library.md matches the classes of `cllm.core.errors`."""

import inspect
import pickle
import re
from pathlib import Path

import pytest

from cllm.core import errors
from cllm.core.notice import Notice

REFERENCE = Path(__file__).parents[2] / "docs/reference/library.md"
LINE = re.compile(r"^(?P<indent>(?:│   |    )*)(?:[├└]── )?(?P<name>[A-Z]\w+Error)\b")


def documented_tree() -> dict[str, str | None]:
    """Return the parent of each class in the reference."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in REFERENCE.read_text(encoding="utf-8").splitlines():
        match = LINE.match(line)
        if match is None:
            continue
        depth = 0 if match["name"] == "CllmError" else len(match["indent"]) // 4 + 1
        parents[match["name"]] = path[depth - 1] if depth else None
        path[depth:] = [match["name"]]
    return parents


def class_tree() -> dict[str, str | None]:
    classes = inspect.getmembers(errors, inspect.isclass)
    return {
        name: None if kind is errors.CllmError else kind.__mro__[1].__name__
        for name, kind in classes
        if kind.__module__ == errors.__name__ and issubclass(kind, Exception)
    }


def test_the_documented_tree_matches_the_classes():
    assert documented_tree() == class_tree()


def create_error(kind: type[errors.CllmError]) -> errors.CllmError:
    """Create an error with a value for each argument that its class requires."""
    notice = Notice(code="tool_removed", path="tools", message="Removed.")
    values = {"needed": 3, "available": 2, "notices": (notice,), "keys": ("model",)}
    parameters = inspect.signature(kind.__init__).parameters.values()
    required = [one for one in parameters if one.default is one.empty and one.name != "self"]
    named = [one for one in required if one.kind is not one.VAR_POSITIONAL]
    named = [one for one in named if one.kind is not one.VAR_KEYWORD]
    positional = [one.name for one in named if one.kind is not one.KEYWORD_ONLY]
    keywords = [one.name for one in named if one.kind is one.KEYWORD_ONLY]
    return kind(
        *(values.get(name, f"the {name}") for name in positional),
        **{name: values.get(name, f"the {name}") for name in keywords},
    )


@pytest.mark.parametrize("name", sorted(class_tree()))
def test_an_error_of_another_process_has_its_text_and_its_fields(name):
    error = create_error(getattr(errors, name))

    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - of this test

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert copy.report() == error.report()


def test_the_classes_are_in_the_documented_order():
    source = inspect.getsource(errors)
    positions = [source.index(f"class {name}(") for name in documented_tree()]

    assert positions == sorted(positions)

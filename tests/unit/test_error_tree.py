"""The tree that is drawn in the docstring of `cllm.core.errors` is the tree of its classes."""

import inspect
import re

from cllm.core import errors

LINE = re.compile(r"^    (?P<indent>(?:│   |    )*)(?:[├└]── )?(?P<name>[A-Z]\w+Error)\b")


def drawn_tree() -> dict[str, str | None]:
    """The parent of each class in the drawing."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
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


def test_the_drawn_tree_is_the_tree_of_the_classes():
    assert drawn_tree() == class_tree()


def test_the_classes_stand_in_the_order_of_the_drawing():
    source = inspect.getsource(errors)
    positions = [source.index(f"class {name}(") for name in drawn_tree()]

    assert positions == sorted(positions)

"""The shape of JSON: the path and the types of every field, without values."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

NAMES = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}
TOP = ""


class Shape:
    """The fields of one or several values. Paths child those in `without` are not described."""

    def __init__(self, values: Iterable[Any] = (), *, without: tuple[str, ...] = ()) -> None:
        self._types: dict[str, set[str]] = defaultdict(set)
        self._seen: Counter[str] = Counter()
        self._objects: Counter[str] = Counter()
        self._without = without
        for value in values:
            self.add(value)

    def add(self, value: Any) -> None:
        self._add(value, TOP)

    def _add(self, value: Any, path: str) -> None:
        match value:
            case dict():
                self._types[path].add("object")
                self._objects[path] += 1
                if path in self._without:
                    return
                for name, inner in value.items():
                    child = f"{path}.{name}" if path else name
                    self._seen[child] += 1
                    self._add(inner, child)
            case list():
                self._types[path].add("array")
                for inner in value:
                    self._add(inner, f"{path}[]")
            case _:
                self._types[path].add(NAMES[type(value)])

    def lines(self) -> list[str]:
        """Return a line per path, with `?` if not all objects have the field."""
        return [
            f"  {path}{'?' if self._is_optional(path) else ''}: {' | '.join(sorted(kinds))}"
            for path, kinds in sorted(self._types.items())
            if path != TOP or kinds != {"object"}
        ]

    def _is_optional(self, path: str) -> bool:
        if path.endswith("[]") or path == TOP:
            return False
        parent = path.rpartition(".")[0]
        return self._seen[path] < self._objects[parent]

"""Names and layout of `src/cllm`: unique class names, nouns as module names, a test per module."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "cllm"
UNIT_TESTS = ROOT / "tests" / "unit"

# Words in -ing that the field uses as nouns: a text encoding, price lists, a model's reasoning, a
# recording of requests, URL routing, a string, a test package, distributed tracing.
NOUNS_IN_ING = {
    *("encoding", "pricing", "reasoning", "recording"),
    *("routing", "string", "testing", "tracing"),
}

# Modules without a test file of the same name: packages, entry points, migrations (tests in
# tests/integration/stores run them), and the contract suites, which are tests themselves (the
# tests in tests/contract run them).
UNTESTED_NAMES = ("__init__.py", "__main__.py")
UNTESTED_FOLDERS = ("stores/sql/migrations/versions", "testing")

CLASS_LINE = re.compile(r"^[ \t]*class ([A-Za-z]\w*)", re.MULTILINE)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Match, ast.Try, ast.TryStar, ast.IfExp)


def iterate_modules(package: Path) -> Iterator[Path]:
    """Yield the path of each module, relative to the package."""
    return (path.relative_to(package) for path in sorted(package.rglob("*.py")))


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes(), filename=str(path))


def list_classes(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the name and the line of each class of a module."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ClassDef):
            yield node.name, node.lineno


def find_duplicate_classes(package: Path) -> dict[str, list[str]]:
    """Return each public class name that several classes have, with `module:line` of each.

    Parses only modules with a name that a text search finds twice: parsing all takes over a second.
    """
    modules: dict[str, list[Path]] = defaultdict(list)
    for path in iterate_modules(package):
        for name in CLASS_LINE.findall((package / path).read_text(encoding="utf-8")):
            modules[name].append(path)
    classes: dict[str, list[str]] = defaultdict(list)
    for path in sorted({path for paths in modules.values() if len(paths) > 1 for path in paths}):
        for name, line in list_classes(package / path):
            if not name.startswith("_"):
                classes[name].append(f"{path}:{line}")
    return {name: locations for name, locations in classes.items() if len(locations) > 1}


def find_gerunds(package: Path) -> list[str]:
    """Return the modules and packages that are named by a gerund."""
    paths = {part for path in iterate_modules(package) for part in (path, *path.parents)}
    return sorted(
        str(path) for path in paths if path.stem.endswith("ing") and path.stem not in NOUNS_IN_ING
    )


def is_branch(node: ast.AST) -> bool:
    return isinstance(node, BRANCHES) or (isinstance(node, ast.comprehension) and bool(node.ifs))


def has_branches(tree: ast.Module) -> bool:
    """Whether a function of the module has a branch, a loop or a comprehension's condition."""
    functions = (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))
    return any(is_branch(node) for function in functions for node in ast.walk(function))


def needs_test(path: Path) -> bool:
    in_folder = any(path.is_relative_to(folder) for folder in UNTESTED_FOLDERS)
    return path.name not in UNTESTED_NAMES and not in_folder


def expected_test(path: Path) -> Path:
    return path.with_name(f"test_{path.name}")


def find_untested_modules(package: Path, tests: Path) -> dict[str, str]:
    """Return the modules with branches that have no test file, each with the expected file."""
    return {
        str(path): str(expected_test(path))
        for path in iterate_modules(package)
        if needs_test(path) and not (tests / expected_test(path)).is_file()
        if has_branches(parse(package / path))
    }


def describe(problem: str, items: Mapping[str, str] | Iterable[str]) -> str:
    """Return a failure message with a line per item."""
    rows = items.items() if isinstance(items, Mapping) else ((item, "") for item in items)
    lines = [f"  {name} -> {detail}" if detail else f"  {name}" for name, detail in rows]
    return "\n".join([f"{problem} ({len(lines)}):", *lines])


def fail_if_any(items: Mapping[str, str] | Iterable[str], problem: str) -> None:
    if items:
        pytest.fail(describe(problem, items), pytrace=False)


def test_no_two_public_classes_have_the_same_name():
    duplicates = find_duplicate_classes(PACKAGE)
    locations = {name: ", ".join(lines) for name, lines in duplicates.items()}

    fail_if_any(locations, "Rename all but one of these classes")


def test_no_module_is_named_by_a_gerund():
    gerunds = find_gerunds(PACKAGE)

    fail_if_any(gerunds, "Name these by a noun, or add an established noun to NOUNS_IN_ING")


def test_every_module_with_branches_has_a_unit_test():
    untested = find_untested_modules(PACKAGE, UNIT_TESTS)

    fail_if_any(untested, "Add the file in tests/unit for these modules of src/cllm")


def write_tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_a_class_name_in_two_modules_is_found(tmp_path: Path):
    package = write_tree(
        tmp_path,
        {
            "a.py": "class Turn: ...\nclass _Row: ...\nclass Page: ...\n",
            "b/c.py": "class _Row: ...\n\n\nclass Turn: ...\n",
            "d.py": '"""\nclass Page: a docstring\n"""\n',
        },
    )

    assert find_duplicate_classes(package) == {"Turn": ["a.py:1", "b/c.py:4"]}


def test_gerunds_are_found_in_names_of_modules_and_packages(tmp_path: Path):
    package = write_tree(
        tmp_path / "cllm",
        {
            "asking.py": "",
            "sending/__init__.py": "",
            "wire/reasoning.py": "",
            "testing/store.py": "",
            "king/ring_buffer.py": "",
        },
    )

    assert find_gerunds(package) == ["asking.py", "king", "sending"]


def test_a_module_with_branches_and_without_a_test_is_found(tmp_path: Path):
    package = write_tree(
        tmp_path / "package",
        {
            "plain.py": "X = [1 if True else 2]\n\ndef f(x):\n    return [y for y in x]\n",
            "wire/tested.py": "def f(x):\n    return 1 if x else 2\n",
            "wire/untested.py": "def f(x):\n    return [y for y in x if y]\n",
            "wire/__init__.py": "def f(x):\n    if x: ...\n",
            "stores/sql/migrations/versions/0001.py": "def f(x):\n    if x: ...\n",
        },
    )
    tests = write_tree(tmp_path / "tests", {"wire/test_tested.py": ""})

    assert find_untested_modules(package, tests) == {"wire/untested.py": "wire/test_untested.py"}


def test_branches_outside_functions_do_not_count():
    assert not has_branches(ast.parse("if True:\n    X = 1\nelse:\n    X = 2\n"))


def test_every_kind_of_branch_counts():
    statements = [
        "if x: ...",
        "for y in x: ...",
        "while x: ...",
        "match x:\n        case 1: ...",
        "try: ...\n    finally: ...",
        "return 1 if x else 2",
        "return {y for y in x if y}",
        "return lambda: 1 if x else 2",
    ]

    for statement in statements:
        assert has_branches(ast.parse(f"async def f(x):\n    {statement}\n")), statement


def test_a_failure_lists_each_item_on_a_line():
    assert describe("Rename", ["a", "b"]) == "Rename (2):\n  a\n  b"
    assert describe("Add", {"x.py": "test_x.py"}) == "Add (1):\n  x.py -> test_x.py"

"""One vocabulary of notices: every code that the source can produce has its line in the reference.

The codes are read from the source: where a notice is made, and in the tables of sentences.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cllm.core.notice import Notice
from cllm.wire.notes import Notes

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs" / "reference" / "notices.md"
LINE = re.compile(r"^\| `(\w+)` \| \S", re.MULTILINE)
MAKERS = ("Notice", "dropped", "_dropped")
GATHERERS = ("notes", "_notes", "under_way")
GATHERING = ("add", "changed")
OTHER_WORDS = re.compile(r"dropped|moved_|added_|changed_|wrapped|needs_|block_")


def name_of(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return name
    return ""


def texts(*nodes: ast.expr | None) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.IfExp):
            yield from texts(node.body, node.orelse)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def codes_of_call(call: ast.Call) -> Iterator[str]:
    if name_of(call.func) in MAKERS:
        yield from texts(*(word.value for word in call.keywords if word.arg == "code"))
    match call.func:
        case ast.Attribute(attr=word, value=of) if word in GATHERING and name_of(of) in GATHERERS:
            yield from texts(*call.args[:1])


def codes_of_table(name: str, table: ast.Dict) -> Iterator[str]:
    if name == "SENTENCES":
        yield from texts(*(v.elts[0] for v in table.values if isinstance(v, ast.Tuple)))
    if name == "NOTICES":
        yield from texts(*table.keys)


class Named(ast.NodeTransformer):
    """Puts the texts that a module has names for in the place of these names."""

    def __init__(self, tree: ast.Module) -> None:
        self._texts = {
            node.targets[0].id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            if isinstance(node.value, ast.Constant)
        }

    def visit_Name(self, node: ast.Name) -> ast.expr:
        known = isinstance(node.ctx, ast.Load) and node.id in self._texts
        return self._texts[node.id] if known else node


def codes_in(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    for node in ast.walk(Named(tree).visit(tree)):
        match node:
            case ast.Call():
                yield from codes_of_call(node)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict() as table):
                yield from codes_of_table(name, table)
            case ast.FunctionDef(name="dropped"):
                yield from texts(*node.args.kw_defaults)


def produced() -> set[str]:
    files = (ROOT / "src" / "cllm").rglob("*.py")
    return {code for path in files for code in codes_in(path.read_text(encoding="utf-8"))}


def test_every_code_that_the_source_produces_is_explained_and_no_other():
    explained = LINE.findall(REFERENCE.read_text(encoding="utf-8"))
    assert set(explained) == produced()
    assert explained == sorted(set(explained))


def test_the_codes_are_read_from_every_form_they_are_written_in():
    source = """
SENTENCES = {"why": ("a", "A sentence.")}
NOTICES = {"b": "A sentence."}
def dropped(path, *, code="c"): ...
notes.add("d", "path", "message")
self._notes.add("e" if x else "f", "path", "message")
under_way.changed("g", 3)
Notice(code="h", message="")
CODE = "i"
Notice(code=CODE, message="")
Problem(code="not a notice")
seen.add("not a notice")
"""
    assert set(codes_in(source)) == set("abcdefghi")


def test_a_code_says_what_became_of_something_in_one_order_of_words():
    assert [code for code in produced() if OTHER_WORDS.search(code)] == []


class TestNotes:
    def test_the_same_thing_in_several_places_is_one_notice(self):
        notes = Notes({"why": ("part_left_out", "It was left out.")})
        notes.tell("why", "messages[1]")
        notes.tell("why", "messages[4]")
        notes.add("part_left_out", "system", "Another was left out.")
        assert notes.notices() == (
            Notice(code="part_left_out", path="messages[1]", message="It was left out. (2 times)"),
            Notice(code="part_left_out", path="system", message="Another was left out."),
        )

    def test_the_same_sentence_about_another_thing_is_another_notice(self):
        notes = Notes({"field": ("field_left_out", "There is no such field.")})
        notes.tell("field", "a", subject="a")
        notes.tell("field", "b", subject="b")
        assert [notice.path for notice in notes.notices()] == ["a", "b"]

    def test_a_reason_without_a_sentence_is_a_mistake_of_ours(self):
        with pytest.raises(KeyError):
            Notes().tell("why", "messages[0]")

    def test_notices_of_others_are_taken_as_they_are(self):
        notes = Notes()
        notice = Notice(code="a", path="p", message="m")
        notes.extend([notice])
        assert notes.notices() == (notice,)

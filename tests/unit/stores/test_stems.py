import re
import sqlite3
from pathlib import Path

import pytest

from cllm.stores.stems import find_stem, list_forms

DOCS = Path(__file__).parents[3] / "docs"


def read_words() -> list[str]:
    texts = (path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    return sorted({word for text in texts for word in re.findall("[a-z]{4,40}", text.lower())})


def test_stems_are_those_of_the_porter_tokenizer_of_sqlite():
    words = read_words()
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE porter USING fts5(word, tokenize='porter ascii')")
    db.execute("CREATE VIRTUAL TABLE stems USING fts5vocab(porter, 'instance')")
    db.executemany("INSERT INTO porter (rowid, word) VALUES (?, ?)", enumerate(words))
    rows = db.execute("SELECT doc, term FROM stems ORDER BY doc").fetchall()
    db.close()

    assert len(words) > 1000
    assert [find_stem(words[number]) for number, _ in rows] == [stem for _, stem in rows]


@pytest.mark.parametrize(
    ("word", "forms"),
    [
        ("cat", {"cats"}),
        ("running", {"run", "runs"}),
        ("city", {"cities"}),
        ("connect", {"connected", "connecting", "connection", "connections"}),
        ("deploys", {"deploy", "deployed", "deploying"}),
        ("relation", {"relate", "related"}),
    ],
)
def test_forms_of_a_word_share_its_stem(word, forms):
    found = set(list_forms(word))

    assert forms <= found
    assert word not in found
    assert {find_stem(form) for form in found} == {find_stem(word)}


@pytest.mark.parametrize("word", ["ab", "b2b", "straße", "кошки", "x" * 41, ""])
def test_other_words_have_no_forms(word):
    assert list_forms(word) == ()


@pytest.mark.parametrize("word", ["use", "is", "das", "letter"])
def test_words_with_different_stems_are_no_forms(word):
    assert {"us", "let", "da"}.isdisjoint(list_forms(word))

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.errors import UsageError
from cllm.core.message import plain_message
from cllm.stores.search import (
    SearchTerm,
    build_index_terms,
    build_snippet,
    extract_terms,
    highlight_words,
    owner_term,
    parse_query,
)

CJK = st.text(st.sampled_from("猫犬私の名前ルナ露娜고양이"), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The cat, the CAT!", ("the", "cat")),
        ("snake_case x-1.5", ("snake", "case", "x", "1", "5")),
        ("猫の名", ("猫の", "の名", "名")),
        ("GPU는 빠르다", ("gpu", "는", "빠르", "르다", "다")),
        ("\uff21\uff22\uff23", ("abc",)),
        ("a" * 100, ("a" * 64,)),
        ("a\0b", ("a", "b")),
        ("?!", ()),
    ],
)
def test_text_becomes_terms(text, terms):
    assert extract_terms(text) == terms


def test_a_query_becomes_terms():
    assert parse_query("Luna42 luna42") == (SearchTerm("luna42"),)
    (word,) = parse_query("Cats")
    assert (word.text, word.prefix, word.root) == ("cats", False, "cat")
    assert "cat" in word.forms
    assert parse_query("猫の名") == (SearchTerm("猫の"), SearchTerm("の名"))
    assert parse_query("猫") == (SearchTerm("猫", prefix=True),)
    with pytest.raises(UsageError):
        parse_query(" ?! ")


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_text_has_the_same_terms_in_mixed_text(text):
    assert extract_terms(f"{text} é") == (*extract_terms(text), "é")


@given(CJK, CJK, CJK)
def test_any_part_of_text_without_spaces_is_found(before, part, after):
    terms = extract_terms(before + part + after)
    assert all(term.is_in(terms) for term in parse_query(part))


@given(st.text())
def test_every_word_of_a_text_finds_it(text):
    terms = extract_terms(text)
    for word in text.split():
        try:
            wanted = parse_query(word)
        except UsageError:
            continue
        assert all(term.is_in(terms) for term in wanted)


@given(st.text(), st.text(min_size=1))
def test_no_text_contains_the_term_of_an_owner(text, owner):
    assert owner_term(owner) not in extract_terms(text + owner)


@given(st.text())
def test_index_terms_are_separated_by_single_spaces(text):
    indexed = build_index_terms(plain_message("user", text), "local")
    assert indexed.split() == (indexed.split(" ") if indexed else [])
    assert '"' not in indexed
    assert "\0" not in indexed


def test_a_snippet_is_one_line_around_the_first_word():
    text = "start " + "filler " * 40 + "the\ncat sleeps " + "filler " * 40
    snippet = build_snippet(text, parse_query("cat"))
    assert "the cat sleeps" in snippet
    assert snippet.startswith("…")
    assert snippet.endswith("…")
    assert "\n" not in snippet


def test_a_snippet_starts_at_a_whole_word_and_not_within_another():
    text = "concatenate " * 20 + "my cats"
    assert "my cats" in build_snippet(text, parse_query("cat"))


@pytest.mark.parametrize(
    ("text", "query", "html"),
    [
        (
            "My CATS & <b>dogs</b>",
            "cat dogs",
            "My <b>CATS</b> &amp; &lt;b&gt;<b>dogs</b>&lt;/b&gt;",
        ),
        ("concatenate", "cat", "concatenate"),
        ("我的CAT猫", "cat", "我的<b>CAT</b>猫"),
        ("ÄPFEL apfel", "äpfel", "<b>ÄPFEL</b> apfel"),
        ("catcats cats_cat cat2", "cat", "catcats <b>cats</b>_<b>cat</b> cat2"),
        ("私の猫の名前", "猫の名", "私の<b>猫の</b>名前"),
        ("我的猫", "猫", "我的<b>猫</b>"),
    ],
)
def test_a_highlight_is_html_with_the_words_marked(text, query, html):
    assert highlight_words(text, parse_query(query)) == html


def test_only_the_first_words_of_a_query_are_expanded():
    words = parse_query(" ".join(f"word{'s' * number}" for number in range(20)))
    assert [bool(word.forms) for word in words] == [True] * 8 + [False] * 12

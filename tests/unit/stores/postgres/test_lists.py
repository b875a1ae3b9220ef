from cllm.stores.postgres.lists import build_tsquery
from cllm.stores.search import SearchTerm


def test_a_tsquery_has_the_owner_and_every_word():
    query = build_tsquery([SearchTerm("cat"), SearchTerm("猫", prefix=True)], "local")
    owner, word, prefix = query.split(" & ")
    assert owner.startswith("'@_")
    assert (word, prefix) == ("'@cat'", "'@猫':*")
    assert build_tsquery([SearchTerm("cat", forms=("cats",))], "x").endswith(
        " & ('@cat' | '@cats')"
    )


def test_owners_have_different_terms():
    words = [SearchTerm("cat")]
    assert build_tsquery(words, "ann") != build_tsquery(words, "bob")
    assert build_tsquery(words, "\ud800") == build_tsquery(words, "\ud800")

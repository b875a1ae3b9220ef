"""A memo keeps what fits, the latest, and never more."""

from hypothesis import given
from hypothesis import strategies as st

from cllm.wire.memo import Memo

PUTS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 30)), max_size=60)


def test_what_was_put_there_is_there():
    memo: Memo[str, int] = Memo(100)

    memo.put("a", 1, 10)

    assert memo.get("a") == 1
    assert memo.get("b") is None


def test_what_was_used_last_stays_when_there_is_no_room():
    memo: Memo[str, int] = Memo(100)
    memo.put("used", 1, 20)
    memo.put("unused", 2, 20)
    for number in range(20):
        memo.put(f"{number}", number, 10)
        assert memo.get("used") == 1

    assert memo.get("unused") is None


def test_what_is_larger_than_its_room_is_not_kept_and_takes_the_place_of_nothing():
    memo: Memo[str, int] = Memo(100)
    memo.put("a", 1, 10)

    memo.put("b", 2, 51)

    assert memo.get("a") == 1
    assert memo.get("b") is None


def test_what_is_forgotten_is_gone_and_makes_room():
    memo: Memo[str, int] = Memo(100)
    memo.put("a", 1, 50)
    memo.forget("a")
    memo.put("b", 2, 50)
    memo.put("c", 3, 50)

    assert memo.get("a") is None
    assert memo.get("b") == 2
    assert memo.get("c") == 3


@given(puts=PUTS)
def test_there_are_never_more_bytes_than_its_limit(puts):
    memo: Memo[int, int] = Memo(100)
    sizes: dict[int, int] = {}
    for key, size in puts:
        memo.put(key, size, size)
        sizes[key] = size
        kept = [key for key in sizes if key in memo]

        assert sum(sizes[key] for key in kept) <= 100
        assert all(memo.get(key) in (sizes[key], None) for key in kept)

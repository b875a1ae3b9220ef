"""The notices of a request: without duplicates, up to a limit, with a count of the rest."""

import msgspec
import pytest

from cllm.core.notice import LEFT_OUT, MAX_NOTICES, Notice, NoticeCollector, notices_left_out


def notices(count: int, *, first: int = 0) -> list[Notice]:
    numbers = range(first, first + count)
    return [Notice(code="field_left_out", path=f"k{n}", message=f"No k{n}.") for n in numbers]


def test_a_notice_is_collected_once_and_in_order():
    first, second = notices(2)
    collected = NoticeCollector()

    assert [collected.append(each) for each in (first, second, first)] == [True, True, False]
    assert list(collected) == [first, second]


@pytest.mark.parametrize("more", [0, 1, 5000])
def test_above_the_limit_a_last_notice_counts_the_rest(more: int):
    collected = list(NoticeCollector(notices(MAX_NOTICES + more)))

    assert collected[:MAX_NOTICES] == notices(MAX_NOTICES)
    assert collected[MAX_NOTICES:] == ([notices_left_out(more)] if more else [])


def test_the_last_notice_has_a_code_a_count_and_a_message():
    last = notices_left_out(5000)

    assert (last.code, last.count) == (LEFT_OUT, 5000)
    assert last.message == "Only the first 100 notices are listed; 5000 more are left out."
    assert notices_left_out(1).message.endswith("; 1 more is left out.")


def test_the_counts_of_nested_collectors_are_added():
    inner = NoticeCollector(notices(MAX_NOTICES + 7))
    outer = NoticeCollector((*inner, *notices(3, first=1000)))

    assert list(outer) == [*notices(MAX_NOTICES), notices_left_out(10)]
    assert list(NoticeCollector(outer)) == list(outer)


def test_a_collector_is_true_if_it_has_notices():
    assert not NoticeCollector()
    assert NoticeCollector(notices(1))
    assert NoticeCollector([notices_left_out(3)])


def test_an_ordinary_notice_is_stored_without_its_count():
    (notice,) = notices(1)
    last = notices_left_out(8)

    assert b"count" not in msgspec.json.encode(notice)
    assert msgspec.json.decode(msgspec.json.encode([notice, last]), type=list[Notice]) == [
        notice,
        last,
    ]

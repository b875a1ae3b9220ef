"""The tokens of a log: reported where somebody counted, estimated where nobody did."""

from hypothesis import given
from hypothesis import strategies as st

from cllm.window.tokens import TokenEstimate, TokenRatios
from cllm.window.turn_index import ReportedCount, count_messages

LOG = [
    TokenEstimate(plain=100.0),
    TokenEstimate(plain=50.0),
    TokenEstimate(plain=100.0),
    TokenEstimate(plain=80.0),
]
SYSTEM = TokenEstimate(plain=200.0)


def test_before_any_report_everything_is_estimated_but_the_replies_that_were_counted():
    counted = count_messages(LOG, replies={1: 70}, overhead=SYSTEM)

    assert counted.messages == (100, 70, 100, 80)
    assert counted.overhead == 200
    assert counted.ratios == TokenRatios()


def test_the_last_report_is_the_truth_for_what_it_covered():
    last = ReportedCount(spans=((0, 3),), tokens=910, overhead=SYSTEM)
    counted = count_messages(LOG, replies={1: 70}, last=last, overhead=SYSTEM)

    assert counted.messages[:3] == (210, 70, 210)
    assert counted.overhead == 420
    assert counted.messages[3] == counted.ratios.correct(LOG[3]) > 80


def test_other_things_beside_the_messages_are_estimated_with_what_was_learned():
    last = ReportedCount(spans=((0, 3),), tokens=910, overhead=SYSTEM)
    counted = count_messages(LOG, replies={1: 70}, last=last, overhead=TokenEstimate(plain=300.0))

    assert counted.overhead == counted.ratios.correct(TokenEstimate(plain=300.0))


def test_messages_that_the_report_did_not_cover_are_estimated():
    last = ReportedCount(spans=((2, 3),), tokens=300, overhead=SYSTEM)
    counted = count_messages(LOG, replies={}, last=last, overhead=SYSTEM)

    assert counted.messages[2] + counted.overhead == 300
    assert counted.messages[0] == counted.ratios.correct(LOG[0])


def test_replies_that_are_more_than_the_report_are_not_believed():
    last = ReportedCount(spans=((0, 3),), tokens=60, overhead=SYSTEM)
    counted = count_messages(LOG, replies={1: 70}, last=last, overhead=SYSTEM)

    assert sum(counted.messages[:3]) + counted.overhead == 60
    assert min(counted.messages) >= 0


@given(
    st.lists(st.floats(0, 500), min_size=1, max_size=30),
    st.integers(1, 50_000),
    st.sets(st.integers(0, 29)),
    st.data(),
)
def test_what_a_report_covered_always_adds_up_to_it(weights, tokens, replied, data):
    log = [TokenEstimate(plain=weight) for weight in weights]
    start = data.draw(st.integers(0, len(log) - 1))
    replies = {n: 10 for n in replied if n < len(log)}
    last = ReportedCount(spans=((start, len(log)),), tokens=tokens, overhead=SYSTEM)
    counted = count_messages(log, replies=replies, last=last, overhead=SYSTEM)

    assert sum(counted.messages[start:]) + counted.overhead == tokens
    assert min(counted.messages) >= 0

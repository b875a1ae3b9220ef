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


def test_without_a_report_all_messages_but_counted_replies_are_estimated():
    counted = count_messages(LOG, replies={1: 70}, overhead=SYSTEM)

    assert counted.messages == (100, 70, 100, 80)
    assert counted.overhead == 200
    assert counted.ratios == TokenRatios()


def test_the_messages_of_the_last_prompt_add_up_to_its_report():
    last = ReportedCount(spans=((0, 3),), tokens=910, overhead=SYSTEM)
    counted = count_messages(LOG, replies={1: 70}, last=last, overhead=SYSTEM)

    assert counted.messages[:3] == (210, 70, 210)
    assert counted.overhead == 420
    assert counted.messages[3] == counted.ratios.correct(LOG[3]) > 80


def test_a_changed_overhead_is_estimated_with_the_ratio_of_the_report():
    last = ReportedCount(spans=((0, 3),), tokens=910, overhead=SYSTEM)
    counted = count_messages(LOG, replies={1: 70}, last=last, overhead=TokenEstimate(plain=300.0))

    assert counted.overhead == counted.ratios.correct(TokenEstimate(plain=300.0))


def test_messages_that_the_report_did_not_cover_are_estimated():
    last = ReportedCount(spans=((2, 3),), tokens=300, overhead=SYSTEM)
    counted = count_messages(LOG, replies={}, last=last, overhead=SYSTEM)

    assert counted.messages[2] + counted.overhead == 300
    assert counted.messages[0] == counted.ratios.correct(LOG[0])


def test_reply_counts_above_the_report_are_ignored():
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
def test_covered_messages_always_add_up_to_the_report(weights, tokens, replied, data):
    log = [TokenEstimate(plain=weight) for weight in weights]
    start = data.draw(st.integers(0, len(log) - 1))
    replies = {n: 10 for n in replied if n < len(log)}
    last = ReportedCount(spans=((start, len(log)),), tokens=tokens, overhead=SYSTEM)
    counted = count_messages(log, replies=replies, last=last, overhead=SYSTEM)

    assert sum(counted.messages[start:]) + counted.overhead == tokens
    assert min(counted.messages) >= 0

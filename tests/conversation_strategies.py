"""Whole conversations for Hypothesis: turns, variants, states, usage, records and messages."""

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st
from tests.message_strategies import NONBLANK_TEXT, messages

from cllm.core.conversation import (
    Branch,
    Policy,
    StandingSummary,
    StoredConversation,
    SystemRecord,
    Turn,
    TurnFailure,
    TurnState,
    WindowRecord,
)
from cllm.core.message import plain_message
from cllm.core.notice import Notice
from cllm.core.reply import Usage

START = datetime(2025, 1, 1, tzinfo=UTC)
NAMES = st.text("abc-_1", min_size=1, max_size=6)
TIMES = st.integers(0, 10**9).map(lambda number: START + timedelta(microseconds=number))
LATER = st.integers(0, 10**9).map(lambda number: START + timedelta(days=1, microseconds=number))
COUNTS = st.integers(0, 1000)
USAGES = st.builds(Usage, input=COUNTS, output=COUNTS, cache_read=COUNTS, reasoning=COUNTS)
STATES: tuple[TurnState, ...] = ("complete", "incomplete", "failed")
POLICIES: tuple[Policy, ...] = ("captured", "pinned")
TEXTS = NONBLANK_TEXT.filter(lambda text: "\0" not in text)


@st.composite
def turns(draw: st.DrawFn, turn_id: str, *, place: str | None = None) -> Turn:
    state: TurnState = draw(st.sampled_from(STATES))
    contents = draw(st.lists(messages(), min_size=1, max_size=3))
    failure = TurnFailure(code="interrupted", message="It ended.") if state == "failed" else None
    return Turn(
        id=turn_id,
        place=place or turn_id,
        state=state,
        messages=tuple(contents),
        started_at=draw(TIMES),
        ended_at=draw(LATER),
        model=draw(st.none() | TEXTS),
        provider=draw(st.none() | NAMES),
        usage=draw(st.none() | USAGES),
        cost=draw(st.none() | st.floats(0, 10)),
        notices=draw(st.just(()) | st.just((Notice(code="a", path="b", message="c"),))),
        window=draw(st.none() | st.just(WindowRecord(first_sequence=1, sent_messages=1))),
        failure=failure,
    )


@st.composite
def conversations(draw: st.DrawFn, conversation_id: str = "cats") -> StoredConversation:
    path = [draw(turns(f"t{number}")) for number in range(draw(st.integers(0, 4)))]
    variants = [
        draw(turns(f"{turn.id}-v", place=turn.id))
        for turn in path
        if turn.is_history and draw(st.booleans())
    ]
    count = sum(len(turn.messages) for turn in path)
    policy: Policy = draw(st.sampled_from(POLICIES))
    prompt = draw(TEXTS)
    record = SystemRecord(policy=policy, source=draw(st.none() | TEXTS))
    if policy == "pinned":
        record = SystemRecord(policy=policy, prompt=prompt)
    summary = None
    if count and draw(st.booleans()):
        through = draw(st.integers(1, count))
        summary = StandingSummary(text=draw(TEXTS), through=through, tokens=3, made_at=draw(TIMES))
    return StoredConversation(
        id=conversation_id,
        created_at=draw(TIMES),
        updated_at=draw(LATER),
        model=draw(st.none() | TEXTS),
        title=draw(st.none() | TEXTS),
        system=plain_message("system", prompt) if policy == "captured" else None,
        system_record=record,
        turns=tuple(path),
        variants=tuple(variants),
        pins=tuple(sorted(draw(st.sets(st.integers(1, count), max_size=2)))) if count else (),
        summary=summary,
        parent=draw(st.none() | st.builds(Branch, conversation=NAMES, sequence=COUNTS)),
        family=draw(st.none() | NAMES),
        source=draw(st.none() | NAMES),
        is_side=draw(st.booleans()),
        archived_at=draw(st.none() | LATER),
        metadata=draw(st.dictionaries(NAMES, TEXTS | st.integers() | st.none(), max_size=3)),
    )

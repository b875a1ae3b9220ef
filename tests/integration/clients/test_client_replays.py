"""The recorded requests of real clients, replayed: each message is stored once, where it belongs.

The tables have the expected result of each request, by its number in the recording:

- `none`: not recorded. `new a`: starts conversation a. `append a`: continues it.
- `retry a`: the same history again. `variant a`: other messages in the slot of the last turn.
- `cut a`: continues after the beginning of a reply that was cancelled.
- `branch b a`: a rewind of a. `fork b a`: another session with the history of a.
- `compaction b a`: starts with a summary of a. `side s a`: a side request of a.
"""

from collections.abc import Iterator
from itertools import zip_longest

import pytest
from tests.client_recordings import FOLDER, MARKS, RecordedRequest, read_recording
from tests.client_replay import (
    ClientReplay,
    PlannedReply,
    ReplayChecker,
    plan_replies,
    restore_summaries,
)

from cllm.core.ports import Clock, Store
from cllm.stores.memory import MemoryStore

pytestmark = MARKS

EXPECTED = {
    # The commit message has nothing of the conversation.
    "aider-1-edit-undo": """
        1 new a
        2 side s
        3-4 append a
    """,
    "aider-2-ask-restore": """
        1 new a
        2-5 append a
    """,
    "claude-code-1-tool-loop-and-continue": """
        1 none
        2 new a
        3-7 append a
        8 none
        9 new b
        10-13 append b
        14 fork c b
    """,
    # 17: the client changes its only message after it was killed, so nothing is common.
    "claude-code-2-subagents-retry-cancel": """
        1 none
        2 new a
        3 side s a
        4 side t a
        5 append s
        6 append t
        7 append a
        8 none
        9 new b
        10-11 retry b
        12 none
        13 new c
        14 retry c
        15 none
        16 new d
        17 branch e d
    """,
    # 20: /clear starts another session. 38: --resume-session-at edits the last message.
    "claude-code-3-interactive-rewind-compact": """
        1 none
        2 new a
        3 none
        4 append a
        5 none
        6 append a
        7 none
        8 cut a
        9 none
        10 branch b a
        11 none
        12 new c
        13-16 append c
        17 side s c
        18 compaction d c
        19 none
        20 new e
        21 none
        22 new f
        23 append f
        24 side t f
        25 compaction g f
        26 none
        27 new h
        28 none
        29 append h
        30 none
        31 append h
        32 side u h
        33 compaction i h
        34 append i
        35 none
        36 new j
        37 append j
        38 variant j
        39 none
        40 new k
        41 append j
    """,
    # 7: the killed reply is missing, so that the turn has two user messages.
    "codex-1-tools-and-resume": """
        1 new a
        2-5 append a
        6 new b
        7 variant b
        8 new c
        9-10 retry c
        11 new d
        12-16 retry d
    """,
    "codex-2-compaction": """
        1 new a
        2 side s a
        3 compaction b a
        4 append b
        6 new c
        7 side t c
        9 retry t
    """,
    "codex-3-subagents": """
        1 new a
        2 side s a
        3 append a
        4 side t a
        5 append s
        6 append t
        7 append a
    """,
    "continue-cli": """
        1 new a
        2-4 append a
    """,
    # Tool results are system messages, which are not stored.
    "gptme": """
        1 new a
        2 append a
        3 none
        4 append a
        5 none
        6-9 append a
    """,
    "langchain": """
        1 new a
        2-4 append a
        5 new b
        6-8 append b
        9 new c
        10-12 append c
    """,
    "llm": """
        1 new a
        2 append a
        3 new b
        4-6 append b
    """,
    # 7 and 8 have a previous_response_id, which nothing resolves yet.
    "openai-agents": """
        1 new a
        2-4 append a
        5 variant a
        6 new b
        7 new c
        8 new d
        9 new e
        10-12 append e
        13 variant e
    """,
    "opencode-1-tools-and-continue": """
        1 none
        2 new a
        3-5 append a
        6 none
        7 new b
        8-10 append b
        11 none
        12 new c
        13-15 append c
    """,
    "opencode-2-subagents-compaction": """
        1 none
        2 new a
        3 side s a
        4 side t a
        5 append t
        6 append s
        7 append a
        8 none
        9 new b
        10 side u b
        11 compaction c b
        12 append c
    """,
    "opencode-3-prune-revert-fork-abort": """
        1 new a
        2-5 append a
        6 none
        7 new b
        8-9 append b
        10 branch c b
        11 fork d c
        12 append c
        13 cut c
        14 side s c
        15 compaction e c
    """,
    "qwen-code-1-tools-continue": """
        1 new a
        2-4 append a
        5 side s a
    """,
    # 2: the client does not use the first summary.
    "qwen-code-2-compaction": """
        1 new a
        2 side s a
        3 append a
        4 side t a
        5 compaction b a
        6 side u b
    """,
    "sdk-retries": """
        1 new a
        2-3 retry a
        4 new b
        5-6 retry b
        7 new c
        8-9 retry c
        10 new d
        11-12 retry d
    """,
    # 2: replies are `item_reference` items, which nothing resolves yet.
    "vercel-ai": """
        1 new a
        2 new b
        3-4 append b
        5 new c
        6-8 append c
        9 new d
        10-12 append d
        13 new e
        14-16 append e
    """,
}
EXTRA_WORDS = 2
REQUESTS = 236


def read_plan(name: str) -> list[tuple[RecordedRequest, PlannedReply]]:
    requests = [one for one in restore_summaries(read_recording(name)) if one.body is not None]
    return list(zip(requests, plan_replies(requests), strict=True))


def test_every_request_has_an_expected_result() -> None:
    plans = {path.stem: read_plan(path.stem) for path in FOLDER.glob("*.jsonl")}
    assert {name: [one.seq for one, _ in plan] for name, plan in plans.items()} == {
        name: sorted(ReplayChecker(table).expected) for name, table in EXPECTED.items()
    }
    assert sum(map(len, plans.values())) == REQUESTS


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_recording_is_stored_once(name: str, store: Store, clock: Clock) -> None:
    replay = ClientReplay(store, clock, extra_words=EXTRA_WORDS)
    checker = ReplayChecker(EXPECTED[name])
    for request, reply in read_plan(name):
        checker.check(request.seq, await replay.send(request, reply))
    await replay.check_lists()


@pytest.mark.parametrize("name", [name for name, table in EXPECTED.items() if "cut" in table])
async def test_a_reply_is_cancelled_where_the_client_shows_it(name: str, clock: Clock) -> None:
    replay = ClientReplay(MemoryStore(clock=clock), clock)
    checker = ReplayChecker(EXPECTED[name].replace("cut", "append"))
    for request, reply in read_plan(name):
        checker.check(request.seq, await replay.send(request, reply))


@pytest.mark.parametrize("order", ["one after the other", "at the same time"])
async def test_all_recordings_in_one_store(order: str, store: Store, clock: Clock) -> None:
    replay = ClientReplay(store, clock, extra_words=EXTRA_WORDS)
    checkers = {name: ReplayChecker(table) for name, table in EXPECTED.items()}
    plans = {name: read_plan(name) for name in EXPECTED}
    for name, request, reply in _order(plans, order):
        checkers[name].check(request.seq, await replay.send(request, reply))
    await replay.check_lists()


def _order(
    plans: dict[str, list[tuple[RecordedRequest, PlannedReply]]], order: str
) -> Iterator[tuple[str, RecordedRequest, PlannedReply]]:
    named = [[(name, *step) for step in plan] for name, plan in plans.items()]
    if order == "one after the other":
        for plan in named:
            yield from plan
    else:
        for steps in zip_longest(*named):
            yield from (step for step in steps if step is not None)

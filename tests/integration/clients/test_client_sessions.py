"""Sessions in the formats of real clients: each message is stored once, where it belongs."""

from itertools import zip_longest

import pytest
from tests.client_replay import ClientReplay, ReplayChecker, plan_replies
from tests.client_sessions import SESSIONS

from cllm.core.ports import Clock, Store
from cllm.stores.memory import MemoryStore


@pytest.mark.parametrize("name", SESSIONS)
async def test_a_session_is_stored_once(name: str, store: Store, clock: Clock) -> None:
    session = SESSIONS[name]
    replay = ClientReplay(store, clock, extra_words=2)
    checker = ReplayChecker(session.table)
    assert sorted(checker.expected) == [one.seq for one in session.requests]
    for request, reply in zip(session.requests, plan_replies(session.requests), strict=True):
        checker.check(request.seq, await replay.send(request, reply))
    await replay.check_lists()


@pytest.mark.parametrize("name", ["claude-code", "opencode"])
async def test_a_reply_is_cancelled_where_the_client_shows_it(name: str, clock: Clock) -> None:
    session = SESSIONS[name]
    replay = ClientReplay(MemoryStore(clock=clock), clock)
    checker = ReplayChecker(session.table.replace("cut", "append"))
    for request, reply in zip(session.requests, plan_replies(session.requests), strict=True):
        checker.check(request.seq, await replay.send(request, reply))


async def test_all_sessions_at_the_same_time(store: Store, clock: Clock) -> None:
    replay = ClientReplay(store, clock, extra_words=2)
    checkers = {name: ReplayChecker(session.table) for name, session in SESSIONS.items()}
    plans = [
        [(name, *step) for step in zip(one.requests, plan_replies(one.requests), strict=True)]
        for name, one in SESSIONS.items()
    ]
    for steps in zip_longest(*plans):
        for name, request, reply in filter(None, steps):
            checkers[name].check(request.seq, await replay.send(request, reply))
    await replay.check_lists()

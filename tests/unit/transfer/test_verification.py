from pathlib import Path
from typing import Any

import msgspec
import pytest

from cllm.app import now
from cllm.core.conversation import StandingSummary, StoredConversation, Turn, WindowRecord
from cllm.core.message import Message, plain_message
from cllm.core.ports.snapshot import MessageRow, TurnRow
from cllm.stores.json.store import JsonFileStore
from cllm.stores.views import build_summary
from cllm.transfer.verification import StoreCheck, find_problems, find_row_problems
from cllm.wire.path_digest import digest_path

pytestmark = pytest.mark.asyncio
replace = msgspec.structs.replace
MOMENT = now()
TURN = Turn(
    id="t1",
    place="t1",
    state="complete",
    messages=(plain_message("user", "Hello"), plain_message("assistant", "Hi")),
    started_at=MOMENT,
    ended_at=MOMENT,
)
CATS = StoredConversation(id="cats", created_at=MOMENT, updated_at=MOMENT, turns=(TURN,))
BROKEN = Message(role="user", raw=b"{")
SPACED = Message(role="user", raw=b'{"role": "user", "content": [{"type": "text", "text": "a"}]}')
SPACED_SYSTEM = Message(role="system", raw=b'{"role": "system",  "content": "Be brief."}')
WINDOW = WindowRecord(
    first_sequence=1, sent_messages=1, parameters=msgspec.Raw(b'{"user":"ann","tools":[{"a":1}]}')
)
EARLIER = MOMENT.replace(year=2020)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"system": SPACED_SYSTEM, "turns": (replace(TURN, messages=(SPACED,)),)}, None),
        ({"variants": (replace(TURN, id="t2", messages=(SPACED,)),)}, None),
        ({"turns": (replace(TURN, window=WINDOW),)}, None),
        ({"pins": (3,)}, "a pin refers to a message that does not exist"),
        ({"summary": StandingSummary(text="x", through=3, tokens=1)}, "its summary ends after"),
        ({"variants": (TURN,)}, "two turns have the same ID"),
        ({"turns": (TURN, replace(TURN, id="t2"))}, "are in the same slot"),
        ({"turns": (replace(TURN, ended_at=EARLIER),)}, "turn t1 ends before it starts"),
        ({"turns": (replace(TURN, messages=()),)}, "is complete and has no messages"),
        ({"turns": (replace(TURN, messages=(BROKEN,)),)}, "a copy of it cannot be read"),
    ],
)
async def test_a_problem_has_a_reason(changes: dict[str, Any], problem: str | None) -> None:
    conversation = replace(CATS, **changes)
    found = "; ".join(find_problems(conversation, build_summary(conversation)))
    assert problem in found if problem else found == ""


async def test_a_wrong_count_is_a_problem() -> None:
    summary = replace(build_summary(CATS), message_count=5)
    assert list(find_problems(CATS, summary)) == ["it has 2 messages instead of 5"]


async def test_a_store_is_checked(tmp_path: Path) -> None:
    store = JsonFileStore(tmp_path, clock=now)
    await store.add(CATS)
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    check = StoreCheck(store)
    await check.run()
    assert (check.count, check.messages) == (2, 2)
    (problem,) = check.problems
    assert "bad.json" in problem


async def test_a_symbolic_link_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "gone.json").symlink_to("nowhere")
    check = StoreCheck(JsonFileStore(tmp_path, clock=now))
    await check.run()
    assert check.count == 2
    assert [problem.partition(":")[0] for problem in check.problems] == ["gone", "loop"]
    assert all("symbolic link" in problem for problem in check.problems)


ROW = TurnRow(
    id="t1",
    number=1,
    position=1,
    first_sequence=1,
    messages=tuple(
        MessageRow(ordinal=ordinal, digest=digest)
        for ordinal, digest in enumerate(digest_path(TURN.messages))
    ),
)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"first_sequence": 2}, "turn t1 starts at message 2 instead of 1"),
        ({"position": None}, "turn t1 has a message number and is not on the default path"),
        ({"messages": ROW.messages[1:]}, "the message numbers of turn t1 have a gap"),
        ({"messages": (ROW.messages[0],) * 2}, "the message numbers of turn t1 have a gap"),
        (
            {"messages": (ROW.messages[0], MessageRow(ordinal=1, digest=None))},
            "the path digest of message 2 of turn t1 differs",
        ),
    ],
)
async def test_rows_have_the_numbers_and_digests_of_the_messages(
    changes: dict[str, Any], problem: str | None
) -> None:
    found = "; ".join(find_row_problems(CATS, [replace(ROW, **changes)]))
    assert problem in found if problem else found == ""

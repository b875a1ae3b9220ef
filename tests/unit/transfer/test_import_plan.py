from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.conversation import StoredConversation
from cllm.core.errors import UsageError
from cllm.core.message import plain_message
from cllm.transfer import import_plan
from cllm.transfer.import_plan import plan_import
from cllm.transfer.message_tree import ImportedConversation, ImportedNode
from cllm.transfer.writer import count_own_messages

pytestmark = pytest.mark.asyncio
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def user(key: str, parent: str | None = None) -> ImportedNode:
    return ImportedNode(id=key, parent=parent, messages=(plain_message("user", key),))


def reply(key: str, parent: str | None, *, thinking: str = "") -> ImportedNode:
    messages = () if thinking else (plain_message("assistant", key),)
    return ImportedNode(id=key, parent=parent, messages=messages, thinking=thinking)


async def plan(
    *nodes: ImportedNode, stored: list[StoredConversation] | None = None, current: str | None = None
) -> list[StoredConversation]:
    by_id = {one.id: one for one in stored or []}

    async def find(key: str) -> StoredConversation | None:
        return by_id.get(key)

    imported = ImportedConversation(source="test", id="x", nodes=nodes, current=current)
    return await plan_import(imported, find, now=NOW)


def paths(planned: list[StoredConversation]) -> list[list[str]]:
    return [[m.text for turn in one.turns for m in turn.messages] for one in planned]


async def test_a_later_reply_with_a_continuation_is_a_branch() -> None:
    nodes = (user("a"), reply("b", "a"), user("c", "b"), reply("b2", "a"), user("d", "b2"))
    main, branch = await plan(*nodes, current="c")
    assert paths([main, branch]) == [["a", "b", "c"], ["a", "b2", "d"]]
    assert main.variants == branch.variants == ()
    assert branch.parent is not None
    assert (branch.parent.conversation, branch.parent.sequence) == (main.id, 1)
    assert branch.title == "Branch of 'a'"
    assert main.turns[0].id != branch.turns[0].id


async def test_a_branch_of_a_branch_names_its_parent() -> None:
    nodes = (
        user("a"), reply("b", "a"), user("c", "b"),
        user("d", "b"), reply("e", "d"), user("f", "e"), user("g", "e"),
    )  # fmt: skip
    main, first, second = await plan(*nodes, current="c")
    assert paths([first, second]) == [["a", "b", "d", "e", "g"], ["a", "b", "d", "e", "f"]]
    assert second.parent is not None
    assert (second.parent.conversation, second.parent.sequence) == (first.id, 4)
    assert first.family == second.family == main.id
    assert main.turns[0].id == first.turns[0].id


async def test_reasoning_becomes_part_of_the_next_reply() -> None:
    nodes = (user("a"), reply("t", "a", thinking="Hm."), reply("b", "t"), user("c", "b"))
    ended = reply("u", "c", thinking="So.")
    (main,) = await plan(*nodes, ended)
    messages = [message.json() for turn in main.turns for message in turn.messages]
    assert [one.get("reasoning_content") for one in messages] == [None, "Hm.", None, "So."]


async def test_another_first_question_is_a_branch_without_shared_messages() -> None:
    main, branch = await plan(user("a"), reply("b", "a"), user("c"), reply("d", "c"), current="b")
    assert branch.parent is not None
    assert branch.parent.sequence == 0
    assert paths([main, branch]) == [["a", "b"], ["c", "d"]]


async def test_a_message_that_two_variants_share_is_counted_once() -> None:
    nodes = (user("a"), reply("b", "a"), reply("c", "a"), reply("d", "c"), reply("e", "c"))
    (main,) = await plan(*nodes, current="b")
    assert len(main.variants) == 2
    assert count_own_messages(main) == len(nodes)


async def test_a_tree_without_messages_is_nothing() -> None:
    assert await plan(ImportedNode(id="a")) == []


async def test_a_stored_conversation_stays_on_its_path() -> None:
    nodes = (user("a"), reply("b", "a"), user("c", "b"), reply("d", "c"))
    stored = await plan(*nodes)
    grown = (*nodes, user("e", "d"), user("c2", "b"), reply("d2", "c2"), reply("d3", "c"))
    main, *branches = await plan(*grown, stored=stored, current="d2")
    assert paths([main]) == [["a", "b", "c", "d", "e"]]
    assert sorted(paths(branches)) == [["a", "b", "c", "d3"], ["a", "b", "c2", "d2"]]
    assert main.variants == ()
    again = await plan(*grown, stored=[main, *branches], current="d2")
    assert again == [main, *branches]


@pytest.mark.parametrize(("limit", "value"), [("MAX_BRANCHES", 2), ("MAX_COPIED_BYTES", 200)])
async def test_the_branches_of_a_conversation_have_limits(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    nodes = [user("a"), reply("b", "a"), *(user(f"c{number}", "b") for number in range(4))]
    assert len(await plan(*nodes)) == 4
    monkeypatch.setattr(import_plan, limit, value)
    with pytest.raises(UsageError, match=str(value)):
        await plan(*nodes)


async def test_a_deep_tree_with_many_replies_is_planned_in_one_pass() -> None:
    nodes = [user("0")]
    for number in range(2, 6000, 2):
        nodes.append(reply(f"{number - 1}", f"{number - 2}"))
        nodes.append(reply(f"{number - 1}-other", f"{number - 2}"))
        nodes.append(user(f"{number}", f"{number - 1}"))
    (main,) = await plan(*nodes, current=nodes[-1].id)
    assert (len(main.turns), len(main.variants)) == (3000, 2999)


@st.composite
def trees(draw: st.DrawFn) -> list[ImportedNode]:
    count = draw(st.integers(1, 12))
    nodes: list[ImportedNode] = []
    for number in range(count):
        parent = draw(st.none() | st.integers(0, count).map(str))
        at = NOW + timedelta(seconds=draw(st.integers(0, 5)))
        role = draw(st.sampled_from(["user", "assistant", None]))
        messages = () if role is None else (plain_message(role, str(number)),)  # type: ignore[arg-type]
        nodes.append(ImportedNode(id=str(number), parent=parent, messages=messages, at=at))
    return nodes


@given(nodes=trees(), current=st.none() | st.integers(0, 12).map(str))
async def test_every_message_of_a_tree_is_in_a_conversation_once(
    nodes: list[ImportedNode], current: str | None
) -> None:
    planned = await plan(*nodes, current=current)
    contents = {message.text for node in nodes for message in node.messages}
    turns = [turn for one in planned for turn in one.turns + one.variants]
    assert {message.text for turn in turns for message in turn.messages} == contents
    assert sum(map(count_own_messages, planned)) == len(contents)
    for one in planned:
        ids = [turn.id for turn in one.turns + one.variants]
        assert len(ids) == len(set(ids))
        assert {turn.place for turn in one.variants} <= {turn.place for turn in one.turns}
    assert await plan(*nodes, stored=planned, current=current) == planned

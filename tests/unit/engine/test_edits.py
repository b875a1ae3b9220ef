"""Changes of a stored conversation: undo, branch, pins, edits."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from cllm.core.conversation import LOCAL_OWNER
from cllm.core.errors import ConversationBusyError, SequenceNotFoundError, UsageError
from cllm.core.message import Image, Message, Text, plain_message
from cllm.core.ports import NewConversation, TurnStart
from cllm.engine.edits import (
    branch_conversation,
    change_pins,
    check_editable,
    delete_last_turn,
    edit_message,
    find_last_turn,
    load_last_turn,
)
from cllm.history.system_prompt import GivenPrompt
from cllm.stores.memory import MemoryStore
from cllm.wire.openai.parts import encode_parts

THEN = datetime(2026, 1, 1, tzinfo=UTC)
BRANCH = NewConversation(id="branch")
CALL = Message(
    role="assistant",
    raw=b'{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function",'
    b'"function":{"name":"f","arguments":"{}"}}]}',
)
RESULT = Message(role="tool", raw=b'{"role":"tool","tool_call_id":"a","content":"42"}')


def user(text: str) -> Message:
    return plain_message("user", text)


def reply(text: str) -> Message:
    return plain_message("assistant", text)


async def open_store(*turns: tuple[Message, ...], failed: frozenset[int] = frozenset()):
    store = MemoryStore(clock=lambda: THEN)
    await store.create(NewConversation(id="cats"))
    for number, messages in enumerate(turns):
        start = TurnStart(id=f"t{number}", messages=messages[:1])
        lease = await store.begin_turn("cats", start)
        state = "failed" if number in failed else "complete"
        ended = replace(lease.turn, messages=messages, state=state, ended_at=THEN)
        await store.finish_turn(lease, ended)
    return store


async def texts(store, ref: str = "cats") -> list[str]:
    return [message.text for message in (await store.load(ref)).messages]


async def edit(store, number: int, text: str):
    return await edit_message(store, "cats", number, text, branch=BRANCH, turn_id="edit")


TWO_TURNS = ((user("one"), reply("two")), (user("three"), reply("four")))


async def test_undo_deletes_the_last_turn_and_returns_its_messages():
    store = await open_store(*TWO_TURNS)

    deleted = await delete_last_turn(store, await store.load("cats"))

    assert [message.text for message in deleted] == ["three", "four"]
    assert await texts(store) == ["one", "two"]


async def test_undo_does_not_delete_a_turn_that_was_added_meanwhile():
    store = await open_store((user("one"), reply("two")))
    loaded = await store.load("cats")
    lease = await store.begin_turn("cats", TurnStart(id="new", messages=(user("three"),)))
    messages = (*lease.turn.messages, reply("four"))
    await store.finish_turn(lease, replace(lease.turn, state="complete", messages=messages))

    with pytest.raises(ConversationBusyError):
        await delete_last_turn(store, loaded)

    assert await texts(store) == ["one", "two", "three", "four"]


async def test_tool_results_belong_to_the_turn_before_them():
    store = await open_store((user("one"), reply("two")), (user("3"), CALL), (RESULT, reply("4")))

    last = find_last_turn(await store.load("cats"))

    assert last is not None
    assert (last.first, last.turn.id, [one.text for one in last.input]) == (3, "t1", ["3"])


@pytest.mark.parametrize("rounds", [0, 1, 30])
async def test_the_last_turn_is_loaded_however_many_tool_results_follow_it(rounds):
    store = await open_store(
        (user("one"), reply("two")), (user("3"), CALL), *[(RESULT, CALL)] * rounds
    )

    last = await load_last_turn(store, "cats", owner=LOCAL_OWNER)

    assert last is not None
    assert (last.turn.id, [one.text for one in last.input]) == ("t1", ["3"])


async def test_a_conversation_without_messages_has_no_last_turn():
    assert await load_last_turn(await open_store(), "cats", owner=LOCAL_OWNER) is None


async def test_a_failed_question_before_the_last_turn_is_not_undone():
    store = await open_store((user("one"),), (user("two"), reply("three")), failed=frozenset({0}))

    await delete_last_turn(store, await store.load("cats"))

    assert await texts(store) == ["one"]


async def test_undo_without_messages_is_an_error():
    store = await open_store()

    with pytest.raises(UsageError, match="'cats' has no messages yet"):
        await delete_last_turn(store, await store.load("cats"))


async def test_a_branch_has_the_messages_and_another_prompt():
    store = await open_store(*TWO_TURNS)
    prompt = GivenPrompt(text="Be brief.", source="--system", explicit=True)

    branch = await branch_conversation(store, "cats", BRANCH, at=2, prompt=prompt, now=THEN)

    assert [message.text for message in branch.messages] == ["Be brief.", "one", "two"]


async def test_pins_are_added_and_removed():
    store = await open_store(*TWO_TURNS)

    assert await change_pins(store, "cats", add=(3, 1)) == (1, 3)
    assert await change_pins(store, "cats", add=(2,), remove=(1, 4)) == (2, 3)
    with pytest.raises(SequenceNotFoundError):
        await change_pins(store, "cats", add=(5,))


async def test_an_edited_question_of_the_last_turn_is_a_variant_to_send():
    store = await open_store(*TWO_TURNS)

    edited = await edit(store, 3, "new")

    assert (edited.conversation, edited.is_branch, edited.place) == ("cats", False, "t1")
    assert [message.text for message in edited.input] == ["new"]


@pytest.mark.parametrize(("turns", "number", "before"), [(2, 1, []), (3, 3, ["one", "two"])])
async def test_an_edited_question_before_the_last_turn_is_sent_in_a_branch(turns, number, before):
    store = await open_store(*TWO_TURNS, *([(user("five"), reply("six"))] * (turns - 2)))

    edited = await edit(store, number, "new")

    assert (edited.conversation, edited.is_branch, edited.place) == ("branch", True, None)
    assert [message.text for message in edited.input] == ["new"]
    assert await texts(store, "branch") == before
    assert len(await texts(store)) == 2 * turns


async def test_an_edited_reply_of_the_last_turn_is_saved_as_a_variant():
    store = await open_store(*TWO_TURNS)

    edited = await edit(store, 4, "new")

    assert (edited.conversation, edited.is_branch, edited.input) == ("cats", False, ())
    assert await texts(store) == ["one", "two", "three", "new"]
    (variant,) = (await store.load("cats")).variants
    assert variant.messages[-1].text == "four"


async def test_an_edited_reply_before_the_last_turn_is_saved_in_a_branch():
    store = await open_store(*TWO_TURNS)

    edited = await edit(store, 2, "new")

    assert (edited.conversation, edited.is_branch) == ("branch", True)
    assert await texts(store, "branch") == ["one", "new"]
    assert await texts(store) == ["one", "two", "three", "four"]


async def test_images_stay_in_an_edited_message():
    image = Image(media_type="image/png", data="QUJD")
    message = encode_parts("user", (Text(text="old"), image))
    store = await open_store((message, reply("A cat.")))

    edited = await edit(store, 1, "new")

    assert edited.input == (encode_parts("user", (Text(text="new"), image)),)


@pytest.mark.parametrize("number", [2, 3])
async def test_messages_of_a_tool_call_cannot_be_edited(number):
    store = await open_store((user("one"), CALL, RESULT, reply("four")))

    with pytest.raises(UsageError, match=f"Message {number} .* tool call"):
        await edit(store, number, "new")
    with pytest.raises(UsageError):
        check_editable(await store.load("cats"), number)


async def test_a_number_without_a_message_is_an_error():
    store = await open_store(*TWO_TURNS)

    with pytest.raises(SequenceNotFoundError):
        await edit(store, 5, "new")

"""Where the turn of a client that sends its whole history is saved."""

import asyncio
from contextlib import aclosing
from itertools import count

import pytest
from tests.history_client import HistoryClient, make_engine, message, reply, user
from tests.scripted_provider import ScriptedProvider, ScriptEntry
from tests.unit.engine.conftest import Clock, PausingProvider

from cllm.core.conversation import ITEMS_SOURCE, Branch, SystemRecord
from cllm.core.errors import (
    AuthenticationError,
    ConversationBusyError,
    ConversationNotFoundError,
    HistoryDivergedError,
    StoreUnavailableError,
)
from cllm.core.message import Message, plain_message
from cllm.core.ports import Changes, NewConversation, Opening
from cllm.core.reply import ReplyEvent, ReplyFinished, TextDelta
from cllm.engine.request import ClientHistory, TurnEnded
from cllm.stores.memory import MemoryStore

AUTO = ClientHistory(client="test")


def session(
    name: str, *, side: str | None = None, parent_family: str | None = None
) -> ClientHistory:
    return ClientHistory(
        client="test", family=f"test:{name}", side=side, parent_family=parent_family
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    return MemoryStore(clock=clock)


def make_client(
    store: MemoryStore,
    history: ClientHistory = AUTO,
    provider: ScriptedProvider | None = None,
    clock: Clock | None = None,
) -> HistoryClient:
    provider = ScriptedProvider(f"answer {n}" for n in count(1)) if provider is None else provider
    ids = (f"id-{n}" for n in count(1))
    engine = make_engine(store, provider, clock=clock or Clock(), new_id=lambda: next(ids))
    return HistoryClient(store, engine, provider, history)


async def test_each_message_is_stored_once(store: MemoryStore) -> None:
    client = make_client(store)
    for text in ("one", "two", "three"):
        await client.ask(text)
    expected = ["one", "answer 1", "two", "answer 2", "three", "answer 3"]
    assert await client.stored_texts() == expected
    assert len(await client.conversations()) == 1
    assert [one.code for one in client.notices] == ["history_recognised"]


async def test_the_provider_gets_the_messages_of_the_client(store: MemoryStore) -> None:
    client = make_client(store)
    client.messages = [message("system", "Be brief."), user("one")]
    client.messages.append(reply(await client.request()))
    client.messages.append(user("two"))
    await client.request()
    assert client.provider.prompts[-1].messages == tuple(client.messages)
    assert "Be brief." not in await client.stored_texts()


async def test_another_format_of_the_same_history_is_recognised(store: MemoryStore) -> None:
    client = make_client(store)
    await client.ask("one")
    client.messages = [
        Message(
            role="user",
            dialect="anthropic",
            raw=b'{"role":"user","content":[{"type":"text","text":"one\\n",'
            b'"cache_control":{"type":"ephemeral"}}]}',
        ),
        Message(
            role="assistant",
            dialect="anthropic",
            raw=b'{"role":"assistant","content":[{"type":"thinking","thinking":"x",'
            b'"signature":"y"},{"type":"text","text":"answer 1"}]}',
        ),
    ]
    await client.ask("two")
    assert await client.stored_texts() == ["one", "answer 1", "two", "answer 2"]


async def test_the_same_history_again_is_a_variant(store: MemoryStore) -> None:
    client = make_client(store)
    await client.ask("one")
    await client.ask("two")
    client.messages.pop()
    client.messages.append(reply(await client.request()))
    stored = await client.stored()
    assert await client.stored_texts() == ["one", "answer 1", "two", "answer 3"]
    assert [turn.messages[-1].text for turn in stored.variants] == ["answer 2"]
    assert len(await client.conversations()) == 1


async def test_a_retry_after_a_failure_adds_no_message(store: MemoryStore) -> None:
    error = AuthenticationError("The key is not valid.", provider="scripted")
    client = make_client(store, provider=ScriptedProvider(["answer 1", error, "answer 2"]))
    await client.ask("one")
    client.messages.append(user("two"))
    with pytest.raises(AuthenticationError):
        await client.request()
    await client.request()
    assert await client.stored_texts() == ["one", "answer 1", "two", "answer 2"]


async def test_an_edit_of_the_last_message_is_a_variant(store: MemoryStore) -> None:
    client = make_client(store)
    await client.ask("one")
    await client.ask("two")
    del client.messages[2:]
    await client.ask("other")
    assert await client.stored_texts() == ["one", "answer 1", "other", "answer 3"]
    assert len(await client.conversations()) == 1
    assert len((await client.stored()).variants) == 1


async def test_an_edit_of_an_earlier_message_is_a_branch(store: MemoryStore) -> None:
    client = make_client(store)
    for text in ("one", "two", "three"):
        await client.ask(text)
    first = client.conversation
    del client.messages[2:]
    await client.ask("other")
    assert client.conversation != first
    stored = await client.stored()
    assert await client.stored_texts() == ["one", "answer 1", "other", "answer 4"]
    assert stored.parent == Branch(conversation=first or "", sequence=2)
    assert [one.code for one in client.notices] == ["history_recognised", "history_diverged"]
    await client.ask("more")
    assert (await client.stored_texts())[-2:] == ["more", "answer 5"]
    assert len(await client.conversations()) == 2


async def test_a_return_to_an_earlier_variant_continues_it(store: MemoryStore) -> None:
    client = make_client(store)
    await client.ask("one")
    client.messages.pop()
    await client.request()
    client.messages.append(reply("answer 1"))
    await client.ask("two")
    assert await client.stored_texts() == ["one", "answer 1", "two", "answer 3"]
    assert len(await client.conversations()) == 1


async def test_a_reply_that_is_cut_short_is_a_variant_of_that_turn(store: MemoryStore) -> None:
    client = make_client(store, session("a"), ScriptedProvider(["a long answer", "next"]))
    await client.ask("one")
    client.messages[-1] = reply("a long")
    await client.ask("two")
    stored = await client.stored()
    assert await client.stored_texts() == ["one", "a long", "two", "next"]
    assert len(stored.turns) == 2
    assert [turn.messages[-1].text for turn in stored.variants] == ["a long answer"]


async def test_a_message_after_a_cancelled_reply_is_a_variant(store: MemoryStore) -> None:
    client = make_client(store, session("a"))
    await client.ask("one")
    client.messages.pop()
    await client.ask("two")
    assert await client.stored_texts() == ["one", "two", "answer 2"]
    assert len(await client.conversations()) == 1


async def test_messages_that_a_client_joins_after_a_cancelled_reply_are_a_variant(
    store: MemoryStore,
) -> None:
    client = make_client(store, session("a"))
    await client.ask("zero")
    await client.ask("one")
    blocks = [{"type": "text", "text": text} for text in ("one", "two")]
    client.messages[2:] = [message("user", blocks)]
    await client.send()
    assert await client.stored_texts() == ["zero", "answer 1", "one\ntwo", "answer 3"]
    assert len(await client.conversations()) == 1


async def test_a_client_that_closes_its_stream_keeps_the_partial_reply(
    store: MemoryStore, clock: Clock
) -> None:
    provider = PausingProvider([TextDelta(text="par"), TextDelta(text="tial")])
    client = make_client(store, session("a"), provider, clock)
    client.messages.append(user("one"))
    stream = client.stream()
    async for event in stream:
        if isinstance(event, TextDelta) and event.text == "tial":
            break
    await stream.aclose()
    stored = await client.stored()
    assert [(turn.state, turn.messages[-1].text) for turn in stored.turns] == [
        ("incomplete", "partial")
    ]


async def test_the_same_first_message_in_two_sessions_stays_apart(store: MemoryStore) -> None:
    first = make_client(store, session("a"))
    second = first.fork(session("b"))
    await first.ask("one")
    await second.ask("one")
    await first.ask("two")
    await second.ask("two")
    assert first.conversation != second.conversation
    assert await first.stored_texts() == ["one", "answer 1", "two", "answer 3"]
    assert await second.stored_texts() == ["one", "answer 2", "two", "answer 4"]


async def test_the_same_history_in_another_session_is_a_fork(store: MemoryStore) -> None:
    first = make_client(store, session("a"))
    await first.ask("one")
    second = first.fork(session("b"))
    await second.ask("two")
    stored = await second.stored()
    assert stored.parent == Branch(conversation=first.conversation or "", sequence=2)
    assert await second.stored_texts() == ["one", "answer 1", "two", "answer 2"]
    await first.ask("three")
    assert await first.stored_texts() == ["one", "answer 1", "three", "answer 3"]


async def test_several_equal_candidates_without_a_session_start_a_conversation(
    store: MemoryStore,
) -> None:
    client = make_client(store, provider=ScriptedProvider(["same", "two", "same", "three"]))
    await client.ask("one")
    await client.ask("moves on")
    client.messages = []
    await client.ask("one")
    assert len(await client.conversations()) == 2
    await client.ask("which")
    assert len(await client.conversations()) == 3


async def test_tool_call_ids_separate_conversations_without_a_session(store: MemoryStore) -> None:
    def tool_reply(call: str) -> list[Message]:
        function = {"name": "read", "arguments": "{}"}
        calls = [{"id": call, "type": "function", "function": function}]
        return [
            message("assistant", None, tool_calls=calls),
            message("tool", "content", tool_call_id=call),
        ]

    client = make_client(store)
    client.messages = [user("one"), *tool_reply("call-1")]
    await client.send()
    first = client.conversation
    client.messages = [user("one"), *tool_reply("call-2")]
    await client.send()
    assert client.conversation != first


async def test_a_repeated_tool_loop_continues_the_attempt_with_its_ids(store: MemoryStore) -> None:
    def call(call_id: str) -> Message:
        function = {"name": "read", "arguments": "{}"}
        calls = [{"id": call_id, "type": "function", "function": function}]
        return message("assistant", None, tool_calls=calls)

    def events(call_id: str) -> list[ReplyEvent]:
        return [ReplyFinished(message=call(call_id), stop_reason="tool_calls")]

    script: list[ScriptEntry] = [events("call-1"), "first", events("call-2"), "second"]
    client = make_client(store, session("a"), ScriptedProvider(script))
    for call_id, content in (("call-1", "AAA"), ("call-2", "BBB")):
        client.messages = [user("read it")]
        await client.request()
        client.messages += [call(call_id), message("tool", content, tool_call_id=call_id)]
        await client.request()
        stored = await client.stored()
        assert [one.json() for one in stored.messages[1:3]] == [
            one.json() for one in client.messages[1:]
        ]


async def test_an_empty_message_is_stored(store: MemoryStore) -> None:
    client = make_client(store)
    await client.ask("one")
    await client.ask(" ")
    assert await client.stored_texts() == ["one", "answer 1", " ", "answer 2"]


async def test_a_request_that_is_repeated_often_starts_conversations(store: MemoryStore) -> None:
    client = make_client(store)
    for _ in range(15):
        client.messages = []
        await client.ask("ping")
    assert len(await client.conversations()) > 1
    stored = await store.load((await client.conversations())[0])
    assert len(stored.variants) <= 11


async def test_a_recorded_client_keeps_its_own_system_prompt(store: MemoryStore) -> None:
    captured = Opening(
        system=plain_message("system", "Stored."),
        system_record=SystemRecord(policy="captured", source="settings"),
    )
    client = make_client(store)
    await client.ask("one")
    await store.create(NewConversation(id="shell"), opening=captured)
    shell = client.fork(ClientHistory(conversation="shell"))
    shell.messages = []
    await shell.ask("two")
    client.messages = list(shell.messages)
    await client.ask("three")
    assert client.conversation == "shell"
    assert client.provider.prompts[-1].system is None
    assert client.provider.prompts[-2].system is not None


@pytest.mark.parametrize("is_failed", [True, False])
async def test_the_first_request_is_repeated_after_a_failed_turn(
    store: MemoryStore, is_failed: bool
) -> None:
    """If the second turn has a reply, it starts another conversation."""
    failure = AuthenticationError("No.", provider="scripted")
    provider = ScriptedProvider(["answer 1", failure if is_failed else "answer 2", "answer 3"])
    client = make_client(store, provider=provider)
    await client.ask("one")
    first, client.messages = client.conversation, [*client.messages, user("two")]
    if is_failed:
        with pytest.raises(AuthenticationError):
            await client.request()
    else:
        await client.request()

    client.messages = client.messages[:1]
    await client.request()

    assert (client.conversation == first) is is_failed
    assert (await client.stored_texts())[:2] == ["one", "answer 3"]


class TestItemIds:
    """The request has the ID of an item of one of two conversations with the same messages."""

    async def start_twice(self, store: MemoryStore) -> tuple[HistoryClient, str, str]:
        """The first conversation has a second turn, the other one has not."""
        client = make_client(store, provider=ScriptedProvider("same" for _ in range(9)))
        await client.ask("one")
        await client.ask("two")
        first, messages = client.conversation, client.messages[:2]
        client.messages = []
        await client.ask("one")
        assert client.conversation not in (None, first)
        assert client.messages == messages
        return client, str(first), str(client.conversation)

    async def test_it_selects_the_conversation(self, store: MemoryStore) -> None:
        client, _, second = await self.start_twice(store)
        client.history = ClientHistory(client="test", item_conversation=second)

        await client.ask("two")

        assert client.conversation == second
        assert await client.stored_texts() == ["one", "same", "two", "same"]

    async def test_a_branch_of_the_conversation_is_found(self, store: MemoryStore) -> None:
        client, _, second = await self.start_twice(store)
        await store.branch(second, NewConversation(id="branch"))
        branched = client.fork(ClientHistory(conversation="branch"))
        await branched.ask("two")
        client.messages = list(branched.messages)
        client.history = ClientHistory(client="test", item_conversation=second)

        await client.ask("three")

        assert client.conversation == "branch"

    async def test_a_conversation_whose_client_adds_the_messages_is_not_continued(
        self, store: MemoryStore
    ) -> None:
        client = make_client(store)
        client.history = ClientHistory(client=ITEMS_SOURCE)
        await client.ask("one")
        session = client.conversation
        client.history = ClientHistory(client="test", item_conversation=session)

        await client.ask("two")

        assert client.conversation != session
        assert await client.stored_texts() == ["one", "answer 1", "two", "answer 2"]

    @pytest.mark.parametrize("ref", ["unknown", "archived", "other"])
    async def test_without_a_match_the_messages_decide(self, store: MemoryStore, ref: str) -> None:
        client, first, _ = await self.start_twice(store)
        for name in ("archived", "other"):
            await store.create(NewConversation(id=name))
        await store.update("archived", Changes(archived=True))
        client.history = ClientHistory(client="test", item_conversation=ref)

        await client.ask("two")

        assert client.conversation == first
        assert (await client.stored()).variants


async def test_an_owner_does_not_join_a_conversation_of_another(store: MemoryStore) -> None:
    client = make_client(store)
    await client.ask("one")
    other = await store.find_paths([b"x" * 25], owner="other")
    assert other == ()


async def test_a_compaction_continues_over_its_summary(store: MemoryStore) -> None:
    summary = "The user asked for a parser; it is written."
    script = ["answer 1", "answer 2", f"<analysis>x</analysis><summary>{summary}</summary>", "go"]
    client = make_client(store, session("a"), ScriptedProvider(script))
    await client.ask("one")
    await client.ask("two")
    main = client.conversation
    compaction = client.fork(session("a", side="compaction"))
    compaction.messages[-1:] = [user("CRITICAL: summarise")]
    await compaction.request()
    side = await compaction.stored()
    assert (side.is_side, side.source) == (True, "test:compaction")
    assert side.parent == Branch(conversation=main or "", sequence=3, kind="side")
    assert [one.text for one in side.messages][:1] == ["CRITICAL: summarise"]
    client.messages = [user(f"This session is being continued. Summary: {summary} Go on.")]
    await client.ask("three")
    stored = await client.stored()
    assert stored.parent == Branch(conversation=main or "", sequence=3, kind="compaction")
    assert len(stored.messages) == 3
    assert main in await client.conversations()
    assert compaction.conversation not in await client.conversations()


async def test_a_sub_agent_is_a_side_conversation_of_its_session(store: MemoryStore) -> None:
    client = make_client(store, session("a"))
    await client.ask("one")
    agent = client.fork(session("a:agent", side="subagent", parent_family="test:a"))
    agent.messages = []
    await agent.ask("search")
    await agent.ask("more")
    stored = await agent.stored()
    assert stored.is_side
    assert stored.parent == Branch(conversation=client.conversation or "", sequence=2, kind="side")
    assert await agent.stored_texts() == ["search", "answer 2", "more", "answer 3"]


async def test_parallel_requests_with_the_same_history_both_run(
    store: MemoryStore, clock: Clock
) -> None:
    provider = PausingProvider([TextDelta(text="a")])
    client = make_client(store, session("a"), provider, clock)
    client.messages.append(user("one"))
    task = asyncio.create_task(client.request())
    await provider.reached.wait()
    provider.reached.clear()
    other = client.fork(session("a"))
    second = asyncio.create_task(other.request())
    await provider.reached.wait()
    assert other.conversation != client.conversation
    for each in (task, second):
        each.cancel()
    await asyncio.gather(task, second, return_exceptions=True)


async def test_a_store_that_fails_does_not_change_the_reply(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StoreUnavailableError("The disk is full.")

    client = make_client(store)
    for method in ("find_paths", "begin_turn", "finish_turn"):
        with monkeypatch.context() as patch:
            patch.setattr(store, method, fail)
            client.messages.append(user(method))
            events = [event async for event in client.stream()]
            assert isinstance(events[-1], TurnEnded)
            assert events[-1].turn is None


class TestExplicitConversation:
    async def client(self, store: MemoryStore, *, strict: bool = False) -> HistoryClient:
        await store.create(NewConversation(id="chat"))
        return make_client(store, ClientHistory(conversation="chat", strict=strict))

    async def test_a_fixed_id_continues_its_longest_branch(self, store: MemoryStore) -> None:
        client = await self.client(store)
        for text in ("one", "two", "three"):
            await client.ask(text)
        del client.messages[2:]
        await client.ask("other")
        branch = client.conversation
        await client.ask("more")
        assert client.conversation == branch
        assert len(await client.conversations()) == 2

    async def test_an_unrelated_history_is_a_branch_from_the_root(self, store: MemoryStore) -> None:
        client = await self.client(store)
        await client.ask("one")
        client.messages = [user("something"), reply("else")]
        await client.ask("two")
        stored = await client.stored()
        assert stored.parent == Branch(conversation="chat", sequence=0)
        assert await client.stored_texts() == ["something", "else", "two", "answer 2"]

    async def test_other_ids_of_tool_calls_are_recognised(self, store: MemoryStore) -> None:
        client = await self.client(store)
        function = {"name": "read", "arguments": "{}"}
        calls = [{"id": "call-1", "type": "function", "function": function}]
        call = message("assistant", None, tool_calls=calls)
        client.messages = [user("one"), call]
        await client.send(message("tool", "content", tool_call_id="call-1"))
        calls[0]["id"] = "call-2"
        client.messages[1] = message("assistant", None, tool_calls=calls)
        client.messages[2] = message("tool", "content", tool_call_id="call-2")
        await client.ask("two")
        assert client.conversation == "chat"
        assert len((await client.stored()).messages) == 6

    async def test_strict_refuses_a_divergence(self, store: MemoryStore) -> None:
        client = await self.client(store, strict=True)
        await client.ask("one")
        await client.ask("two")
        client.messages[0] = user("changed")
        client.messages.append(user("three"))
        with pytest.raises(HistoryDivergedError):
            await client.request()
        assert len(await client.conversations()) == 1

    async def test_a_busy_conversation_is_an_error(self, store: MemoryStore, clock: Clock) -> None:
        await store.create(NewConversation(id="chat"))
        provider = PausingProvider([TextDelta(text="a")])
        client = make_client(store, ClientHistory(conversation="chat"), provider, clock)
        client.messages.append(user("one"))
        task = asyncio.create_task(client.request())
        await provider.reached.wait()
        with pytest.raises(ConversationBusyError):
            await client.fork(client.history).request()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def test_an_unknown_conversation_is_an_error(self, store: MemoryStore) -> None:
        client = make_client(store, ClientHistory(conversation="missing"))
        with pytest.raises(ConversationNotFoundError):
            await client.ask("one")


async def test_the_same_first_message_of_another_client_is_another_conversation(
    store: MemoryStore,
) -> None:
    client = make_client(store)
    await client.ask("one")
    other = client.fork(ClientHistory(client="other"))
    other.messages = []
    await other.ask("one")
    assert len(await client.conversations()) == 2


async def test_the_same_first_message_in_another_protocol_is_another_conversation(
    store: MemoryStore,
) -> None:
    client = make_client(store)
    await client.ask("one")
    other = client.fork(AUTO)
    raw = b'{"role":"user","content":"one"}'
    other.messages = [Message(role="user", raw=raw, dialect="anthropic")]
    await other.request()
    assert len(await client.conversations()) == 2


async def test_the_first_message_again_after_a_tool_loop_is_another_conversation(
    store: MemoryStore,
) -> None:
    client = make_client(store)
    await client.ask("one")
    client.messages.append(message("tool", "4", tool_call_id="call-1"))
    await client.request()
    client.messages = []
    await client.ask("one")
    assert len(await client.conversations()) == 2


async def test_pairs_that_a_client_adds_are_no_sign_of_a_conversation(store: MemoryStore) -> None:
    pair = [
        user("This is the Qwen Code. We are setting up the context for our chat.\nIt is Monday."),
        reply("Got it. Thanks for the context!"),
    ]
    client = make_client(store)
    client.messages = list(pair)
    await client.ask("one")
    await client.ask("two")
    first = client.conversation
    client.messages = [user(pair[0].text.replace("Monday", "Tuesday")), *client.messages[1:]]
    await client.ask("three")
    assert client.conversation == first
    client.messages = list(pair)
    await client.ask("one")
    assert client.conversation != first


async def test_a_retry_of_a_first_request_with_replies_is_a_variant(store: MemoryStore) -> None:
    client = make_client(store, session("a"))
    client.messages = [user("zero"), reply("hello")]
    await client.ask("one")
    client.messages.pop()
    await client.request()
    stored = await client.stored()
    assert [one.text for one in stored.messages] == ["zero", "hello", "one", "answer 2"]
    assert len(stored.variants) == 1
    client.messages[1:] = [user("another")]
    await client.request()
    parent = (await client.stored()).parent
    assert parent == Branch(conversation=stored.id, sequence=1)


async def test_a_cancelled_reply_is_recognised_without_a_session(store: MemoryStore) -> None:
    client = make_client(store, provider=ScriptedProvider(["one two three four", "then"]))
    client.messages.append(user("count"))
    seen = 0
    async with aclosing(client.stream()) as events:
        async for event in events:
            seen += isinstance(event, TextDelta)
            if seen == 3:
                break
    client.messages.append(reply("one two"))
    await client.ask("go on")
    assert await client.stored_texts() == ["count", "one two", "go on", "then"]
    assert len(await client.conversations()) == 1


async def test_another_reply_without_a_session_is_another_conversation(
    store: MemoryStore,
) -> None:
    client = make_client(store)
    await client.ask("one")
    client.messages = [user("one"), reply("another answer")]
    await client.ask("two")
    client.messages = [user("one"), reply("")]
    await client.ask("three")
    assert len(await client.conversations()) == 3


async def test_a_request_that_ends_with_a_reply_is_continued_and_repeated(
    store: MemoryStore,
) -> None:
    client = make_client(store, session("a"))
    await client.ask("one")
    client.messages.append(message("system", "The command printed 4."))
    await client.request()
    await client.request()
    stored = await client.stored()
    assert [one.text for one in stored.messages] == ["one", "answer 1", "answer 3"]
    assert len(stored.variants) == 1


async def test_a_first_request_that_failed_is_repeated_among_equal_ones(store: MemoryStore) -> None:
    error = AuthenticationError("The key is not valid.", provider="scripted")
    provider = ScriptedProvider(["answer 1", "answer 2", error, "answer 3", "answer 4"])
    client = make_client(store, provider=provider)
    await client.ask("one")
    await client.ask("two")
    client.messages = [user("one")]
    with pytest.raises(AuthenticationError):
        await client.request()
    failed = client.conversation
    await client.request()
    assert client.conversation == failed
    assert await client.stored_texts() == ["one", "answer 3"]


async def test_several_equal_first_requests_are_not_guessed(store: MemoryStore) -> None:
    for name in ("a", "b"):
        keyed = make_client(store, session(name))
        ids = (f"{name}-{number}" for number in count(1))
        keyed.engine = make_engine(
            store, keyed.provider, clock=Clock(), new_id=lambda ids=ids: next(ids)
        )
        await keyed.ask("one")
    client = make_client(store)
    await client.ask("one")
    assert len(await client.conversations()) == 3


async def test_the_compaction_of_a_sub_agent_is_a_side_request_of_it(store: MemoryStore) -> None:
    summary = "The agent has counted all files; there is one."
    script = ["answer 1", "found", "found more", summary, "after"]
    client = make_client(store, session("a"), ScriptedProvider(script))
    await client.ask("one")
    agent = client.fork(session("a:agent", side="subagent", parent_family="test:a"))
    agent.messages = []
    await agent.ask("search")
    await agent.ask("more")
    compaction = agent.fork(session("a:agent", side="compaction", parent_family="test:a"))
    compaction.messages.append(user("Summarise."))
    await compaction.request()
    stored = await compaction.stored()
    assert stored.parent == Branch(conversation=agent.conversation or "", sequence=4, kind="side")
    assert await compaction.stored_texts() == ["Summarise.", summary]
    before = agent.conversation
    agent.messages = [user(f"Summary: {summary}")]
    await agent.ask("go on")
    continued = await agent.stored()
    assert continued.is_side
    assert continued.parent == Branch(conversation=before or "", sequence=4, kind="compaction")


async def test_a_side_request_without_a_new_message_has_one_message(store: MemoryStore) -> None:
    client = make_client(store, session("a"))
    await client.ask("one")
    await client.ask("two")
    side = client.fork(session("a", side="summary"))
    await side.request()
    stored = await side.stored()
    assert stored.parent == Branch(conversation=client.conversation or "", sequence=3, kind="side")
    assert await side.stored_texts() == ["answer 2", "answer 3"]


async def test_a_side_request_of_a_shared_path_has_a_parent(store: MemoryStore) -> None:
    client = make_client(store, session("a"))
    for text in ("one", "two", "three"):
        await client.ask(text)
    client.messages[2:] = [user("two, edited")]
    await client.request()
    side = client.fork(session("a", side="summary"))
    side.messages = [user("one"), reply("answer 1"), user("Where was I?")]
    await side.request()
    parent = (await side.stored()).parent
    assert parent is not None
    assert parent.kind == "side"
    assert await side.stored_texts() == ["Where was I?", "answer 5"]


async def test_a_fork_in_the_middle_of_a_turn_is_a_branch(store: MemoryStore) -> None:
    client = make_client(store, session("a"))
    client.messages = [user("one"), reply("1"), user("two"), reply("2")]
    await client.ask("three")
    fork = client.fork(session("b"))
    fork.messages = [user("one"), reply("1"), user("other")]
    await fork.request()
    parent = (await fork.stored()).parent
    assert parent == Branch(conversation=client.conversation or "", sequence=2)
    assert await fork.stored_texts() == ["one", "1", "other", "answer 2"]


async def test_a_fork_that_repeats_the_last_request_is_a_branch(store: MemoryStore) -> None:
    client = make_client(store, session("a"))
    await client.ask("one")
    await client.ask("two")
    fork = client.fork(session("b"))
    fork.messages.pop()
    await fork.request()
    parent = (await fork.stored()).parent
    assert parent == Branch(conversation=client.conversation or "", sequence=2)
    assert await fork.stored_texts() == ["one", "answer 1", "two", "answer 3"]
    assert await client.stored_texts() == ["one", "answer 1", "two", "answer 2"]


async def test_another_message_inside_a_turn_is_a_variant_without_a_session(
    store: MemoryStore,
) -> None:
    client = make_client(store)
    await client.ask("one")
    await client.send(user("two"), user("three"))
    client.messages[-2:] = [user("three, edited")]
    await client.request()
    assert await client.stored_texts() == ["one", "answer 1", "two", "three, edited", "answer 3"]
    assert len(await client.conversations()) == 1


async def test_another_message_after_a_first_one_is_another_conversation_without_a_session(
    store: MemoryStore,
) -> None:
    client = make_client(store)
    await client.send(user("one"), user("two"))
    client.messages = [user("one"), user("two, edited")]
    await client.request()
    assert len(await client.conversations()) == 2

"""One turn: load, assemble, call, save."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.scripted_provider import ScriptedProvider, text_reply_events

from cllm.core.conversation import CANCELLATION, INTERRUPTION, Summary, Turn, WindowRecord
from cllm.core.errors import (
    AuthenticationError,
    BrokenStreamError,
    ConversationBusyError,
    ConversationNotFoundError,
    ModelNotFoundError,
    ReplySchemaError,
    StaleLeaseError,
    StoreUnavailableError,
    StrictError,
    UnsendableError,
    UpstreamError,
    UsageError,
)
from cllm.core.message import plain_message
from cllm.core.ports import Changes, Lease, NewConversation, TurnStart
from cllm.core.prompt import Prompt
from cllm.core.reply import (
    RefusalDelta,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from cllm.engine.request import (
    ModelRoute,
    TurnEnded,
    TurnEvent,
    TurnQueued,
    TurnRequest,
    TurnStarted,
)
from cllm.engine.turn import Engine
from cllm.history.system_prompt import GivenPrompt
from cllm.stores.memory import MemoryStore

from .conftest import PausingProvider

BROKEN = BrokenStreamError("The stream broke.", provider="scripted")


async def take(engine: Engine, request: TurnRequest) -> list[TurnEvent]:
    return [event async for event in engine.run_turn(request)]


async def state_of(store: Any) -> list[tuple[str, list[str]]]:
    """Return the states and texts of the turns of `demo`; empty if it does not exist."""
    try:
        conversation = await store.load("demo")
    except ConversationNotFoundError:
        return []
    return [(turn.state, [m.text for m in turn.messages]) for turn in conversation.turns]


async def is_free(store: Any) -> bool:
    """Whether another turn can take the lease."""
    start = TurnStart(id="probe", messages=(), visible=False)
    try:
        lease = await store.begin_turn("demo", start, create=NewConversation(id="demo"), wait=0)
    except ConversationBusyError:
        return False
    await store.drop_turn(lease)
    return True


class TestCompleteTurn:
    async def test_events_come_in_order_and_the_turn_is_saved_before_the_last(
        self, engine, ask, store
    ):
        provider = ScriptedProvider([text_reply_events("Hi there", usage=Usage(input=3, output=2))])
        seen = []

        async for event in engine(store, provider).run_turn(ask()):
            seen.append(event)
            saved = await state_of(store)
            is_last = isinstance(event, TurnEnded)
            running = [("running", ["Hello"])]
            assert saved == ([("complete", ["Hello", "Hi there"])] if is_last else running)

        turn_started, first, second, finished, ended = seen
        assert isinstance(turn_started, TurnStarted)
        assert (turn_started.conversation, turn_started.model) == ("demo", "m")
        assert turn_started.prompt == provider.prompts[0]
        assert [first, second] == [TextDelta(text="Hi"), TextDelta(text=" there")]
        assert isinstance(ended, TurnEnded)
        assert ended.reply is finished
        assert ended.reply.message.text == "Hi there"

    async def test_a_saved_turn_has_the_messages_usage_and_window(self, engine, ask, store, clock):
        provider = ScriptedProvider([text_reply_events("Hi", usage=Usage(input=3, output=2))])

        *_, ended = await take(engine(store, provider), ask())

        assert isinstance(ended, TurnEnded)
        (turn,) = (await store.load("demo")).turns
        assert turn == ended.turn
        assert turn == Turn(
            id="turn-1",
            place="turn-1",
            state="complete",
            messages=(plain_message("user", "Hello"), plain_message("assistant", "Hi")),
            started_at=clock(),
            ended_at=clock(),
            model="m",
            provider="scripted",
            usage=Usage(input=3, output=2),
            window=WindowRecord(first_sequence=1, sent_messages=1, counted=3),
        )

    async def test_unreported_usage_is_estimated(self, engine, ask, store):
        *_, ended = await take(engine(store, ScriptedProvider(["Hi"])), ask())

        assert isinstance(ended, TurnEnded)
        assert ended.turn is not None
        assert ended.turn.usage is not None
        assert ended.turn.usage.estimated
        assert ended.turn.usage.total > 0
        assert ended.turn.window is not None
        assert ended.turn.window.counted is None
        (stored,) = (await store.load("demo")).turns
        assert stored == ended.turn

    async def test_an_estimated_usage_is_not_saved_as_a_count(self, engine, ask, store):
        reported = Usage(input=7, output=2, estimated=True)

        await take(
            engine(store, ScriptedProvider([text_reply_events("Hi", usage=reported)])), ask()
        )

        (turn,) = (await store.load("demo")).turns
        assert turn.usage == reported
        assert turn.window is not None
        assert turn.window.counted is None

    async def test_the_next_turn_sends_the_history(self, engine, ask, store):
        provider = ScriptedProvider(["One.", "Two."])
        running = engine(store, provider)

        await take(running, ask("first"))
        await take(running, ask("second"))

        sent = [message.text for message in provider.prompts[1].all_messages]
        assert sent == ["first", "One.", "second"]

    async def test_the_prompt_has_the_fields_of_the_request(self, engine, ask, store):
        provider = ScriptedProvider()
        request = ask(parameters={"temperature": 0}, stream=False, cache_key="k")

        await take(engine(store, provider), request)

        (prompt,) = provider.prompts
        assert (prompt.model, prompt.stream, prompt.cache_key) == ("served-m", False, "k")
        assert prompt.parameters == {"temperature": 0}

    async def test_the_system_prompt_is_captured_with_the_first_turn_and_sent_later(
        self, engine, ask, store
    ):
        provider = ScriptedProvider()
        running = engine(store, provider)

        await take(running, ask(system=GivenPrompt(text="Be brief.", source="Cllmfile.yml")))
        events = await take(running, ask(system=GivenPrompt(text="Be loud.")))

        stored = await store.load("demo")
        assert stored.system == plain_message("system", "Be brief.")
        assert [prompt.system for prompt in provider.prompts] == [stored.system] * 2
        assert isinstance(events[0], TurnStarted)
        assert [notice.code for notice in events[0].prompt.notices] == ["system_prompt_differs"]
        assert stored.turns[1].notices == events[0].prompt.notices

    async def test_without_a_conversation_nothing_is_saved(self, engine, ask, store):
        turn_started, *_, ended = await take(engine(store, ScriptedProvider(["Hi"])), ask(ref=None))

        assert isinstance(turn_started, TurnStarted)
        assert turn_started.conversation is None
        assert isinstance(ended, TurnEnded)
        assert ended.turn is None
        assert (await store.list_conversations()).items == ()

    async def test_thinking_and_tool_calls_are_passed_on(self, engine, ask, store):
        deltas: list[ReplyEvent] = [
            ThinkingDelta(text="Hm."),
            ToolCallDelta(index=0, id="c", name="f"),
        ]
        end = ReplyFinished(message=plain_message("assistant", "Hi"), stop_reason="tool_calls")

        events = await take(engine(store, ScriptedProvider([[*deltas, end]])), ask())

        assert events[1:-1] == [*deltas, end]

    async def test_an_event_after_the_end_is_ignored(self, engine, ask, store):
        reply_events = [*text_reply_events("Hi"), TextDelta(text="more")]

        events = await take(engine(store, ScriptedProvider([reply_events])), ask())

        assert isinstance(events[-1], TurnEnded)
        assert len(events) == 4

    async def test_the_lease_is_released(self, engine, ask, store):
        await take(engine(store, ScriptedProvider()), ask())

        assert await is_free(store)


class TestReadOnly:
    async def test_the_history_is_sent_and_nothing_is_saved(self, engine, ask, store):
        provider = ScriptedProvider(["One.", "Two."])
        running = engine(store, provider)
        await take(running, ask("first"))
        before = await store.load("demo")

        *_, ended = await take(running, ask("second", read_only=True, create=None))

        assert isinstance(ended, TurnEnded)
        assert ended.turn is None
        assert [m.text for m in provider.prompts[1].messages] == ["first", "One.", "second"]
        assert await store.load("demo") == before

    async def test_it_does_not_wait_for_a_running_turn(self, engine, ask, clock):
        store = MemoryStore(clock=clock)
        running = engine(store, ScriptedProvider())
        await take(running, ask("first"))
        lease = await store.begin_turn("demo", TurnStart(id="x", messages=()))

        *_, ended = await take(running, ask(read_only=True))

        assert isinstance(ended, TurnEnded)
        await store.drop_turn(lease)

    @pytest.mark.parametrize("read_only", [True, False])
    async def test_a_missing_conversation_is_an_error(self, engine, ask, store, read_only):
        provider = ScriptedProvider()

        with pytest.raises(ConversationNotFoundError):
            await take(engine(store, provider), ask(create=None, read_only=read_only))
        assert (provider.prepared, provider.prompts) == (0, [])

    async def test_nothing_is_created_for_reading(self, engine, ask, store):
        with pytest.raises(ConversationNotFoundError):
            await take(engine(store, ScriptedProvider()), ask(read_only=True))
        assert (await store.list_conversations()).items == ()


class TestSkipPreload:
    """Turns that start without loading the conversation first."""

    async def test_the_conversation_continues_with_its_own_model(self, engine, ask, store):
        provider = ScriptedProvider()
        running = engine(store, provider)
        await take(running, ask("first"))

        *_, ended = await take(running, ask("second", model="b", create=None, skip_preload=True))

        assert [m.text for m in provider.prompts[1].messages][::2] == ["first", "second"]
        assert isinstance(ended, TurnEnded)
        assert ended.model == "m"
        assert (await store.load("demo")).turns[1].model == "m"

    async def test_a_missing_conversation_is_an_error(self, engine, ask, store):
        with pytest.raises(ConversationNotFoundError):
            await take(engine(store, ScriptedProvider()), ask(create=None, skip_preload=True))

    async def test_an_archived_conversation_is_not_found(self, engine, ask, store):
        provider = ScriptedProvider()
        running = engine(store, provider)
        await take(running, ask("first"))
        await store.update("demo", Changes(archived=True))
        before = await store.load("demo")

        with pytest.raises(ConversationNotFoundError):
            await take(running, ask("second", create=None, skip_preload=True))

        assert await store.load("demo") == before
        assert len(provider.prompts) == 1
        await store.update("demo", Changes(archived=False))


class TestModel:
    @pytest.mark.parametrize(
        "case",
        [
            ("a", {"model": "a", "model_is_explicit": True}, "a", []),
            ("a", {"model": "b", "model_is_explicit": True}, "a", ["model_fixed"]),
            ("a", {"model": "b"}, "a", []),
            (None, {"model": "b", "model_is_explicit": True}, "b", []),
            ("a", {"model": "b", "switches_model": True}, "b", []),
            ("a", {"model": "b", "model_is_explicit": True, "overrides_model": True}, "b", []),
        ],
        ids=["same", "another", "another, not explicit", "none stored", "switched", "overridden"],
    )
    async def test_a_conversation_uses_the_model_that_it_was_created_with(
        self, engine, ask, clock, case
    ):
        stored, question, used, codes = case
        store = MemoryStore(clock=clock)
        await store.create(NewConversation(id="demo", model=stored))
        provider = ScriptedProvider()

        turn_started, *_, ended = await take(engine(store, provider), ask(**question))

        assert isinstance(turn_started, TurnStarted)
        assert isinstance(ended, TurnEnded)
        assert ended.turn is not None
        assert (turn_started.model, ended.turn.model) == (used, used)
        assert provider.prompts[0].model == f"served-{used}"
        assert [notice.code for notice in turn_started.prompt.notices] == codes

    async def test_a_switched_model_is_used_from_that_turn_on(self, engine, ask, clock):
        store = MemoryStore(clock=clock)
        await store.create(NewConversation(id="demo", model="a"))

        await take(engine(store, ScriptedProvider()), ask(model="b", switches_model=True))
        await take(engine(store, ScriptedProvider()), ask(model="c"))

        stored = await store.load("demo")
        assert stored.model == "b"
        assert [turn.model for turn in stored.turns] == ["b", "b"]

    async def test_a_new_conversation_has_the_model_of_its_first_turn(self, engine, ask, store):
        overriding = {"create": NewConversation(id="demo"), "overrides_model": True}

        await take(engine(store, ScriptedProvider()), ask(model="a", **overriding))
        await take(engine(store, ScriptedProvider()), ask(model="b", **overriding))
        await take(engine(store, ScriptedProvider()), ask(model="c"))

        stored = await store.load("demo")
        assert stored.model == "a"
        assert [turn.model for turn in stored.turns] == ["a", "b", "a"]
        assert [one.id for one in (await store.list_conversations(model="a")).items] == ["demo"]

    @pytest.mark.parametrize("way", ["overrides_model", "switches_model"])
    async def test_a_conversation_without_a_model_gets_that_of_a_turn_that_names_one(
        self, engine, ask, store, way
    ):
        await store.create(NewConversation(id="demo"))

        await take(engine(store, ScriptedProvider()), ask(model="default"))
        assert (await store.load("demo")).model is None

        await take(engine(store, ScriptedProvider()), ask(model="a", **{way: True}))
        assert (await store.load("demo")).model == "a"

    async def test_a_turn_is_complete_if_its_model_cannot_be_saved(self, engine, ask, clock):
        """Another turn starts before the conversation changes its model."""

        class BusyStore(MemoryStore):
            async def update(self, ref: str, *_: Any, **__: Any) -> Summary:
                raise ConversationBusyError(ref)

        store = BusyStore(clock=clock)
        await store.create(NewConversation(id="demo", model="a"))

        *_, ended = await take(
            engine(store, ScriptedProvider()), ask(model="b", switches_model=True)
        )

        assert isinstance(ended, TurnEnded)
        assert [turn.state for turn in (await store.load("demo")).turns] == ["complete"]

    async def test_a_turn_that_fails_or_saves_nothing_does_not_switch(self, engine, ask, clock):
        store = MemoryStore(clock=clock)
        await store.create(NewConversation(id="demo", model="a"))
        switch = ask(model="b", switches_model=True)

        with pytest.raises(AuthenticationError):
            await take(
                engine(store, ScriptedProvider([AuthenticationError("x", provider="p")])), switch
            )
        await take(engine(store, ScriptedProvider()), switch.with_storage(read_only=True))

        assert (await store.load("demo")).model == "a"

    async def test_the_notice_of_a_fixed_model_has_the_exact_text(self, engine, ask, clock):
        store = MemoryStore(clock=clock)
        await store.create(NewConversation(id="demo", model="A"))

        turn_started, *_ = await take(
            engine(store, ScriptedProvider()), ask(model="B", model_is_explicit=True)
        )

        assert isinstance(turn_started, TurnStarted)
        (notice,) = turn_started.prompt.notices
        assert notice.message == ("Conversation uses model 'A', but you specified 'B'. Using 'A'.")

    async def test_the_model_is_resolved_again_with_the_lease(self, engine, ask, clock):
        """Another process creates the conversation, with another model, during preparation."""
        store = MemoryStore(clock=clock)
        question: list[str] = []

        class Slow(ScriptedProvider):
            async def prepare(self) -> None:
                await super().prepare()
                if self.prepared == 1:
                    await store.create(NewConversation(id="demo", model="theirs"))

        provider = Slow()

        def find_route(model: str) -> ModelRoute:
            question.append(model)
            return ModelRoute(provider=provider, model=model)

        *_, ended = await take(engine(store, provider, find_route=find_route), ask(model="ours"))

        assert question == ["ours", "theirs"]
        assert isinstance(ended, TurnEnded)
        assert ended.turn is not None
        assert ended.turn.model == "theirs"
        assert provider.prepared == 2

    async def test_an_unknown_model_is_an_error_before_the_lease_is_taken(self, engine, ask, store):
        def find_route(model: str) -> ModelRoute:
            raise ModelNotFoundError("Unknown.", model=model)

        running = engine(store, ScriptedProvider(), find_route=find_route)
        with pytest.raises(ModelNotFoundError):
            await take(running, ask(saves_unsent=True))
        assert await state_of(store) == []
        assert await is_free(store)


class TestAccept:
    async def test_a_refused_reply_is_not_saved(self, engine, ask, store):
        def refuse(reply: ReplyFinished) -> None:
            raise ReplySchemaError(f"Not so: {reply.message.text}", place="$")

        provider = ScriptedProvider(["Nonsense"])
        with pytest.raises(ReplySchemaError, match="Not so: Nonsense"):
            await take(engine(store, provider), ask(accept=refuse))

        assert await state_of(store) == []
        assert await is_free(store)

    async def test_an_accepted_reply_is_saved(self, engine, ask, store):
        seen = []
        running = engine(store, ScriptedProvider(["Sense"]))

        await take(running, ask(accept=lambda reply: seen.append(reply.message.text)))

        assert seen == ["Sense"]
        assert await state_of(store) == [("complete", ["Hello", "Sense"])]


class TestLease:
    async def test_the_provider_prepares_before_the_lease_is_taken(self, engine, ask, store):
        held = []

        class Watching(ScriptedProvider):
            async def prepare(self) -> None:
                held.append(not await is_free(store))

            async def ask(self, prompt: Prompt) -> Any:
                held.append(not await is_free(store))
                async for event in super().ask(prompt):
                    yield event

        await take(engine(store, Watching()), ask())

        assert held == [False, True]

    async def test_a_turn_without_wait_is_refused_while_another_runs(self, engine, ask, store):
        lease = await store.begin_turn(
            "demo", TurnStart(id="x", messages=(), visible=False), create=NewConversation(id="demo")
        )
        provider = ScriptedProvider()

        with pytest.raises(ConversationBusyError):
            await take(engine(store, provider), ask(wait=0))
        assert provider.prompts == []
        await store.drop_turn(lease)

    async def test_a_turn_that_waits_sees_the_messages_of_the_other(self, engine, ask, store):
        slow = PausingProvider([TextDelta(text="One.")], text_reply_events("One.")[-1:])
        quick = ScriptedProvider(["Two."])
        first = asyncio.create_task(take(engine(store, slow), ask("first")))
        await slow.reached.wait()
        heard: asyncio.Queue[TurnEvent] = asyncio.Queue()

        async def on_event() -> None:
            async for event in engine(store, quick).run_turn(ask("second")):
                heard.put_nowait(event)

        second = asyncio.create_task(on_event())
        assert await heard.get() == TurnQueued(conversation="demo")
        assert quick.prompts == []

        slow.gate.set()
        await asyncio.gather(first, second)

        assert isinstance(heard.get_nowait(), TurnStarted)
        assert [m.text for m in quick.prompts[0].messages] == ["first", "One.", "second"]

    async def test_a_lease_is_renewed_while_its_turn_runs(self, engine, ask, clock):
        renewals = asyncio.Queue[Lease]()

        class Recording(MemoryStore):
            async def renew_lease(self, lease: Lease) -> Lease:
                renewed = await super().renew_lease(lease)
                clock.advance(0.1)
                renewals.put_nowait(renewed)
                return renewed

        store = Recording(clock=clock, lease_seconds=0.15)
        provider = PausingProvider([TextDelta(text="Hi")], text_reply_events("Hi")[-1:])
        running = asyncio.create_task(take(engine(store, provider), ask()))
        first, _, third = [await renewals.get() for _ in range(3)]
        provider.gate.set()

        assert isinstance((await running)[-1], TurnEnded)
        assert first.expires_at is not None
        assert third.expires_at is not None
        assert first.expires_at < third.expires_at
        assert await state_of(store) == [("complete", ["Hello", "Hi"])]

    async def test_a_refused_system_prompt_releases_the_lease(self, engine, ask, store):
        running = engine(store, ScriptedProvider())
        await take(running, ask(system=GivenPrompt(text="Be brief.")))

        with pytest.raises(UsageError):
            await take(running, ask(system=GivenPrompt(text="Be loud.", explicit=True)))
        assert await is_free(store)
        assert len(await state_of(store)) == 1


class TestFailure:
    async def test_a_turn_whose_provider_fails_is_saved_with_its_text(self, engine, ask, store):
        provider = ScriptedProvider([[TextDelta(text="Hal"), BROKEN]])

        with pytest.raises(BrokenStreamError):
            await take(engine(store, provider), ask())
        assert await state_of(store) == [("failed", ["Hello", "Hal"])]
        assert await is_free(store)

    @pytest.mark.parametrize(
        ("error", "saved"),
        [
            (AuthenticationError("No.", provider="p", status=401), [("failed", ["Hello"])]),
            (UnsendableError("No.", provider="p"), []),
            (StrictError(provider="p", notices=()), []),
        ],
        ids=["provider", "unsendable", "strict"],
    )
    async def test_a_request_that_was_not_sent_leaves_no_turn(
        self, engine, ask, store, error, saved
    ):
        with pytest.raises(type(error)):
            await take(engine(store, ScriptedProvider([error])), ask())
        assert await state_of(store) == saved
        assert await is_free(store)

    async def test_a_saved_failure_has_a_code_and_a_message(self, engine, ask, store):
        with pytest.raises(BrokenStreamError):
            await take(engine(store, ScriptedProvider([[TextDelta(text="x"), BROKEN]])), ask())

        (turn,) = (await store.load("demo")).turns
        assert turn.failure is not None
        assert (turn.failure.code, turn.failure.message) == ("BrokenStreamError", str(BROKEN))
        assert turn.provider == "scripted"
        assert turn.usage is not None
        assert turn.usage.estimated

    @pytest.mark.parametrize("saves_unsent", [True, False])
    async def test_a_failure_before_the_call_is_saved_only_if_requested(
        self, engine, ask, store, saves_unsent
    ):
        running = engine(store, ScriptedProvider())
        await take(running, ask(system=GivenPrompt(text="Be brief.")))
        loud = GivenPrompt(text="Be loud.", explicit=True)

        with pytest.raises(UsageError):
            await take(running, ask(saves_unsent=saves_unsent, system=loud))
        failed = (await store.load("demo")).turns[1:]
        expected = [("failed", None, None)] if saves_unsent else []
        assert [(turn.state, turn.provider, turn.window) for turn in failed] == expected

    async def test_a_failed_turn_is_not_sent_as_history(self, engine, ask, store):
        provider = ScriptedProvider([[TextDelta(text="x"), BROKEN], "Two."])
        running = engine(store, provider)
        with pytest.raises(BrokenStreamError):
            await take(running, ask("first"))

        await take(running, ask("second"))

        assert [m.text for m in provider.prompts[1].messages] == ["second"]

    async def test_an_unexpected_exception_saves_the_turn_as_failed(self, engine, ask, store):
        class Buggy(ScriptedProvider):
            async def ask(self, _prompt: Prompt) -> Any:
                yield TextDelta(text="x")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await take(engine(store, Buggy()), ask())
        assert await state_of(store) == [("failed", ["Hello", "x"])]
        assert await is_free(store)

    async def test_a_provider_without_a_final_event_is_a_broken_stream(self, engine, ask, store):
        with pytest.raises(BrokenStreamError):
            await take(engine(store, ScriptedProvider([[TextDelta(text="x")]])), ask())

        assert await state_of(store) == [("failed", ["Hello", "x"])]
        assert await is_free(store)

    async def test_a_store_that_cannot_save_the_turn_is_an_error(self, engine, ask, clock):
        class Full(MemoryStore):
            async def finish_turn(self, *_: Any, **__: Any) -> None:
                raise StoreUnavailableError("The disk is full.")

        events = engine(Full(clock=clock), ScriptedProvider(["Hi"])).run_turn(ask())
        assert isinstance(await anext(events), TurnStarted)
        assert await anext(events) == TextDelta(text="Hi")
        assert isinstance(await anext(events), ReplyFinished)

        with pytest.raises(StoreUnavailableError, match="full"):
            await anext(events)

    async def test_a_turn_with_a_lost_lease_saves_no_reply(self, engine, ask, clock):
        store = MemoryStore(clock=clock)
        provider = PausingProvider([TextDelta(text="Hi")], text_reply_events("Hi")[-1:])
        running = asyncio.create_task(take(engine(store, provider), ask()))
        await provider.reached.wait()
        clock.advance(61)
        await take(engine(store, ScriptedProvider(["Mine."])), ask("other"))
        provider.gate.set()

        with pytest.raises(StaleLeaseError):
            await running
        assert await state_of(store) == [("failed", ["Hello"]), ("complete", ["other", "Mine."])]


class TestRetry:
    async def test_a_transient_error_is_retried_and_the_turn_saved_once(
        self, engine, ask, store, sleeper
    ):
        provider = ScriptedProvider([UpstreamError("Oops.", provider="p"), "Hi"])

        await take(engine(store, provider), ask())

        assert len(provider.prompts) == 2
        assert provider.prompts[0] == provider.prompts[1]
        assert sleeper.slept == [0.5]
        assert await state_of(store) == [("complete", ["Hello", "Hi"])]

    async def test_a_permanent_error_is_not_retried(self, engine, ask, store, sleeper):
        provider = ScriptedProvider([AuthenticationError("No.", provider="p", status=401), "Hi"])

        with pytest.raises(AuthenticationError):
            await take(engine(store, provider), ask())
        assert len(provider.prompts) == 1
        assert sleeper.slept == []


async def interrupt_by_cancelling(
    running: Engine, request: TurnRequest, reply_events: PausingProvider
):
    task = asyncio.create_task(take(running, request))
    await reply_events.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def interrupt_by_closing(
    running: Engine, request: TurnRequest, reply_events: PausingProvider
):
    events = running.run_turn(request)
    for _ in range(1 + len(reply_events._before)):
        await anext(events)
    await events.aclose()


@pytest.mark.parametrize(
    ("stop_reason", "state"),
    [
        ("end", "complete"),
        ("length", "complete"),
        ("pause", "incomplete"),
        ("context_window", "incomplete"),
    ],
)
async def test_a_reply_that_the_provider_cuts_off_is_incomplete(
    engine, ask, store, stop_reason, state
):
    reply = ReplyFinished(message=plain_message("assistant", "Hi"), stop_reason=stop_reason)
    provider = ScriptedProvider([[TextDelta(text="Hi"), reply]])

    await take(engine(store, provider), ask())

    assert await state_of(store) == [(state, ["Hello", "Hi"])]


@pytest.mark.parametrize("interrupt", [interrupt_by_cancelling, interrupt_by_closing])
class TestInterruption:
    async def test_the_partial_reply_is_saved_as_incomplete(self, engine, ask, store, interrupt):
        provider = PausingProvider([TextDelta(text="Hel"), TextDelta(text="lo")])

        await interrupt(engine(store, provider), ask(), provider)

        assert await state_of(store) == [("incomplete", ["Hello", "Hello"])]
        (turn,) = (await store.load("demo")).turns
        assert turn.failure == INTERRUPTION
        assert turn.usage is not None
        assert turn.usage.estimated
        assert await is_free(store)

    async def test_a_partial_refusal_is_saved_too(self, engine, ask, store, interrupt):
        provider = PausingProvider([RefusalDelta(text="I will "), RefusalDelta(text="not.")])

        await interrupt(engine(store, provider), ask(), provider)

        assert await state_of(store) == [("incomplete", ["Hello", "I will not."])]

    async def test_an_incomplete_turn_is_sent_as_history(self, engine, ask, store, interrupt):
        provider = PausingProvider([TextDelta(text="Hel")])
        await interrupt(engine(store, provider), ask("first"), provider)
        after = ScriptedProvider()

        await take(engine(store, after), ask("second"))

        assert [m.text for m in after.prompts[0].messages] == ["first", "Hel", "second"]

    async def test_with_discard_nothing_is_saved(self, engine, ask, store, interrupt):
        provider = PausingProvider([TextDelta(text="Hel")])

        await interrupt(engine(store, provider), ask(on_interrupt="discard"), provider)

        assert await state_of(store) == []
        assert await is_free(store)

    @pytest.mark.parametrize(
        "before",
        [[], [ThinkingDelta(text="Hm.")], [TextDelta(text="")]],
        ids=["nothing", "thinking", "empty text"],
    )
    async def test_before_the_first_text_the_turn_fails_and_the_user_message_is_saved(
        self, engine, ask, store, interrupt, before
    ):
        provider = PausingProvider(before)

        await interrupt(engine(store, provider), ask(), provider)

        assert await state_of(store) == [("failed", ["Hello"])]
        (turn,) = (await store.load("demo")).turns
        assert turn.failure == INTERRUPTION
        assert turn.usage is None

    async def test_a_turn_without_text_is_not_sent_as_history(self, engine, ask, store, interrupt):
        provider = PausingProvider([])
        await interrupt(engine(store, provider), ask("first"), provider)
        after = ScriptedProvider()

        await take(engine(store, after), ask("second"))

        assert [m.text for m in after.prompts[0].messages] == ["second"]

    async def test_the_captured_prompt_is_saved_with_an_incomplete_turn(
        self, engine, ask, store, interrupt
    ):
        provider = PausingProvider([TextDelta(text="Hel")])
        request = ask(system=GivenPrompt(text="Be brief."))

        await interrupt(engine(store, provider), request, provider)

        assert (await store.load("demo")).system == plain_message("system", "Be brief.")

    async def test_the_stream_of_the_provider_is_closed(self, engine, ask, store, interrupt):
        provider = PausingProvider([TextDelta(text="Hel")])

        await interrupt(engine(store, provider), ask(), provider)

        assert provider.ended

    @pytest.mark.parametrize("ref", [None, "demo"])
    async def test_a_stateless_or_read_only_turn_saves_nothing(
        self, engine, ask, clock, interrupt, ref
    ):
        store = MemoryStore(clock=clock)
        await store.create(NewConversation(id="demo"))
        provider = PausingProvider([TextDelta(text="Hel")])

        await interrupt(engine(store, provider), ask(ref=ref, read_only=True), provider)

        assert await state_of(store) == []


async def test_closing_after_the_end_changes_nothing(engine, ask, store):
    events = engine(store, ScriptedProvider(["Hi"])).run_turn(ask())
    async for event in events:
        if isinstance(event, TurnEnded):
            break
    await events.aclose()

    assert await state_of(store) == [("complete", ["Hello", "Hi"])]


async def test_a_cancellation_while_the_provider_prepares_saves_nothing(engine, ask, store):
    started = asyncio.Event()

    class Endless(ScriptedProvider):
        async def prepare(self) -> None:
            started.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(take(engine(store, Endless()), ask()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await state_of(store) == []
    assert await is_free(store)


async def test_turns_in_different_conversations_do_not_wait_for_each_other(engine, ask, store):
    slow = PausingProvider([TextDelta(text="x")], text_reply_events("x")[-1:])
    held = asyncio.create_task(take(engine(store, slow), ask()))
    await slow.reached.wait()

    *_, ended = await take(engine(store, ScriptedProvider(["Hi"])), ask(ref="other"))

    assert isinstance(ended, TurnEnded)
    slow.gate.set()
    await held


async def test_a_client_that_cancels_is_the_failure_of_the_turn(engine, ask, store):
    provider = PausingProvider([TextDelta(text="Hel")])
    task = asyncio.create_task(take(engine(store, provider), ask()))
    await provider.reached.wait()

    task.cancel("cancelled")
    with pytest.raises(asyncio.CancelledError):
        await task

    (turn,) = (await store.load("demo")).turns
    assert (turn.state, turn.failure) == ("incomplete", CANCELLATION)


@pytest.mark.parametrize(("expected", "busy"), [(None, False), (2, False), (0, True), (4, True)])
async def test_a_turn_starts_only_after_the_expected_messages(engine, ask, store, expected, busy):
    await take(engine(store, ScriptedProvider(["One."])), ask("first"))
    provider = ScriptedProvider(["Two."])
    request = ask("second").with_storage(expected_count=expected)

    if busy:
        with pytest.raises(ConversationBusyError):
            await take(engine(store, provider), request)
        assert await state_of(store) == [("complete", ["first", "One."])]
        assert await is_free(store)
    else:
        await take(engine(store, provider), request)
        assert len(await state_of(store)) == 2


@pytest.mark.parametrize(
    ("dialect", "stop_reason", "paths"),
    [
        ("responses", "length", ["max_output_tokens"]),
        ("responses", "content_filter", ["content_filter"]),
        ("responses", "end", []),
        ("openai", "length", []),
    ],
)
async def test_a_response_has_the_reason_why_it_is_incomplete(
    engine, ask, store, dialect, stop_reason, paths
):
    reply = ReplyFinished(message=plain_message("assistant", "Hi"), stop_reason=stop_reason)
    provider = ScriptedProvider([[TextDelta(text="Hi"), reply]])
    request = ask()
    target = msgspec.structs.replace(request.target, dialect=dialect)

    await take(engine(store, provider), msgspec.structs.replace(request, target=target))

    (turn,) = (await store.load("demo")).turns
    assert [notice.path for notice in turn.notices if notice.code == "reply_cut"] == paths

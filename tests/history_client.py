"""A client that sends its whole history with every request, to an engine."""

import asyncio
from contextlib import aclosing
from typing import Any

import msgspec
from tests.scripted_provider import ScriptedProvider
from tests.turn_requests import make_turn_request

from cllm.core.conversation import StoredConversation
from cllm.core.errors import CllmError
from cllm.core.message import Message, Role
from cllm.core.notice import Notice
from cllm.core.ports import Store
from cllm.core.reply import Noticed
from cllm.engine.optional_steps import OptionalSteps
from cllm.engine.request import ClientHistory, ModelRoute, TurnEnded, TurnEvent, TurnStarted
from cllm.engine.turn import Engine


def message(role: Role, content: Any, **fields: Any) -> Message:
    raw = msgspec.json.encode({"role": role, "content": content, **fields})
    return Message(role=role, raw=raw)


def user(text: str) -> Message:
    return message("user", text)


def reply(text: str) -> Message:
    return message("assistant", text)


class HistoryClient:
    """`messages` is the client's transcript, `conversation` that of its last turn."""

    def __init__(
        self, store: Store, engine: Engine, provider: ScriptedProvider, history: ClientHistory
    ) -> None:
        self.store = store
        self.engine = engine
        self.provider = provider
        self.history = history
        self.messages: list[Message] = []
        self.conversation: str | None = None
        self.notices: list[Notice] = []
        self.unrecorded: list[CllmError] = []
        self.background: set[asyncio.Task[None]] = set()

    def fork(self, history: ClientHistory) -> "HistoryClient":
        """Another client with the same transcript."""
        other = HistoryClient(self.store, self.engine, self.provider, history)
        other.messages = list(self.messages)
        return other

    async def send(self, *new: Message) -> str:
        """Send the transcript and new messages; add them and the reply to the transcript."""
        self.messages += new
        text = await self.request()
        self.messages.append(reply(text))
        return text

    async def ask(self, text: str) -> str:
        return await self.send(user(text))

    async def request(self) -> str:
        """Send the transcript as it is; return the reply."""
        events = [event async for event in self.stream()]
        ended = next(event for event in events if isinstance(event, TurnEnded))
        return ended.reply.message.text

    async def stream(self) -> Any:
        self.notices = []
        request = make_turn_request(
            messages=tuple(one for one in self.messages if one.role != "system"),
            prompt_messages=tuple(self.messages),
            model="scripted",
            switches_model=True,
            system_policy="dynamic",
            client_history=self.history,
            ref=self.history.conversation,
            skip_preload=True,
            saves_unsent=True,
            wait=0,
            optional_steps=None if self.history.conversation else self._make_steps(),
        )
        async with aclosing(self.engine.run_turn(request)) as events:
            async for event in events:
                self._note(event)
                yield event

    def _make_steps(self) -> OptionalSteps:
        return OptionalSteps(self.unrecorded.append, background=self.background)

    def _note(self, event: TurnEvent) -> None:
        if isinstance(event, TurnStarted):
            self.conversation = event.conversation
        elif isinstance(event, Noticed):
            self.notices.append(event.notice)

    async def stored(self) -> StoredConversation:
        assert self.conversation is not None
        return await self.store.load(self.conversation)

    async def stored_texts(self) -> list[str]:
        return [one.text for one in (await self.stored()).messages]

    async def conversations(self) -> list[str]:
        page = await self.store.list_conversations()
        return sorted(one.id for one in page.items)


def make_engine(store: Store, provider: ScriptedProvider, *, clock: Any, new_id: Any) -> Engine:
    return Engine(
        store=store,
        find_route=lambda model: ModelRoute(provider=provider, model=model),
        clock=clock,
        new_id=new_id,
    )

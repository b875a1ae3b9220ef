"""Random clients that send their whole history: every message is stored once per path.

A test calls `check_histories` with the actions that Hypothesis draws.
"""

from collections.abc import Awaitable, Callable
from itertools import count

import msgspec
from hypothesis import strategies as st
from tests.history_client import HistoryClient, make_engine, message, reply, user
from tests.scripted_provider import ScriptedProvider, text_reply_events

from cllm.core.conversation import StoredConversation
from cllm.core.errors import AuthenticationError
from cllm.core.message import Message
from cllm.core.ports import Clock, Store
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent, ReplyFinished, TextDelta, ToolCallDelta
from cllm.engine.request import ClientHistory
from cllm.wire.path_digest import digest_path

ACTIONS = (
    "ask",
    "tool",
    "regenerate",
    "edit",
    "rewind",
    "cancel",
    "fail",
    "compact",
    "reformat",
    "restart",
    "other",
)


class Action(msgspec.Struct, frozen=True):
    kind: str
    text: str = ""
    index: int = 0


TEXTS = st.sampled_from(["yes", "no", "look again", "why?", "ein Test", "第一"])
HISTORIES = st.lists(
    st.builds(Action, st.sampled_from(ACTIONS), TEXTS, st.integers(0, 20)), max_size=14
)

OpenStore = Callable[[], Awaitable[Store]]


class _CountingProvider(ScriptedProvider):
    """Replies with a new text, a tool call if the last message asks for it, or an error."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = count(1)

    def _next_events(self, prompt: Prompt) -> list[ReplyEvent | AuthenticationError]:
        number = next(self.numbers)
        last = prompt.messages[-1].text
        if last == "fail":
            return [AuthenticationError("The key is not valid.", provider=self.name)]
        if last == "call":
            call = call_message(f"call-{number}")
            start = ToolCallDelta(index=0, id=f"call-{number}", name="read", arguments="{}")
            return [start, ReplyFinished(message=call, stop_reason="tool_calls")]
        return list(text_reply_events(f"reply number {number} ends"))


def call_message(call: str) -> Message:
    function = {"name": "read", "arguments": "{}"}
    return message(
        "assistant", None, tool_calls=[{"id": call, "type": "function", "function": function}]
    )


class _Session:
    """One client and what it has seen. Restarts open the store again."""

    def __init__(self, open_store: OpenStore, clock: Clock, *, keyed: bool) -> None:
        self._open_store = open_store
        self._clock = clock
        self._numbers = count(1)
        self._provider = _CountingProvider()
        self._family = "test:session" if keyed else None
        self.transcripts: list[tuple[Message, ...]] = []

    async def open(self) -> None:
        self.store = await self._open_store()
        engine = make_engine(
            self.store,
            self._provider,
            clock=self._clock,
            new_id=lambda: f"id-{next(self._numbers)}",
        )
        history = ClientHistory(client="test", family=self._family)
        self.client = HistoryClient(self.store, engine, self._provider, history)

    async def reopen(self) -> None:
        """Open the store again, as another process of the server does."""
        messages, conversation = self.client.messages, self.client.conversation
        await self.store.close()
        await self.open()
        self.client.messages, self.client.conversation = messages, conversation

    async def run(self, action: Action) -> None:
        act = getattr(self, f"_{action.kind}")
        await act(action)

    async def _ask(self, action: Action) -> None:
        # A message is unique, so that equal histories are the same history.
        message = user(f"{action.text} {next(self._numbers)}")
        await self._request(message, continues=bool(self.client.messages))

    async def _tool(self, _action: Action) -> None:
        had_messages = bool(self.client.messages)
        self.client.messages += [user(f"do {next(self._numbers)}"), user("call")]
        await self._request(continues=had_messages)
        calls = self.client.messages[-1].json()["tool_calls"]
        result = message("tool", "content", tool_call_id=calls[0]["id"])
        await self._request(result, continues=True)

    async def _regenerate(self, _action: Action) -> None:
        """Repeat the last request: another variant in the same conversation."""
        if self.client.messages:
            before = await self.client.stored()
            self.client.messages.pop()
            await self._request(continues=True)
            after = await self.client.stored()
            assert len(after.variants) == len(before.variants) + 1

    async def _edit(self, action: Action) -> None:
        """Replace the last user message."""
        users = self._user_indexes()
        if users:
            del self.client.messages[users[-1] :]
            # Without a session, only replies show that the history is the same.
            has_reply = any(one.role == "assistant" for one in self.client.messages)
            continues = has_reply or self._family is not None
            message = user(f"{action.text} {next(self._numbers)}")
            await self._request(message, continues=continues)

    async def _rewind(self, action: Action) -> None:
        users = self._user_indexes()
        if users:
            del self.client.messages[users[action.index % len(users)] :]
            await self._request(user(f"{action.text} {next(self._numbers)}"))

    async def _cancel(self, action: Action) -> None:
        self.client.messages.append(user(f"{action.text} {next(self._numbers)}"))
        words: list[str] = []
        stream = self.client.stream()
        async for event in stream:
            if isinstance(event, TextDelta):
                words.append(event.text)
                if len(words) == 1 + action.index % 3:
                    break
        await stream.aclose()
        self._check_prompt()
        self.client.messages.append(reply("".join(words)))
        await self._request(user(f"{action.text} {next(self._numbers)}"), continues=True)

    async def _fail(self, _action: Action) -> None:
        sent = [*self.client.messages, user(f"try {next(self._numbers)}"), user("fail")]
        self.client.messages = sent
        try:
            await self.client.request()
        except AuthenticationError:
            del self.client.messages[-2:]

    async def _compact(self, action: Action) -> None:
        if not self.client.messages or self._family is None:
            return
        side = ClientHistory(client="test", family=self._family, side="compaction")
        compaction = self.client.fork(side)
        await compaction.ask("summarise everything")
        summary = compaction.messages[-1].text
        self.client.messages = [user(f"The summary is: {summary}")]
        await self._request(user(f"{action.text} {next(self._numbers)}"))
        parent = (await self.client.stored()).parent
        assert parent is not None
        assert parent.kind == "compaction"

    async def _reformat(self, action: Action) -> None:
        """Send the messages in another format from now on."""
        self.client.messages = [_reformat(one) for one in self.client.messages]
        await self._ask(action)

    async def _restart(self, action: Action) -> None:
        await self.reopen()
        await self._ask(action)

    async def _other(self, action: Action) -> None:
        """Start another conversation."""
        self.client.messages = []
        if self._family is not None:
            self._family = f"test:session-{next(self._numbers)}"
            history = ClientHistory(client="test", family=self._family)
            self.client.history = history
        await self._ask(action)

    async def _request(self, *new: Message, continues: bool = False) -> None:
        """Send the transcript; `continues`: the turn belongs to the same conversation."""
        before = self.client.conversation
        self.client.messages += new
        events = [event async for event in self.client.stream()]
        finished = next(event for event in events if isinstance(event, ReplyFinished))
        self._check_prompt()
        self.client.messages.append(finished.message)
        self.transcripts.append(tuple(self.client.messages))
        stored = await self.client.stored()
        path = tuple(one for turn in stored.history() for one in turn.messages)
        assert _have_same_meaning(path, self.client.messages)
        assert not self.client.unrecorded
        if continues and before is not None:
            assert self.client.conversation == before

    def _check_prompt(self) -> None:
        assert self._provider.prompts[-1].messages == tuple(self.client.messages)

    def _user_indexes(self) -> list[int]:
        return [n for n, one in enumerate(self.client.messages) if one.role == "user"]

    async def check_nothing_is_lost(self) -> None:
        """Every transcript that the client ever had is the path of a stored turn."""
        for transcript in self.transcripts:
            matches = await self.store.find_paths([digest_path(transcript)[-1]])
            assert matches, [one.text for one in transcript]


def _have_same_meaning(stored: tuple[Message, ...], sent: list[Message]) -> bool:
    """Whether both have the same texts and tools, compared without the code under test."""
    return [_summarise(one) for one in stored] == [_summarise(one) for one in sent]


def _summarise(one: Message) -> tuple[str, str, list[str]]:
    calls = one.json().get("tool_calls") or ()
    return one.role, " ".join(one.text.split()), [call["id"] for call in calls]


def _reformat(one: Message) -> Message:
    fields = one.json()
    if one.role == "user" and isinstance(fields["content"], str):
        block = {"type": "text", "text": f"{fields['content']}\n"}
        return message("user", [block], name="person")
    if one.role == "assistant" and fields.get("content"):
        return message("assistant", f"{one.text} ")
    return one


async def check_histories(
    open_store: OpenStore, clock: Clock, actions: list[Action], *, keyed: bool
) -> None:
    session = _Session(open_store, clock, keyed=keyed)
    await session.open()
    try:
        for action in actions:
            await session.run(action)
        await session.check_nothing_is_lost()
        await _check_tree(session.store)
    finally:
        await session.store.close()


async def _check_tree(store: Store) -> None:
    """No conversation has a message twice on its path: user texts are unique."""
    page = await store.list_conversations(side=True)
    for summary in page.items:
        conversation: StoredConversation = await store.load(summary.id)
        texts = [one.text.strip() for one in conversation.messages if one.role == "user"]
        unique = [text for text in texts if text not in ("call", "summarise everything", "fail")]
        assert len(unique) == len(set(unique))

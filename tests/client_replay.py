"""Replays the requests of clients that send their whole history, and reports where each is stored.

A request is decoded, identified and prepared as the server does it; a provider gives the recorded
reply.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import count
from typing import Any

import msgspec
from msgspec.structs import replace
from tests.client_recordings import RecordedRequest
from tests.history_client import make_engine
from tests.scripted_provider import ScriptedProvider

from cllm.core.conversation import INJECTED, StoredConversation, Turn
from cllm.core.errors import AuthenticationError, CllmError
from cllm.core.message import Dialect, Message, Refusal, Text, ToolCall, ToolResult
from cllm.core.notice import Notice
from cllm.core.ports import Clock, Store
from cllm.core.prompt import Prompt
from cllm.core.reply import Noticed, ReplyEvent, ReplyFinished, TextDelta
from cllm.engine.optional_steps import OptionalSteps
from cllm.engine.request import TurnEnded, TurnInput, TurnRequest, TurnStarted, TurnStorage
from cllm.engine.request import TurnTarget as Target
from cllm.server.recording.clients import identify_client
from cllm.server.turns.prepare import prepare_recorded
from cllm.wire.convert import parts_of
from cllm.wire.path_digest import digest_path, meaning_of

REMINDER = "<system-reminder>"
CONTINUED = "This session is being continued from a previous conversation"
SUMMARY = re.compile(r"<summary>(.*)</summary>", re.DOTALL)
DIALECTS: dict[str, Dialect] = {
    "/v1/chat/completions": "openai",
    "/v1/messages": "anthropic",
    "/v1/responses": "responses",
}
WORD = re.compile(r"\S+\s*|\s+")


class PlannedReply(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider does: a reply, or an error if `message` is None.

    `shown`: the client disconnects after this part of the reply. `is_cut`: the provider's stream
    breaks in the middle.
    """

    message: Message | None
    text: str = ""
    shown: str | None = None
    is_cut: bool = False


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request was stored; `conversation` is None if it was not."""

    kind: str
    conversation: str | None = None
    parent: str | None = None
    notices: tuple[Notice, ...] = ()


def plan_replies(requests: Sequence[RecordedRequest]) -> list[PlannedReply]:
    """Return the reply to each request; IDs of tool calls are those in later requests."""
    return [_plan_reply(one, requests[n + 1 :]) for n, one in enumerate(requests)]


def _plan_reply(request: RecordedRequest, later: Sequence[RecordedRequest]) -> PlannedReply:
    answer = request.answer
    if answer is None:
        return PlannedReply(message=None)
    text, calls = answer.get("text", ""), answer.get("calls", [])
    # The next requests of the session that contain these messages and another one.
    own = _saved(request)
    following = [
        saved[len(own)]
        for one in later
        if _is_same_session(one, request)
        and len(saved := _saved(one)) > len(own)
        and _meaning(saved[: len(own)]) == _meaning(own)
    ]
    replies = [one for one in following if one.role == "assistant"]
    ids = [f"call-{request.seq}-{index}" for index in range(len(calls))]
    for one in replies:
        parts = [part for part in parts_of(one) if isinstance(part, ToolCall)]
        if [part.name for part in parts] == [name for name, _ in calls]:
            ids = [part.id for part in parts]
            break
    shown = None
    if request.aborted:
        shown = replies[0].text if replies else "".join(WORD.findall(text)[:3])
        if not text.startswith(shown) or not shown:
            shown = "".join(WORD.findall(text)[:3])
    dialect = DIALECTS[request.path.partition("?")[0]]
    return PlannedReply(
        message=build_reply(dialect, text, calls, ids, answer.get("think")),
        text=text,
        shown=shown,
        is_cut="cut" in request.scenario and _is_repeated(request, later),
    )


def _saved(request: RecordedRequest) -> list[Message]:
    return [one for one in request.decode().messages if one.role != "system"]


def _meaning(messages: Sequence[Message]) -> bytes | None:
    return meaning_of(digest_path(messages)[-1]) if messages else None


def _is_same_session(one: RecordedRequest, other: RecordedRequest) -> bool:
    def key(request: RecordedRequest) -> Any:
        session = identify_client(request.headers, request.decode()).session
        return session or (request.scenario, request.path.partition("?")[0])

    return one.body is not None and key(one) == key(other)


def _is_repeated(request: RecordedRequest, later: Sequence[RecordedRequest]) -> bool:
    return any(_saved(one) == _saved(request) for one in later[:1])


def build_reply(
    dialect: Dialect, text: str, calls: Sequence[Any], ids: Sequence[str], think: str | None
) -> Message:
    """Return a reply as a provider of this protocol sends it."""
    content: Any
    if dialect == "openai":
        functions = [
            {"id": id_, "type": "function", "function": {"name": name, "arguments": _dump(value)}}
            for id_, (name, value) in zip(ids, calls, strict=True)
        ]
        body: dict[str, Any] = {"role": "assistant", "content": text or None}
        if functions:
            body["tool_calls"] = functions
        if think is not None:
            body["reasoning_content"] = think
        return Message(role="assistant", raw=_encode(body))
    if dialect == "anthropic":
        content = [{"type": "thinking", "thinking": think, "signature": "c2ln"}] if think else []
        content += [{"type": "text", "text": text}] if text else []
        content += [
            {"type": "tool_use", "id": id_, "name": name, "input": value}
            for id_, (name, value) in zip(ids, calls, strict=True)
        ]
    else:
        summary = [{"type": "summary_text", "text": think}]
        content = [{"type": "reasoning", "id": "rs_1", "summary": summary}] if think else []
        if text:
            blocks = [{"type": "output_text", "text": text, "annotations": []}]
            content.append(
                {"type": "message", "id": "msg_1", "role": "assistant", "content": blocks}
            )
        content += [
            _call_item(id_, name, value) for id_, (name, value) in zip(ids, calls, strict=True)
        ]
    raw = _encode({"role": "assistant", "content": content})
    return Message(role="assistant", raw=raw, dialect=dialect)


def _call_item(id_: str, name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"type": "custom_tool_call", "call_id": id_, "name": name, "input": value}
    arguments = json.dumps({key: each for key, each in value.items() if key != "__ns"})
    return {"type": "function_call", "call_id": id_, "name": name, "arguments": arguments}


def _dump(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


def restore_summaries(requests: Iterable[RecordedRequest]) -> Iterator[RecordedRequest]:
    """Yield the requests with the summary in what Claude Code sends after a compaction."""
    summaries: dict[str | None, str] = {}
    for request in requests:
        if request.body is None:
            yield request
            continue
        client = identify_client(request.headers, request.decode())
        if client.side == "compaction" and request.answer is not None:
            text = request.answer["text"]
            inside = SUMMARY.search(text)
            summaries[client.session] = inside[1].strip() if inside else text.strip()
        body = json.dumps(request.body)
        if CONTINUED in body and client.session in summaries:
            summary = json.dumps(f"Summary:\n{summaries[client.session]}\n\n")[1:-1]
            body = body.replace(f"{CONTINUED}", f"{CONTINUED} {summary}", 1)
        yield replace(request, body=json.loads(body))


def read_expectations(table: str) -> dict[int, list[str]]:
    """Return the expected result of each request from lines such as `3-5 append a`."""
    expected: dict[int, list[str]] = {}
    for line in table.strip().splitlines():
        numbers, *words = line.split()
        first, _, last = numbers.partition("-")
        for number in range(int(first), int(last or first) + 1):
            assert number not in expected
            expected[number] = words
    return expected


class _ReplayProvider(ScriptedProvider):
    def __init__(self) -> None:
        super().__init__()
        self.reply = PlannedReply(message=None)
        self.extra_words = 0

    async def ask(self, prompt: Prompt) -> AsyncGenerator[ReplyEvent, None]:
        self.prompts.append(prompt)
        refusal = AuthenticationError("The provider refuses the request.", provider=self.name)
        reply = self.reply
        if reply.message is None:
            raise refusal
        words = WORD.findall(reply.text)
        for index, word in enumerate(words):
            if reply.is_cut and index == len(words) // 2:
                raise refusal
            yield TextDelta(text=word)
        yield ReplyFinished(message=reply.message, stop_reason="end", model="scripted")


class ReplayChecker:
    """Compares results with a table: the kind, the conversation, and its parent, by labels."""

    def __init__(self, table: str) -> None:
        self.expected = read_expectations(table)
        self.labels: dict[str, str] = {}

    def check(self, seq: int, result: Result) -> None:
        names = [self._label(one) for one in (result.conversation, result.parent) if one]
        kind, *labels = self.expected[seq]
        if result.kind in ("append", "retry", "variant", "cut"):
            names = names[:1]
        # A new label is that of the table.
        if result.conversation and not names[0]:
            assert labels[0] not in self.labels.values(), (seq, result)
            self.labels[result.conversation] = names[0] = labels[0]
        assert [result.kind, *names] == [kind, *labels], (seq, result)

    def _label(self, conversation: str) -> str:
        return self.labels.get(conversation, "")


class ClientReplay:
    """Sends requests to an engine with a store and checks what is stored after each.

    `extra_words`: how much more of a cancelled reply is stored than the client shows.
    """

    def __init__(self, store: Store, clock: Clock, *, extra_words: int = 0) -> None:
        self.store = store
        self._clock = clock
        self._extra_words = extra_words
        self._provider = _ReplayProvider()
        self._known: set[str] = set()
        numbers = count(1)
        self._engine = make_engine(
            store, self._provider, clock=clock, new_id=lambda: f"id-{next(numbers):05}"
        )
        self.unrecorded: list[CllmError] = []
        self.background: set[asyncio.Task[None]] = set()

    async def check_lists(self) -> None:
        """Side conversations are hidden from the default list, and nothing else is."""
        listed = (await self.store.list_conversations(limit=1000)).items
        everything = (await self.store.list_conversations(limit=1000, side=True)).items
        assert {one.id for one in everything} == self._known
        assert {one.id for one in listed} == {one.id for one in everything if not one.is_side}

    async def send(self, request: RecordedRequest, reply: PlannedReply) -> Result:
        """Send a request; return where it was stored."""
        prompt = request.decode()
        turn = self._prepare(prompt, request.headers)
        self._provider.reply = reply
        if turn.storage.client_history is None:
            return Result(kind="none")
        started, notices, message = await self._run(turn, reply)
        self._check_prompt(prompt)
        assert not self.unrecorded, self.unrecorded
        assert started.conversation is not None
        assert started.lease is not None
        stored = await self.store.load(started.conversation)
        assert turn.storage.client_history.family in (None, stored.family_key)
        turns = {each.id: each for each in stored.turns + stored.variants}
        own = turns[started.lease.turn.id]
        await self._check_path(prompt, stored, own, message)
        kind = await self._find_kind(stored, own)
        self._known.add(stored.id)
        parent = None if stored.parent is None else stored.parent.conversation
        return Result(kind=kind, conversation=stored.id, parent=parent, notices=tuple(notices))

    def _prepare(self, prompt: Prompt, headers: dict[str, str]) -> TurnRequest:
        base = TurnRequest(
            input=TurnInput(messages=prompt.messages, original=prompt.original),
            target=Target(
                model="scripted",
                model_is_explicit=True,
                parameters=prompt.parameters,
                dialect=prompt.dialect,
                stream=prompt.stream,
            ),
            storage=TurnStorage(system="dynamic"),
        )
        request = prepare_recorded(base, prompt, headers)
        steps = OptionalSteps(self.unrecorded.append, background=self.background)
        return request.with_storage(optional_steps=steps)

    async def _run(
        self, turn: TurnRequest, reply: PlannedReply
    ) -> tuple[TurnStarted, list[Notice], Message | None]:
        started: TurnStarted | None = None
        message: Message | None = None
        notices: list[Notice] = []
        left = self._count_words(reply)
        try:
            async with aclosing(self._engine.run_turn(turn)) as events:
                async for event in events:
                    if isinstance(event, TurnStarted):
                        started = event
                    elif isinstance(event, Noticed):
                        notices.append(event.notice)
                    elif isinstance(event, TurnEnded):
                        message = event.reply.message
                    elif isinstance(event, TextDelta) and left is not None:
                        left -= 1
                        if left <= 0:
                            break
        except AuthenticationError:
            assert reply.message is None or reply.is_cut
        assert started is not None
        return started, notices, message

    def _count_words(self, reply: PlannedReply) -> int | None:
        if reply.shown is None:
            return None
        return len(WORD.findall(reply.shown)) + self._extra_words

    def _check_prompt(self, prompt: Prompt) -> None:
        """The provider gets the client's messages."""
        sent = self._provider.prompts[-1]
        assert _all_messages(sent) == _all_messages(prompt)

    async def _check_path(
        self, prompt: Prompt, stored: StoredConversation, own: Turn, reply: Message | None
    ) -> None:
        """The stored path is the client's transcript and the reply, each message once."""
        path = await self._find_path(stored, own)
        if own.state != "failed" and stored.turns:
            assert own.id == stored.turns[-1].id
        expected = summarise_messages(prompt.messages)
        actual = summarise_messages(path)
        if reply is not None:
            expected += summarise_messages([reply])
        else:
            # The part of the reply that was stored.
            partial = [one for one in own.messages[-1:] if one.role == "assistant"]
            expected += summarise_messages(partial)
        assert actual == expected

    async def _find_path(self, stored: StoredConversation, own: Turn) -> list[Message]:
        path: list[Message] = []
        if stored.path_start is not None:
            assert stored.parent is not None
            parent = await self.store.load(stored.parent.conversation)
            path += _history(parent)[: stored.parent.sequence]
        for turn in stored.turns:
            if turn.place == own.place:
                break
            path += turn.messages if turn.is_history else ()
        return [*path, *own.messages]

    async def _find_kind(self, stored: StoredConversation, own: Turn) -> str:
        if stored.id not in self._known:
            if stored.parent is None:
                return "side" if stored.is_side else "new"
            parent = await self.store.load(stored.parent.conversation)
            kind = stored.parent.kind
            assert stored.is_side or kind != "side"
            if kind == "branch" and parent.family_key != stored.family_key:
                return "fork"
            assert kind == "side" or parent.family_key == stored.family_key
            return kind
        others = [one for one in (*stored.turns, *stored.variants) if one.place == own.place]
        if len(others) > 1:
            same = any(_input(one) == _input(own) for one in others if one.id != own.id)
            return "retry" if same else "variant"
        # A turn without a model is the client's part of a reply that was added before this turn.
        places = [one.place for one in stored.turns]
        index = places.index(own.place)
        before = stored.turns[index - 1] if index else own
        is_cut = before.state == "incomplete" and before.model is None
        return "cut" if is_cut and before.id != own.id else "append"


def _input(turn: Turn) -> list[tuple[str, str]]:
    messages = list(turn.messages)
    if messages and messages[-1].role == "assistant":
        messages.pop()
    return summarise_messages(messages)


def _history(conversation: StoredConversation) -> list[Message]:
    return [one for turn in conversation.turns for one in turn.messages]


def _all_messages(prompt: Prompt) -> list[Message]:
    return [one for one in (prompt.system, *prompt.messages) if one is not None]


def summarise_messages(messages: Iterable[Message]) -> list[tuple[str, str]]:
    """Return what a transcript contains, in order, without formats and injected pairs."""
    pieces: list[tuple[str, str]] = []
    is_injected = False
    for one in messages:
        if one.role == "system":
            continue
        own = list(_summarise_message(one))
        if is_injected and one.role == "assistant":
            is_injected = False
            continue
        is_injected = one.role == "user" and any(text.startswith(INJECTED) for _, text in own)
        pieces += [] if is_injected else own
    return pieces


def _summarise_message(message: Message) -> Iterator[tuple[str, str]]:
    parts = parts_of(message)
    if message.role == "assistant":
        text = "".join(part.text for part in parts if isinstance(part, Text | Refusal))
        if text.strip():
            yield "assistant", " ".join(text.split())
        yield from (("call", part.id) for part in parts if isinstance(part, ToolCall))
        return
    for part in parts:
        if isinstance(part, Text):
            text = part.text.strip()
            if text and not text.startswith(REMINDER):
                yield "user", text
        elif isinstance(part, ToolResult):
            yield "result", part.call_id

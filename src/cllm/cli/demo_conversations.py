"""The example conversations of `cllm demo`, from `demo_conversations.yml`.

The file has the texts. Times are days before now (`ago`); token counts are estimated from the
texts and `base` (the tokens of an agent's tools and system prompt); costs come from the price
table, so that the usage view shows plausible figures.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from importlib import resources
from typing import Any, Literal

import msgspec
import yaml

from cllm.core.conversation import (
    INTERRUPTION,
    Branch,
    Policy,
    StoredConversation,
    SystemRecord,
    Turn,
    TurnFailure,
    WindowRecord,
)
from cllm.core.message import Dialect, Message, plain_message
from cllm.core.ports import Opening
from cllm.core.reply import Usage
from cllm.history.context import (
    CommandOutcome,
    ContextCommand,
    ContextPlan,
    gather_context,
)
from cllm.history.system_prompt import GivenPrompt, build_captured_opening
from cllm.window.tokens import estimate_tokens, weights_for

FILE = "demo_conversations.yml"
NAMESPACE = uuid.UUID("3d1f5a0e-6f0b-5c3e-9a54-0c5b8f1f7d11")
CACHING_PROVIDERS = ("anthropic", "openai")
MIN_CACHED_TOKENS = 1024
PAUSE = timedelta(minutes=2)
"""The time that the user needs between two turns."""
TOKENS_PER_SECOND = 70

WEATHER = ("rain from the west", "fog until noon", "clear and cold", "wind, no boats out", "snow")
EVENTS = (
    "we followed the coast road and met nobody",
    "Tobb repaired the axle of the cart, and Mira hunted",
    "a fisherman sold us salted herring and asked about the lighthouse",
    "Quill saw a light at sea that was gone before we reached the cliff",
)

Price = Callable[[str, str, Usage, datetime], float | None]
"""The cost of a call: provider, model, usage, time."""


class DemoStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call and its result."""

    call: str
    input: dict[str, Any]
    output: str


class DemoVariant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reply: str
    model: str | None = None


class DemoTurn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`image` is a PNG in base64. `failure` is a code and a message.

    `log_days` is the number of generated lines after the text, for a prompt that is too long.
    """

    user: str
    log_days: int = 0
    reply: str = ""
    thinking: str = ""
    steps: tuple[DemoStep, ...] = ()
    image: str | None = None
    variants: tuple[DemoVariant, ...] = ()
    state: Literal["complete", "incomplete", "failed"] = "complete"
    failure: tuple[str, str] | None = None


class DemoContext(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    command: str
    output: str
    exit_code: int = 0


class DemoConversation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`window` is the number of earlier messages that a turn sends at most.

    `branch_of` is the name of an earlier conversation, whose messages up to `at` are copied.
    """

    name: str
    title: str
    ago: float
    turns: tuple[DemoTurn, ...]
    model: str | None = None
    source: str | None = None
    policy: Policy = "captured"
    system: str | None = None
    context: tuple[DemoContext, ...] = ()
    base: int = 0
    window: int | None = None
    pins: tuple[int, ...] = ()
    archived: bool = False
    branch_of: str | None = None
    at: int = 0


def read_demo_file() -> list[DemoConversation]:
    text = resources.files("cllm.cli").joinpath(FILE).read_text(encoding="utf-8")
    return msgspec.convert(yaml.safe_load(text), list[DemoConversation])


def build_demo_conversations(now: datetime, price: Price) -> list[StoredConversation]:
    """Return the conversations, each after the one that it is a branch of."""
    built: dict[str, StoredConversation] = {}
    for demo in read_demo_file():
        parent = None if demo.branch_of is None else built[demo.branch_of]
        built[demo.name] = _Builder(demo, parent, now=now, price=price).build()
    return list(built.values())


def _make_id(*names: str) -> str:
    return str(uuid.uuid5(NAMESPACE, "/".join(names)))


class _Builder:
    """Builds one conversation; `_time` advances from turn to turn."""

    def __init__(
        self,
        demo: DemoConversation,
        parent: StoredConversation | None,
        *,
        now: datetime,
        price: Price,
    ) -> None:
        self._demo = demo
        self._parent = parent
        self._price = price
        self._model = demo.model or (None if parent is None else parent.model) or ""
        self._end = now - timedelta(days=demo.ago)
        self._time = self._end
        self._turns: list[Turn] = []
        self._variants: list[Turn] = []
        self._cached = 0
        """Tokens of the last prompt, which the provider's cache has."""

    def build(self) -> StoredConversation:
        demo, parent = self._demo, self._parent
        if parent is not None:
            self._turns = list(_take_messages(parent.turns, demo.at))
        opening = self._build_opening()
        duration = sum(map(_guess_duration, demo.turns), timedelta())
        self._time = started = self._end - duration - PAUSE * (len(demo.turns) - 1)
        for number, turn in enumerate(demo.turns):
            self._add_turn(turn, number, opening)
            self._time += PAUSE
        return StoredConversation(
            id=_make_id(demo.name),
            title=demo.title,
            model=self._model,
            created_at=started,
            updated_at=self._end,
            system=opening.system,
            system_record=opening.system_record,
            context_record=opening.context_record,
            turns=tuple(self._turns),
            variants=tuple(self._variants),
            pins=demo.pins,
            parent=None if parent is None else Branch(conversation=parent.id, sequence=demo.at),
            family=None if parent is None else parent.id,
            source=demo.source if parent is None else parent.source,
            archived_at=self._end if demo.archived else None,
        )

    def _build_opening(self) -> Opening:
        demo = self._demo
        if demo.policy != "captured":
            return Opening(system=None, system_record=SystemRecord(policy=demo.policy))
        outcomes = tuple(map(_build_outcome, demo.context))
        plan = ContextPlan(captured=tuple(outcome.command for outcome in outcomes))
        prompt = GivenPrompt(text=demo.system, source="Cllmfile.yml: default_system_message")
        context = gather_context(plan, outcomes)
        return build_captured_opening(prompt, now=self._end, context=context)

    def _add_turn(self, demo: DemoTurn, number: int, opening: Opening) -> None:
        turn_id = _make_id(self._demo.name, str(number))
        provider = self._model.partition("/")[0]
        dialect: Dialect = "anthropic" if provider == "anthropic" else "openai"
        messages = tuple(_build_messages(demo, dialect, turn_id))
        turn = Turn(
            id=turn_id,
            place=turn_id,
            state=demo.state,
            messages=messages,
            started_at=self._time,
            model=self._model,
            provider=provider,
        )
        turn = self._finish(turn, demo, opening)
        if demo.state == "incomplete":
            turn = msgspec.structs.replace(turn, failure=INTERRUPTION)
        if demo.failure is not None:
            code, message = demo.failure
            failure = TurnFailure(code=code, message=message)
            turn = msgspec.structs.replace(turn, failure=failure, usage=None, cost=None)
        for index, variant in enumerate(demo.variants):
            self._add_variant(turn, variant, index, opening)
        self._turns.append(turn)
        self._time = turn.ended_at or self._time

    def _add_variant(self, turn: Turn, variant: DemoVariant, index: int, opening: Opening) -> None:
        model = variant.model or self._model
        reply = plain_message("assistant", variant.reply)
        other = msgspec.structs.replace(
            turn,
            id=_make_id(turn.id, str(index)),
            messages=(*turn.asked, reply),
            model=model,
            provider=model.partition("/")[0],
        )
        finished = self._finish(other, DemoTurn(user="", reply=variant.reply), opening)
        self._variants.append(finished)

    def _finish(self, turn: Turn, demo: DemoTurn, opening: Opening) -> Turn:
        """Add the window, the usage, the cost and the end of a turn."""
        weights = weights_for(turn.provider or "")
        before = [message for each in self._turns if each.is_history for message in each.messages]
        first = 1
        if self._demo.window is not None:
            first = max(1, len(before) - self._demo.window + 1)
        # A pinned message stays in the prompt with its reply.
        pinned = {number for pin in self._demo.pins for number in (pin, pin + 1)}
        numbered = enumerate(before, 1)
        history = [message for number, message in numbered if number >= first or number in pinned]
        left_out = len(before) - len(history)
        head = () if opening.system is None else (opening.system,)
        sent = [*head, *history, *turn.asked]
        prompt = self._demo.base + sum(estimate_tokens(message, weights) for message in sent)
        usage, call = Usage(), Usage()
        for message in turn.messages[len(turn.asked) :]:
            tokens = estimate_tokens(message, weights)
            if message.role == "assistant":
                call = self._count_call(turn.provider, prompt, tokens, bool(demo.thinking))
                usage += call
            prompt += tokens
        started = turn.started_at
        ended = started + _guess_duration(demo)
        provider, _, name = (turn.model or "").partition("/")
        return msgspec.structs.replace(
            turn,
            ended_at=ended,
            usage=usage,
            cost=self._price(provider, name, usage, ended),
            window=WindowRecord(
                first_sequence=first,
                sent_messages=len(sent) - len(head),
                left_out_messages=left_out,
                counted=call.prompt,
            ),
        )

    def _count_call(
        self, provider: str | None, prompt: int, output: int, is_thinking: bool
    ) -> Usage:
        cached = 0
        if provider in CACHING_PROVIDERS and self._cached >= MIN_CACHED_TOKENS:
            cached = min(self._cached, prompt)
        self._cached = prompt
        writes = provider == "anthropic" and prompt >= MIN_CACHED_TOKENS
        return Usage(
            input=0 if writes else prompt - cached,
            cache_read=cached,
            cache_write=prompt - cached if writes else 0,
            output=output,
            reasoning=output // 2 if is_thinking and provider == "openai" else 0,
        )


def _take_messages(turns: Sequence[Turn], count: int) -> Iterator[Turn]:
    """Yield the turns with the first `count` messages."""
    for turn in turns:
        if count <= 0:
            return
        yield turn
        count -= len(turn.messages)


def _guess_duration(demo: DemoTurn) -> timedelta:
    characters = len(demo.reply) + len(demo.thinking) + 240 * len(demo.steps)
    return timedelta(seconds=round(0.6 + characters / 4 / TOKENS_PER_SECOND, 2))


def _build_outcome(demo: DemoContext) -> CommandOutcome:
    command = ContextCommand(name=demo.name, command=demo.command, template=demo.command)
    return CommandOutcome(
        command=command,
        state="failed" if demo.exit_code else "ok",
        output=demo.output,
        exit_code=demo.exit_code,
    )


def _build_messages(demo: DemoTurn, dialect: Dialect, turn_id: str) -> Iterator[Message]:
    yield _build_user_message(demo)
    thinking = demo.thinking
    for number, step in enumerate(demo.steps):
        call_id = f"call_{turn_id[:8]}{number}"
        if dialect == "anthropic":
            yield from _build_anthropic_round(step, call_id, thinking)
        else:
            yield from _build_openai_round(step, call_id, thinking)
        thinking = ""
    if not demo.reply:
        return
    if dialect == "anthropic":
        content = [*_build_thinking_blocks(thinking), {"type": "text", "text": demo.reply}]
        yield _encode("assistant", {"content": content}, dialect)
    else:
        yield _encode("assistant", {"content": demo.reply, **_build_reasoning(thinking)}, dialect)


def _build_user_message(demo: DemoTurn) -> Message:
    if demo.image is None:
        lines = (f"- {describe_day(day)}" for day in range(1, demo.log_days + 1))
        return plain_message("user", "\n".join((demo.user, *lines)))
    url = f"data:image/png;base64,{demo.image}"
    image = {"type": "image_url", "image_url": {"url": url}}
    return _encode("user", {"content": [{"type": "text", "text": demo.user}, image]}, "openai")


def describe_day(day: int) -> str:
    """Return a line of the log of a journey."""
    weather, event = WEATHER[day % len(WEATHER)], EVENTS[day % len(EVENTS)]
    return f"Day {day}: {weather}; {event}. Supplies for {max(1, 90 - day)} days."


def _build_anthropic_round(step: DemoStep, call_id: str, thinking: str) -> Iterator[Message]:
    call = {"type": "tool_use", "id": call_id, "name": step.call, "input": step.input}
    content = [*_build_thinking_blocks(thinking), call]
    yield _encode("assistant", {"content": content}, "anthropic")
    result = {"type": "tool_result", "tool_use_id": call_id, "content": step.output}
    yield _encode("user", {"content": [result]}, "anthropic")


def _build_openai_round(step: DemoStep, call_id: str, thinking: str) -> Iterator[Message]:
    arguments = msgspec.json.encode(step.input).decode()
    call = {
        "id": call_id,
        "type": "function",
        "function": {"name": step.call, "arguments": arguments},
    }
    fields = {"content": None, "tool_calls": [call], **_build_reasoning(thinking)}
    yield _encode("assistant", fields, "openai")
    yield _encode("tool", {"tool_call_id": call_id, "content": step.output}, "openai")


def _build_thinking_blocks(thinking: str) -> list[dict[str, str]]:
    block = {"type": "thinking", "thinking": thinking, "signature": "demo"}
    return [block] if thinking else []


def _build_reasoning(thinking: str) -> dict[str, str]:
    return {"reasoning_content": thinking} if thinking else {}


def _encode(
    role: Literal["user", "assistant", "tool"], fields: dict[str, Any], dialect: Dialect
) -> Message:
    return Message(role=role, raw=msgspec.json.encode({"role": role, **fields}), dialect=dialect)

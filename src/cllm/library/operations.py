"""Operations on a stored conversation that call no model."""

from typing import Literal

import msgspec

from cllm.app import new_id, now
from cllm.core.conversation import Policy, StandingSummary, StoredConversation, WindowRecord
from cllm.core.errors import WindowTooSmallError
from cllm.core.message import Message
from cllm.core.ports import NewConversation, Store, TurnStart, UsageSum
from cllm.core.prompt import Prompt
from cllm.core.reply import Usage, sum_costs
from cllm.engine.prompt_builder import trim_to_window
from cllm.engine.prompt_history import ModelContext, index_message
from cllm.history.system_prompt import GivenPrompt, choose_system
from cllm.library.arguments import check_text
from cllm.stores.usage import list_calls
from cllm.window.strategies import Strategy
from cllm.window.turn_index import TurnIndex
from cllm.wire.conversation_file.codec import decode_conversation


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    messages: tuple[Message, ...] = ()
    record: WindowRecord = WindowRecord(first_sequence=1, sent_messages=0)
    turns: int = 0
    is_answered: bool = False


def find_window(
    conversation: StoredConversation, strategy: Strategy, model_context: ModelContext
) -> Seen:
    """Return the next window; everything loaded if the required part does not fit."""
    history = tuple(
        message for turn in conversation.turns if turn.is_history for message in turn.messages
    )
    first = conversation.first_sequence
    record = WindowRecord(
        first_sequence=first, sent_messages=len(history), left_out_messages=first - 1
    )
    prompt = Prompt(
        model=model_context.model,
        system=conversation.kept_prompt,
        messages=history,
        window=record,
    )
    try:
        trimmed = trim_to_window(prompt, conversation, strategy, model_context=model_context)
    except WindowTooSmallError:
        trimmed = prompt
    turn_index = index_messages(trimmed.messages)
    return Seen(
        messages=trimmed.messages,
        record=trimmed.window or record,
        turns=max(0, len(turn_index.turns) - (not turn_index.is_answered)),
        is_answered=turn_index.is_answered,
    )


def index_messages(messages: tuple[Message, ...]) -> TurnIndex:
    return TurnIndex(map(index_message, messages))


def sum_usage(conversation: StoredConversation) -> UsageSum:
    """Return the usage of all calls and summaries, including replaced summaries."""
    calls = [(call.usage, call.cost) for call in list_calls(conversation)]
    summary: StandingSummary | None = conversation.summary
    while summary is not None:
        if summary.usage is not None:
            calls.append((summary.usage, summary.cost))
        summary = summary.before
    return UsageSum(
        key=conversation.id,
        calls=len(calls),
        usage=sum((usage for usage, _ in calls), start=Usage()),
        cost=sum_costs(cost for _, cost in calls),
        unpriced=sum(cost is None for _, cost in calls),
    )


ExportFormat = Literal["json", "markdown"]


class _ExportedId(msgspec.Struct):
    id: str


def decode_export(exported: str | bytes) -> StoredConversation:
    data = exported
    if not isinstance(data, bytes):
        data = check_text("The export", data).encode()
    try:
        ref = msgspec.json.decode(data, type=_ExportedId).id
    except (msgspec.DecodeError, UnicodeDecodeError):
        ref = ""  # decode_conversation reports invalid data
    stored = decode_conversation(data, conversation_id=ref, path="the export", modified_at=now())
    return stored.conversation


async def add_message(
    store: Store,
    message: Message,
    *,
    new: NewConversation,
    prompt: GivenPrompt,
    policy: Policy,
    window: WindowRecord | None = None,
) -> None:
    """Save one message as a turn without a call."""
    start = TurnStart(id=new_id(), messages=(message,), visible=False)
    lease = await store.begin_turn(new.id, start, create=new, wait=None, tail="window")
    try:
        choice = choose_system(lease.conversation, prompt, new_policy=policy, now=now())
    except BaseException:
        await store.drop_turn(lease)
        raise
    turn = msgspec.structs.replace(lease.turn, state="complete", ended_at=now(), window=window)
    await store.finish_turn(lease, turn, opening=choice.opening)

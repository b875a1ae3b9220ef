"""Operations on a stored conversation: its next window, its totals, exports, and added messages.

They call no model.
"""

from typing import Literal, get_args

import msgspec

from cllm.app import new_id, now
from cllm.assembly.system import GivenPrompt, choose_system
from cllm.assembly.window import Strategy
from cllm.assembly.window.ledger import Ledger
from cllm.core.conversation import Conversation, Policy, StandingSummary, WindowRecord
from cllm.core.errors import WindowTooSmallError
from cllm.core.message import Message
from cllm.core.ports import NewConversation, Store, TurnStart, UsageSum
from cllm.core.prompt import Prompt
from cllm.core.reply import Usage
from cllm.engine.log import Served, item_for
from cllm.engine.prompt_builder import cut_to_window
from cllm.library.given import check_choice, check_text
from cllm.stores.lists import calls_of
from cllm.wire.conversation_file.codec import decode_conversation, encode_conversation
from cllm.wire.conversation_file.transcript import encode_markdown, transcript_of


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a window, where it begins, and how many answered turns are in it.

    It is answered if the assistant said the last of it, and waits for nothing.
    """

    messages: tuple[Message, ...] = ()
    record: WindowRecord = WindowRecord(first_sequence=1, sent_messages=0)
    turns: int = 0
    is_answered: bool = False


def look(conversation: Conversation, strategy: Strategy, served: Served) -> Seen:
    """The window as it is now; all that was loaded, if what has to be sent does not fit.

    To look is not to ask: the turn itself is refused.
    """
    history = tuple(
        message for turn in conversation.turns if turn.is_history for message in turn.messages
    )
    first = conversation.first_sequence
    record = WindowRecord(
        first_sequence=first, sent_messages=len(history), left_out_messages=first - 1
    )
    prompt = Prompt(
        model=served.model,
        system=conversation.kept_prompt,
        messages=history,
        window=record,
    )
    try:
        cut = cut_to_window(prompt, conversation, strategy, served=served)
    except WindowTooSmallError:
        cut = prompt
    ledger = ledger_of(cut.messages)
    return Seen(
        messages=cut.messages,
        record=cut.window or record,
        turns=max(0, len(ledger.turns) - (not ledger.is_answered)),
        is_answered=ledger.is_answered,
    )


def ledger_of(messages: tuple[Message, ...]) -> Ledger:
    """Where the turns of these messages begin; their tokens are not counted."""
    return Ledger(map(item_for, messages))


def total(conversation: Conversation) -> UsageSum:
    """What a conversation used in all; summaries that were replaced cost something as well."""
    spent = [(call.usage, call.cost) for call in calls_of(conversation)]
    summary: StandingSummary | None = conversation.summary
    while summary is not None:
        if summary.usage is not None:
            spent.append((summary.usage, summary.cost))
        summary = summary.before
    return UsageSum(
        key=conversation.id,
        calls=len(spent),
        usage=sum((usage for usage, _ in spent), start=Usage()),
        cost=sum(cost for _, cost in spent if cost is not None),
        unpriced=sum(cost is None for _, cost in spent),
    )


ExportFormat = Literal["json", "markdown"]


def check_form(form: ExportFormat) -> ExportFormat:
    return check_choice("form", form, get_args(ExportFormat))


def encode_export(conversation: Conversation, form: ExportFormat) -> str:
    """The conversation file, or Markdown to read."""
    if form == "markdown":
        return encode_markdown(transcript_of(conversation))
    return encode_conversation(conversation).decode()


def decode_export(exported: str | bytes) -> Conversation:
    """The conversation of a file that was exported; an error if it is none."""
    data = exported
    if not isinstance(data, bytes):
        data = check_text("The export", data).encode()
    stored = decode_conversation(
        data,
        conversation_id=_id_in(data),
        path="the export",
        modified_at=now(),
    )
    return stored.conversation


class _Named(msgspec.Struct):
    id: str


def _id_in(data: bytes) -> str:
    """The id that an export says it has; the reading itself complains about what is none."""
    try:
        return msgspec.json.decode(data, type=_Named).id
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


async def add_message(
    store: Store,
    message: Message,
    *,
    new: NewConversation,
    given: GivenPrompt,
    policy: Policy,
    window: WindowRecord | None = None,
) -> None:
    """Keep one message as a turn of its own, of which no model was asked anything.

    Messages that follow one another are one turn to a window, whoever stored them.
    """
    start = TurnStart(id=new_id(), messages=(message,), visible=False)
    lease = await store.begin_turn(new.id, start, create=new, wait=None, tail="window")
    try:
        choice = choose_system(lease.conversation, given, new_policy=policy, now=now())
    except BaseException:
        await store.drop_turn(lease)
        raise
    done = msgspec.structs.replace(lease.turn, state="complete", ended_at=now(), window=window)
    await store.finish_turn(lease, done, opening=choice.opening)

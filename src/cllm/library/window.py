"""What of a conversation its next window has, looked at between two turns.

The same plan as that of a turn, with nothing said yet. Asks nobody and changes nothing.
"""

import msgspec

from cllm.assembly.window import Ledger, Strategy
from cllm.core.conversation import Conversation, WindowRecord
from cllm.core.errors import WindowTooSmallError
from cllm.core.message import Message
from cllm.core.prompt import Prompt
from cllm.engine.log import Served, item_for
from cllm.engine.windowing import cut_to_window


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

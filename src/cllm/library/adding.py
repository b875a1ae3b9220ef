"""Keeping a message that no model was asked about."""

import msgspec

from cllm.app import new_id, now
from cllm.assembly.system import GivenPrompt, choose_system
from cllm.core.conversation import Policy, WindowRecord
from cllm.core.message import Message
from cllm.core.ports import NewConversation, Store, TurnStart


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

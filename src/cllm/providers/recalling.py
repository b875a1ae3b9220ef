"""Knows how a conversation was sent, so that the next request goes on from there.

An agent sends its whole history with every request, and all but the newest of it was translated for
the request before. Where every message is said by itself, whatever stands beside it, and the
history is in order, what was sent then is what is sent now, and the new messages are put behind it.
A history in which anything has to be changed is not known here; it goes the long way, and one that
is known would come to the same bytes there.

Only what clients send is remembered, and no short request, which is soon written anew: what is
asked once, from a shell, leaves nothing behind. What is remembered is found by the messages
themselves, so nobody is told what another one said.
"""

from collections.abc import Sequence
from functools import partial

import msgspec

from cllm.core.message import Message
from cllm.core.prompt import Prompt
from cllm.providers.mending import Mending
from cllm.wire import beginnings
from cllm.wire.history import History, size_of
from cllm.wire.malformed import MalformedError
from cllm.wire.memo import Memo
from cllm.wire.openai_glance import is_legacy
from cllm.wire.openai_legacy import FUNCTION_CALL
from cllm.wire.translate import HistoryDialect, history_codec, spoken_for

MARK = b'"cache_control"'
MEMO_BYTES = 5_000_000
ENTRY_BYTES = 1_000
"""What a conversation takes beside all that can be of any length."""
LOOKED_BACK = 12
"""Messages; a request has mostly no more new ones than a reply and the results of its calls."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that were sent, and as what; without a history they have to be looked at again.

    `size` is what the messages take, as they came and as they were sent.
    """

    messages: tuple[Message, ...]
    history: History | None
    size: int


Key = tuple[str, int]
remembered: Memo[Key, Told] = Memo(MEMO_BYTES)
"""By the last of the messages, as the object it is: `Told` has it as well, and keeps it alive."""


class Recalling:
    """Recalls what was sent to one model; what is new is put in order by one mending."""

    def __init__(self, target: HistoryDialect, model: str, mending: Mending) -> None:
        self._target = target
        self._model = model
        self._mending = mending
        # To the others a message is the same whichever of their models is asked.
        self._kind = f"{target} {model}" if target == "bedrock" else str(target)

    def __call__(self, prompt: Prompt) -> History | None:
        """The history as it is sent; None if it has to be looked at."""
        if prompt.original is None or len(prompt.original.body) < beginnings.SHORTEST:
            return None
        if prompt.foreign or self._is_own(prompt):
            return None
        lead = 0 if self._target == "openai" else _system_messages(prompt)
        messages = prompt.messages[lead:]
        # A client's marks move with the end: where they stood, the next request has other bytes.
        if not messages or MARK in messages[-1].raw:
            return None
        told = self._told(messages)
        new = messages if told is None else messages[len(told.messages) :]
        history = self._said(new, told)
        if new:
            self._remember(messages, history, told)
        return None if history is None else history.led_by(prompt.messages[:lead])

    def _is_own(self, prompt: Prompt) -> bool:
        """Whether it is OpenAI's and for OpenAI, which has a shorter way yet."""
        own = prompt.dialect == "openai" or (prompt.system and prompt.system.dialect == "openai")
        return self._target == "openai" and bool(own)

    def _told(self, messages: tuple[Message, ...]) -> Told | None:
        """What was sent of these messages, from the first on."""
        for count in range(len(messages), max(len(messages) - LOOKED_BACK, 0), -1):
            told = remembered.get((self._kind, id(messages[count - 1])))
            if told is not None and told.messages == messages[:count]:
                return told
        return None

    def _said(self, new: tuple[Message, ...], told: Told | None) -> History | None:
        """All of it as it is sent, if what is new stands by itself and in order."""
        before = None if told is None else told.history
        if told is not None and (before is None or not new):
            return before
        more = self._looked_at(new, goes_on=before is not None)
        return more if more is None or before is None else before.followed_by(more)

    def _looked_at(self, messages: Sequence[Message], *, goes_on: bool) -> History | None:
        """The messages as they are sent, if each stands by itself and all are in order."""
        if is_legacy(messages) or any(map(_is_of_another_place, messages)):
            return None
        codec = history_codec(self._target)
        order = partial(self._mending.ordered, goes_on=goes_on)
        try:
            spoken = [spoken_for(message, self._target) for message in messages]
            # A field beside the parts is sent by some and told of by others, which is not for here.
            if any(one.extra for one in spoken):
                return None
            return codec.say_history(spoken, model=self._model, order=order)
        except MalformedError:
            return None

    def _remember(
        self, messages: tuple[Message, ...], history: History | None, told: Told | None
    ) -> None:
        """Keep what is sent in the place of what was."""
        # Behind the beginning of an answer the next request does not go on.
        if history is not None and history.ends[-1].role == "assistant":
            return
        size, known = 0, 0
        if told is not None:
            size, known = told.size, len(told.messages)
            remembered.forget((self._kind, id(told.messages[-1])))
        # What is sent of a message is about as long as what came.
        new = messages[known:]
        size += size_of(new) + sum([len(message.raw) for message in new])
        kept = Told(messages=messages, history=history, size=size)
        beside = 0 if history is None else history.size_beside
        remembered.put((self._kind, id(messages[-1])), kept, ENTRY_BYTES + size + beside)


def _is_of_another_place(message: Message) -> bool:
    """Whether it is sent in another place or form than the one it has."""
    return message.role == "system" or FUNCTION_CALL in message.raw


def _system_messages(prompt: Prompt) -> int:
    """How many messages of the system's a prompt begins with."""
    return next((n for n, m in enumerate(prompt.messages) if m.role != "system"), 0)

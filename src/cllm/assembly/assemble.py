"""History, system prompt and what is said now become one prompt. The same in, the same out."""

from typing import Any

from cllm.assembly.system import NO_CONTEXT, Context, SystemChoice, with_context
from cllm.core.conversation import Conversation, Turn, WindowRecord
from cllm.core.message import Dialect, Message
from cllm.core.notice import Notice
from cllm.core.prompt import Continuity, Original, Prompt


def assemble(
    conversation: Conversation | None,
    said: tuple[Message, ...],
    *,
    system: SystemChoice,
    context: Context = NO_CONTEXT,
    notices: tuple[Notice, ...] = (),
    model: str,
    asked_model: str | None = None,
    said_to: str | None = None,
    parameters: dict[str, Any],
    dialect: Dialect = "openai",
    strict: bool = False,
    original: Original | None = None,
    stream: bool,
    cache_key: str | None = None,
    place: str | None = None,
    kept: bool = True,
) -> Prompt:
    """The prompt of the next turn. At a `place` that is answered anew, what came before it is sent.

    `model` is the model's name at its provider, `asked_model` the one that turns are kept with.
    `said_to` is the model that what is said now was meant for, if it is another: what it holds of
    that one's thinking is not this one's. Of the context, what is for this turn goes in front of
    the newest user text. The conversation goes on with what is said now only if it is `kept`.
    """
    turns = () if conversation is None else conversation.history(before=place)
    history = tuple([message for turn in turns for message in turn.messages])
    left_out = 0 if conversation is None else conversation.message_count - len(history)
    told = with_context(said, context.now)
    return Prompt(
        model=model,
        system=system.message,
        messages=history + told,
        parameters=parameters,
        dialect=dialect,
        strict=strict,
        original=original,
        stream=stream,
        cache_key=cache_key,
        foreign=_foreign(turns, asked_model or model)
        | _meant_for_another(len(history), said, said_to, asked_model or model),
        window=WindowRecord(
            first_sequence=1 if conversation is None else conversation.first_sequence,
            sent_messages=len(history) + len(said),
            left_out_messages=left_out,
        ),
        continuity=None
        if conversation is None
        else _continuity(turns, passing=_changed(said, told) if kept else len(said), said=said),
        notices=notices + system.notices + context.notices,
    )


def _continuity(turns: tuple[Turn, ...], *, passing: int, said: tuple[Message, ...]) -> Continuity:
    """How the prompt stands to the last one and the next.

    The last prompt had all of the last turn but its reply; if a context of its own stood before
    that, nothing of the turn stands where it stood.
    """
    if not turns:
        return Continuity(fresh=len(said), passing=passing)
    last = turns[-1]
    told = last.window is not None and last.window.context > 0
    answered = bool(last.messages) and last.messages[-1].role == "assistant"
    return Continuity(fresh=len(said) + (len(last.messages) if told else answered), passing=passing)


def _changed(said: tuple[Message, ...], told: tuple[Message, ...]) -> int:
    """How many of the last messages begin with one that is kept as another than it is sent."""
    pairs = enumerate(zip(said, told, strict=True))
    return next((len(said) - place for place, (kept, sent) in pairs if kept is not sent), 0)


def _foreign(turns: tuple[Turn, ...], model: str) -> frozenset[int]:
    """The positions of what another model wrote, as far as the turns say who did."""
    if {turn.model for turn in turns} <= {None, model}:
        return frozenset()
    positions: set[int] = set()
    start = 0
    for turn in turns:
        end = start + len(turn.messages)
        if turn.model is not None and _own_name(turn.model) != _own_name(model):
            positions.update(range(start, end))
        start = end
    return frozenset(positions)


def _meant_for_another(
    start: int, said: tuple[Message, ...], said_to: str | None, model: str
) -> frozenset[int]:
    if said_to is None or _own_name(said_to) == _own_name(model):
        return frozenset()
    return frozenset(range(start, start + len(said)))


def _own_name(model: str) -> str:
    """The model's name without the provider's, with and without which it can be asked for."""
    return model.rpartition("/")[2]

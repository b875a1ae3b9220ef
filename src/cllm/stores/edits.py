"""Edits of a conversation, for every store: functions that return a changed copy.

A finished turn that leaves the default path becomes a variant. No I/O, no clock.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice, takewhile

import msgspec

from cllm.core.conversation import (
    CANCELLATION,
    INTERRUPTION,
    MAX_TITLE_MESSAGES,
    Branch,
    StandingSummary,
    StoredConversation,
    Turn,
    TurnFailure,
    WindowRecord,
    choose_title,
    find_running,
    find_turn,
    make_branch_title,
)
from cllm.core.errors import (
    ConversationBusyError,
    SequenceNotFoundError,
    TurnNotFoundError,
    UsageError,
)
from cllm.core.message import plain_message
from cllm.core.ports import Changes, Lease, NewConversation, Opening, TurnStart

EventsOf = Callable[[str], Sequence[bytes]]
"""The stream events of a turn, by its id."""
replace = msgspec.structs.replace


def build_conversation(
    new: NewConversation, *, key: str, owner: str, now: datetime
) -> StoredConversation:
    """Return an empty conversation under the id `key`; a name equal to it is not stored."""
    conversation = StoredConversation(
        id=key,
        owner=owner,
        name=None if new.name == key else new.name,
        title=new.title,
        model=new.model,
        created_at=now,
        updated_at=now,
        metadata=dict(new.metadata),
        parent=new.parent,
        family=new.family,
        source=new.source,
        is_side=new.is_side,
        path_start=new.path_start,
    )
    return with_opening(conversation, new.opening)


def prepare_conversation(
    conversation: StoredConversation, *, owner: str, now: datetime | None
) -> StoredConversation:
    """Return the conversation to insert, created `now`; UsageError if two turns share an id."""
    seen: set[str] = set()
    for turn in (*conversation.turns, *conversation.variants):
        if turn.id in seen:
            raise duplicate_turn_error(conversation.id, turn.id)
        seen.add(turn.id)
    if now is not None:
        conversation = replace(conversation, created_at=now, updated_at=now)
    return mark_interrupted(replace(conversation, owner=owner))


def with_opening(conversation: StoredConversation, opening: Opening | None) -> StoredConversation:
    if opening is None or not conversation.is_untouched:
        return conversation
    return replace(
        conversation,
        system=opening.system,
        system_record=opening.system_record,
        context_record=opening.context_record,
    )


def lease_with_opening(lease: Lease, opening: Opening) -> Lease:
    return replace(lease, conversation=with_opening(lease.conversation, opening))


def is_old(conversation: StoredConversation) -> bool:
    """Whether it has a history but no record of a system prompt."""
    return (
        conversation.system_record is None
        and not conversation.is_untouched
        and all(message.role != "system" for message in conversation.messages)
    )


def with_captured_prompt(conversation: StoredConversation, opening: Opening) -> StoredConversation:
    if not is_old(conversation):
        return conversation
    return replace(conversation, system=opening.system, system_record=opening.system_record)


def mark_interrupted(
    conversation: StoredConversation,
    *,
    events_of: EventsOf = lambda _: (),
    cancelled_at: datetime | None = None,
) -> StoredConversation:
    """Settle running turns, if no process has a valid lease; `updated_at` does not change."""
    for turn in find_running(conversation):
        settled = settle_turn(turn, events_of(turn.id), cancelled_at=cancelled_at)
        if settled.is_history and turn in conversation.variants:
            conversation = _replace_turn(without_turn(conversation, turn.id), settled)
        else:
            conversation = replace(
                conversation,
                turns=_replace_in(conversation.turns, turn, settled),
                variants=_replace_in(conversation.variants, turn, settled),
            )
        conversation = replace(conversation, title=_build_title(conversation))
    return conversation


def _replace_in(turns: tuple[Turn, ...], old: Turn, new: Turn) -> tuple[Turn, ...]:
    return tuple(new if turn is old else turn for turn in turns)


def settle_turn(
    turn: Turn, events: Sequence[bytes], *, cancelled_at: datetime | None = None
) -> Turn:
    """End a turn that was cancelled, or whose process died.

    It is incomplete with the text of its stream, or failed. When a process died is unknown: such a
    turn ends when it started, in every store.
    """
    failure, ended_at = choose_failure(cancelled_at), cancelled_at or turn.started_at
    ended = replace(turn, state="failed", ended_at=ended_at, failure=failure)
    if not events:
        return ended
    from cllm.wire.partial_reply import decode_partial_reply  # noqa: PLC0415 - only after a crash

    partial = decode_partial_reply(events)
    ended = replace(ended, usage=partial.usage)
    if not partial.text:
        return ended
    reply = plain_message("assistant", partial.text)
    return replace(ended, state="incomplete", messages=(*turn.messages, reply))


def choose_failure(cancelled_at: datetime | None) -> TurnFailure:
    return INTERRUPTION if cancelled_at is None else CANCELLATION


def start_turn(conversation: StoredConversation, start: TurnStart, *, now: datetime) -> Turn:
    """Return the running turn.

    A variant answers the last user input: later turns may only be failed ones or tool results.
    """
    if find_turn(conversation, start.id) is not None:
        raise duplicate_turn_error(conversation.id, start.id)
    if start.place is not None:
        slots = [turn.place for turn in conversation.turns]
        if start.place not in slots:
            raise TurnNotFoundError(conversation.id, start.place)
        from cllm.wire.convert import has_user_input  # noqa: PLC0415 - only variants need it

        later = conversation.turns[slots.index(start.place) + 1 :]
        if any(turn.is_history and has_user_input(turn.messages) for turn in later):
            raise not_last_turn_error(conversation.id, start.place)
    return build_running_turn(start, now=now)


def build_first_window(start: TurnStart) -> WindowRecord | None:
    """Return the window of a turn that has sent nothing yet, if its request has parameters."""
    if isinstance(start.parameters, msgspec.UnsetType):
        return None
    return WindowRecord(first_sequence=1, sent_messages=0, parameters=start.parameters)


def build_running_turn(start: TurnStart, *, now: datetime) -> Turn:
    return Turn(
        id=start.id,
        place=start.id if start.place is None else start.place,
        state="running",
        messages=start.messages,
        started_at=now,
        model=start.model,
        window=build_first_window(start),
    )


def duplicate_turn_error(conversation_id: str, turn_id: str) -> UsageError:
    return UsageError(f"Conversation '{conversation_id}' already has a turn '{turn_id}'.")


def not_last_turn_error(conversation_id: str, turn_id: str) -> UsageError:
    return UsageError(
        f"Turn '{turn_id}' of conversation '{conversation_id}' is not the last one; "
        "branch the conversation there to get another reply."
    )


def wrong_turn_error(leased_id: str, turn_id: str) -> UsageError:
    return UsageError(f"The lease is for turn '{leased_id}', not for '{turn_id}'.")


def with_running_turn(conversation: StoredConversation, turn: Turn) -> StoredConversation:
    if _is_on_path(conversation, turn.place):
        return replace(conversation, variants=(*conversation.variants, turn))
    return replace(conversation, turns=(*conversation.turns, turn))


def with_finished_turn(
    conversation: StoredConversation, turn: Turn, *, opening: Opening | None, now: datetime
) -> StoredConversation:
    others = mark_interrupted(without_turn(conversation, turn.id))
    opened = with_opening(others, opening)
    if not _is_on_path(opened, turn.place):
        finished = replace(opened, turns=(*opened.turns, turn))
    elif turn.is_history:
        finished = _replace_turn(opened, turn)
    else:
        finished = replace(opened, variants=(*opened.variants, turn))
    return replace(finished, title=_build_title(finished), updated_at=now)


def with_finished_variant(conversation: StoredConversation, turn_id: str) -> StoredConversation:
    """Put a finished variant in its slot on the path."""
    turn = next(each for each in conversation.variants if each.id == turn_id)
    return _replace_turn(without_turn(conversation, turn_id), turn)


def _replace_turn(conversation: StoredConversation, turn: Turn) -> StoredConversation:
    """Put the turn in its slot; later turns with tool results leave the path."""
    slots = [each.place for each in conversation.turns]
    later = conversation.turns[slots.index(turn.place) + 1 :]
    off_path = tuple(each for each in later if each.is_history)
    off_path_ids = {each.id for each in off_path}
    summary = conversation.summary
    shortened = replace(
        conversation,
        turns=tuple(each for each in conversation.turns if each.id not in off_path_ids),
    )
    replaced = _put_in_slot(shortened, turn)
    return replace(
        replaced,
        variants=replaced.variants + off_path,
        pins=tuple(pin for pin in replaced.pins if pin <= replaced.message_count),
        summary=summary and summary.up_to(_count_messages_before(conversation, turn.place)),
    )


def without_turn(conversation: StoredConversation, turn_id: str) -> StoredConversation:
    return replace(
        conversation,
        turns=tuple(turn for turn in conversation.turns if turn.id != turn_id),
        variants=tuple(turn for turn in conversation.variants if turn.id != turn_id),
    )


def check_unchanged(conversation: StoredConversation, earlier: StoredConversation) -> None:
    """ConversationBusyError if the path does not end as before; both have its last turn."""
    ends = [
        (one.message_count, one.turns[-1].id if one.turns else None)
        for one in (conversation, earlier)
    ]
    if ends[0] != ends[1]:
        raise ConversationBusyError(conversation.id)


def truncate_from(
    conversation: StoredConversation, sequence: int, *, now: datetime
) -> StoredConversation:
    check_sequence(conversation, sequence)
    return replace(_truncate_after(conversation, sequence - 1), updated_at=now)


def build_branch(
    conversation: StoredConversation,
    new: StoredConversation,
    *,
    at: int | None,
    path: Sequence[str] | None = None,
    opening: Opening | None,
) -> StoredConversation:
    """Return the branch. It belongs to the family of the conversation unless it has its own."""
    source = replace(conversation, turns=_without_running(conversation.turns))
    if path is not None:
        source = _with_path(conversation, path)
    if at is not None:
        check_sequence(source, at)
    sequence = source.message_count if at is None else at
    copied = _truncate_after(source, sequence)
    head = conversation if opening is None else opening
    return replace(
        new,
        model=conversation.model if new.model is None else new.model,
        title=make_branch_title(conversation.title) if new.title is None else new.title,
        system=head.system,
        system_record=head.system_record,
        context_record=head.context_record,
        turns=copied.turns,
        variants=_without_running(copied.variants),
        pins=copied.pins,
        summary=copied.summary,
        parent=Branch(conversation=conversation.id, sequence=sequence),
        family=conversation.family_key if new.family is None else new.family,
        source=conversation.source if new.source is None else new.source,
        is_side=conversation.is_side or new.is_side,
        path_start=conversation.path_start,
    )


def _with_path(conversation: StoredConversation, path: Sequence[str]) -> StoredConversation:
    """Return the conversation with these turns as its default path; the others are variants."""
    turns = {turn.id: turn for turn in conversation.turns + conversation.variants}
    missing = next((turn_id for turn_id in path if turn_id not in turns), None)
    if missing is not None:
        raise TurnNotFoundError(conversation.id, missing)
    chosen = set(path)
    return replace(
        conversation,
        turns=tuple(turns[turn_id] for turn_id in path),
        variants=tuple(turn for turn in turns.values() if turn.id not in chosen),
        pins=(),
        summary=None,
    )


def with_chosen_variant(
    conversation: StoredConversation, turn_id: str, *, now: datetime
) -> StoredConversation:
    """Put the variant on the path; summaries from there on are removed."""
    if any(turn.id == turn_id for turn in conversation.turns):
        return conversation
    chosen = next((turn for turn in conversation.variants if turn.id == turn_id), None)
    if chosen is None or not _is_on_path(conversation, chosen.place):
        raise TurnNotFoundError(conversation.id, turn_id)
    if not chosen.is_history:
        raise UsageError(
            f"Turn '{turn_id}' of conversation '{conversation.id}' has no reply; "
            "choose another one."
        )
    changed = _put_in_slot(without_turn(conversation, turn_id), chosen)
    summary = conversation.summary
    if summary is not None:
        summary = summary.up_to(_count_messages_before(conversation, chosen.place))
    return replace(changed, summary=summary, updated_at=now)


def _count_messages_before(conversation: StoredConversation, slot: str) -> int:
    before = takewhile(lambda turn: turn.place != slot, conversation.turns)
    return conversation.first_sequence - 1 + sum(len(turn.messages) for turn in before)


def _without_running(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    return tuple(turn for turn in turns if turn.state != "running")


def _is_on_path(conversation: StoredConversation, slot: str) -> bool:
    return any(turn.place == slot for turn in conversation.turns)


def _put_in_slot(conversation: StoredConversation, chosen: Turn) -> StoredConversation:
    off_path = tuple(turn for turn in conversation.turns if turn.place == chosen.place)
    turns = tuple(chosen if turn.place == chosen.place else turn for turn in conversation.turns)
    return replace(conversation, turns=turns, variants=conversation.variants + off_path)


def _build_title(conversation: StoredConversation) -> str | None:
    if conversation.title is not None:
        return conversation.title
    user_texts = (
        message.text
        for turn in conversation.turns
        if turn.is_history
        for message in turn.messages
        if message.role == "user"
    )
    return choose_title(islice(user_texts, MAX_TITLE_MESSAGES))


def check_sequence(conversation: StoredConversation, sequence: int) -> None:
    if not 1 <= sequence <= conversation.message_count:
        raise SequenceNotFoundError(conversation.id, sequence)


def _truncate_after(conversation: StoredConversation, sequence: int) -> StoredConversation:
    """Return the path up to that message; a truncated turn is incomplete and has no variants.

    The conversation may be loaded in part, from that message's turn on or earlier.
    """
    turns: list[Turn] = []
    whole_slots: set[str] = set()
    remaining = sequence - conversation.first_sequence + 1
    for turn in conversation.turns:
        if remaining <= 0:
            break
        if remaining >= len(turn.messages):
            turns.append(turn)
            whole_slots.add(turn.place)
        else:
            state = "incomplete" if turn.is_history else turn.state
            turns.append(replace(turn, messages=turn.messages[:remaining], state=state))
        remaining -= len(turn.messages)
    variants = tuple(turn for turn in conversation.variants if turn.place in whole_slots)
    return replace(
        conversation,
        turns=tuple(turns),
        variants=variants,
        pins=tuple(pin for pin in conversation.pins if pin <= sequence),
        summary=None if conversation.summary is None else conversation.summary.up_to(sequence),
    )


def with_changes(
    conversation: StoredConversation, changes: Changes, *, now: datetime
) -> StoredConversation:
    title = conversation.title if changes.title is msgspec.UNSET else changes.title
    model = conversation.model if changes.model is msgspec.UNSET else changes.model
    metadata = conversation.metadata
    if not isinstance(changes.metadata, msgspec.UnsetType):
        metadata = dict(changes.metadata)
    archived_at = conversation.archived_at
    if changes.archived is True:
        archived_at = archived_at or now
    elif changes.archived is False:
        archived_at = None
    changed = _with_window_changes(conversation, changes)
    return replace(
        changed,
        title=title,
        model=model,
        metadata=metadata,
        archived_at=archived_at,
        updated_at=changed.updated_at if _keeps_time(changes) else now,
    )


def _with_window_changes(conversation: StoredConversation, changes: Changes) -> StoredConversation:
    pins, summary = conversation.pins, conversation.summary
    if not isinstance(changes.pins, msgspec.UnsetType):
        pins = tuple(sorted(set(changes.pins)))
        count = conversation.message_count
        for pin in (pin for pin in pins if not 1 <= pin <= count):
            raise SequenceNotFoundError(conversation.id, pin)
    if not isinstance(changes.summary, msgspec.UnsetType):
        summary = changes.summary
        if summary is not None:
            check_sequence(conversation, summary.through)
            _check_follows(conversation.summary, summary)
    return replace(conversation, pins=pins, summary=summary)


def _check_follows(stored: StandingSummary | None, new: StandingSummary) -> None:
    """UsageError unless `new` follows the stored summary or is a predecessor."""
    if stored is None or _without_predecessors(new.before) == _without_predecessors(stored):
        return
    match: StandingSummary | None = stored
    while match is not None and _without_predecessors(match) != _without_predecessors(new):
        match = match.before
    if match is None:
        raise UsageError("The summary was not saved: another one was saved in the meantime.")


def _without_predecessors(summary: StandingSummary | None) -> StandingSummary | None:
    return None if summary is None else replace(summary, before=None)


def _keeps_time(changes: Changes) -> bool:
    """Whether only the archive state, pins or summary change, which keeps `updated_at`."""
    unset = msgspec.UNSET
    is_kept = any(value is not unset for value in (changes.archived, changes.pins, changes.summary))
    others = (changes.title, changes.model, changes.metadata)
    return is_kept and all(value is unset for value in others)

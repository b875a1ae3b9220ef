"""Builds the prompt of a turn: history within the window, system prompt and new messages."""

import msgspec

from cllm.core.conversation import StoredConversation, Turn, WindowRecord
from cllm.core.message import Message
from cllm.core.notice import Notice
from cllm.core.prompt import Continuity, Prompt
from cllm.engine.prompt_history import ModelContext, PromptHistory, has_same_start
from cllm.engine.request import Attempt, TurnRequest, TurnStorage
from cllm.engine.tool_rounds import ToolBox
from cllm.history.context import insert_context
from cllm.window.plan import WindowPlan, plan_window
from cllm.window.strategies import ByTokens, Strategy
from cllm.window.summary import build_summary_messages
from cllm.window.tokens import estimate_text, weights_for

TRIMMED_CODE = "trimmed"
TRIMMED = "Trimmed old messages to fit context window"


def make_trim_notice(count: int) -> Notice:
    turns = "1 turn is" if count == 1 else f"{count} turns are"
    message = f"{TRIMMED} ({turns} no longer sent)."
    return Notice(code=TRIMMED_CODE, path="messages", message=message)


def build_window_prompt(
    conversation: StoredConversation | None, request: TurnRequest, attempt: Attempt
) -> Prompt:
    prompt = build_full_prompt(conversation, request, attempt)
    if request.storage.window is None:
        return prompt
    return trim_to_window(
        prompt,
        conversation,
        request.storage.window(attempt.model),
        model_context=attempt.model_context,
        place=request.storage.place,
        tools=request.target.tools,
    )


def build_full_prompt(
    conversation: StoredConversation | None, request: TurnRequest, attempt: Attempt
) -> Prompt:
    """Build the prompt with all messages, or with those before `request.storage.place`.

    A client that sends its whole history gets the prompt of a stateless request.
    """
    if request.storage.client_history is not None:
        return _build_client_prompt(conversation, request, attempt)
    turns = () if conversation is None else conversation.history(before=request.storage.place)
    history = tuple([message for turn in turns for message in turn.messages])
    new = (
        request.input.messages
        if request.input.prompt_messages is None
        else request.input.prompt_messages
    )
    context = attempt.context
    prompt_messages, context_tokens = new, 0
    if context.for_turn:
        weights = weights_for(attempt.route.provider.name)
        prompt_messages = insert_context(new, context.for_turn)
        context_tokens = estimate_text(context.for_turn, weights).tokens
    first_sequence, left_out = 1, 0
    continuity: Continuity | None = None
    if conversation is not None:
        first_sequence = conversation.first_sequence
        left_out = conversation.message_count - len(history)
        is_saved = not request.storage.read_only and request.input.prompt_messages is None
        passing = _count_changed(new, prompt_messages) if is_saved else len(new)
        continuity = Continuity(fresh=len(new) + _count_fresh(turns), passing=passing)
    return Prompt(
        model=attempt.route.model,
        system=attempt.choice.message,
        messages=history + prompt_messages,
        parameters=request.target.parameters,
        dialect=request.target.dialect,
        strict=request.target.strict,
        is_variant=request.storage.place is not None,
        original=request.input.original,
        stream=request.target.stream,
        cache_key=request.storage.cache_key,
        foreign=_find_foreign(turns, len(new), resolve_model(conversation, request), attempt.model),
        window=WindowRecord(
            first_sequence=first_sequence,
            sent_messages=len(history) + len(new),
            left_out_messages=left_out,
            context=context_tokens,
        ),
        continuity=continuity,
        notices=(
            *_make_fixed_model_notices(conversation, request),
            *attempt.choice.notices,
            *context.notices,
        ),
    )


def _build_client_prompt(
    conversation: StoredConversation | None, request: TurnRequest, attempt: Attempt
) -> Prompt:
    """Build the prompt of a client that sends its whole history: that of a stateless request."""
    from cllm.wire.path_digest import describe_client_prompt  # noqa: PLC0415 - only with a history

    storage = TurnStorage(read_only=True)
    prompt = build_full_prompt(None, msgspec.structs.replace(request, storage=storage), attempt)
    if conversation is None or prompt.window is None:
        return prompt
    is_last = conversation.turns and request.storage.place is None
    previous = conversation.turns[-1].window if is_last else None
    client = describe_client_prompt(request.input.content_hashes, previous)
    window = msgspec.structs.replace(prompt.window, client=client)
    return msgspec.structs.replace(prompt, window=window)


def resolve_model(conversation: StoredConversation | None, request: TurnRequest) -> str:
    """Return the conversation's model, unless the request has its own."""
    if conversation is None or request.target.uses_own_model:
        return request.target.model
    return conversation.model or request.target.model


def _count_fresh(turns: tuple[Turn, ...]) -> int:
    """Count the messages of the last turn that its prompt did not have at the same position.

    That is the reply, or all messages if that prompt had a context.
    """
    if not turns:
        return 0
    last = turns[-1]
    if last.window is not None and last.window.context > 0:
        return len(last.messages)
    return int(bool(last.messages) and last.messages[-1].role == "assistant")


def _count_changed(new: tuple[Message, ...], prompt_messages: tuple[Message, ...]) -> int:
    """Count the messages from the first one that is sent in another form than it is saved."""
    pairs = enumerate(zip(new, prompt_messages, strict=True))
    return next((len(new) - index for index, (one, other) in pairs if one is not other), 0)


def _find_foreign(turns: tuple[Turn, ...], new: int, new_for: str, model: str) -> frozenset[int]:
    """Return the positions of messages from or for another model."""
    positions: set[int] = set()
    start = 0
    for owner, count in (*((turn.model, len(turn.messages)) for turn in turns), (new_for, new)):
        # A request may name a model without its provider.
        if owner is not None and owner.rpartition("/")[2] != model.rpartition("/")[2]:
            positions.update(range(start, start + count))
        start += count
    return frozenset(positions)


def _make_fixed_model_notices(
    conversation: StoredConversation | None, request: TurnRequest
) -> tuple[Notice, ...]:
    target = request.target
    if conversation is None or target.uses_own_model or not target.model_is_explicit:
        return ()
    if conversation.model in (None, request.target.model):
        return ()
    message = (
        f"Conversation uses model '{conversation.model}', but you specified "
        f"'{request.target.model}'. Using '{conversation.model}'."
    )
    return (Notice(code="model_fixed", path="model", message=message),)


def trim_to_window(
    prompt: Prompt,
    conversation: StoredConversation | None,
    strategy: Strategy,
    *,
    model_context: ModelContext,
    place: str | None = None,
    tools: ToolBox | None = None,
) -> Prompt:
    """Return the prompt with the messages of its window.

    Raises WindowTooSmallError if the messages that must be sent do not fit.
    """
    history = PromptHistory(
        prompt, conversation, model_context=model_context, place=place, tools=tools
    )
    # A strategy without limits sends everything that the model accepts.
    is_unlimited = isinstance(strategy, ByTokens) and (
        strategy.max_tokens is None and strategy.floor is None and strategy.block is None
    )
    if (
        is_unlimited
        and history.stored_summary is None
        and history.last_start in (None, 1)
        and history.fits_whole
    ):
        return prompt
    plan = plan_window(
        history.turn_index,
        strategy,
        budget=history.budget,
        window_start=history.last_start,
        pins=history.pins,
        idle=history.idle,
        summary=history.numbered_summary,
    )
    return _apply_plan(prompt, plan, history)


def _apply_plan(prompt: Prompt, plan: WindowPlan, history: PromptHistory) -> Prompt:
    summary = (
        ()
        if history.stored_summary is None
        else build_summary_messages(history.stored_summary.text)
    )
    messages = (*summary, *plan.select(prompt.messages))
    positions = [n for start, stop in plan.spans for n in range(start, stop)]
    foreign = (index for index, n in enumerate(positions, len(summary)) if n in prompt.foreign)
    record = WindowRecord(
        first_sequence=history.to_sequence(plan.window_start),
        sent_messages=plan.sent_messages,
        left_out_messages=history.unloaded_messages + plan.left_out_messages,
        summary_through=None if history.stored_summary is None else history.stored_summary.through,
        context=0 if prompt.window is None else prompt.window.context,
    )
    continuity = prompt.continuity
    last = history.turns[-1].window if history.turns else None
    if continuity is not None and (last is None or not has_same_start(last, record)):
        continuity = msgspec.structs.replace(continuity, fresh=len(messages))
    notices = prompt.notices
    if plan.dropped_turns:
        notices = (*notices, make_trim_notice(plan.dropped_turns))
    return msgspec.structs.replace(
        prompt,
        messages=messages,
        foreign=frozenset(foreign),
        window=record,
        continuity=continuity,
        notices=notices,
    )

"""Prepares the turn of a request of any protocol: model, conversation and messages.

Calls no provider.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace
from starlette.datastructures import Headers

from cllm.core.conversation import FILES_PREFIX, StoredConversation
from cllm.core.errors import ConversationNotFoundError
from cllm.core.notice import Notice
from cllm.core.ports import NewConversation, ServerStore, Store
from cllm.core.prompt import Original, Prompt
from cllm.core.secret import CallersKey
from cllm.engine.edits import load_last_turn
from cllm.engine.request import ClientHistory, TurnInput, TurnRequest, TurnStorage, TurnTarget
from cllm.engine.turn import Engine
from cllm.history.side_requests import SideRule
from cllm.history.system_prompt import GivenPrompt, SplitMessages, prefix_message, split_messages
from cllm.server.http.errors import ApiError
from cllm.server.recording.clients import identify_client
from cllm.server.state import Caller, ServerState
from cllm.server.turns.headers import (
    CALLERS_KEY,
    CONVERSATION,
    FIND_CONVERSATION,
    ContinueConversation,
    ContinueResponse,
    FindConversation,
    RequestHeaders,
    StartConversation,
    Stateless,
)
from cllm.server.turns.model_selection import check_model_file, select_model
from cllm.server.turns.previous_response import find_history
from cllm.server.turns.repeated_messages import drop_repeated, has_whole_history
from cllm.wire.responses.ids import find_item_conversation

EMPTY_HEADERS = Headers()
UNKNOWN_CLIENT = "client"
"""The source of conversations of a client that is not in the table."""
KEY_NOT_USED = Notice(
    code="key_not_used",
    path=CALLERS_KEY,
    message="Anthropic does not serve this model, so the key in the request was not used.",
)


class PreparedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn and the store that saves it; None for a stateless turn.

    `events` stores its stream. `public_id` is the conversation ID that the client sees; if the
    conversation is found by its history, the ID is known when the turn starts. `callers_key` is for
    this call only. `is_background`: the turn is saved, and runs to its end without its client.
    """

    request: TurnRequest
    store: Store | None = None
    events: ServerStore | None = None
    public_id: str | None = None
    notices: tuple[Notice, ...] = ()
    callers_key: CallersKey | None = None
    is_background: bool = False


def select_engine(prepared: PreparedTurn, state: ServerState) -> Engine:
    if prepared.callers_key is None and prepared.store in (None, state.store):
        return state.engine
    return state.app.engine(prepared.store, callers_key=prepared.callers_key)


async def prepare_turn(
    prompt: Prompt,
    turn_headers: RequestHeaders,
    caller: Caller,
    state: ServerState,
    *,
    headers: Headers = EMPTY_HEADERS,
) -> PreparedTurn:
    """`headers` are those of the request, by which clients are identified."""
    base = _build_base(prompt, turn_headers, caller, state)
    mode = turn_headers.mode
    if isinstance(mode, Stateless) and state.settings.record == "auto":
        mode = FIND_CONVERSATION
    match mode:
        case Stateless():
            prepared = PreparedTurn(request=_prepare_stateless(base, prompt))
        case StartConversation():
            prepared = _prepare_new(base, prompt, state)
        case FindConversation():
            request = prepare_recorded(base, prompt, headers, state.settings.side_requests)
            store = None if request.storage.client_history is None else state.store
            prepared = PreparedTurn(request=request, store=store, events=store)
        case ContinueConversation():
            prepared = await _prepare_continued(base, prompt, mode, turn_headers, state)
        case ContinueResponse():
            prepared = await _prepare_after_response(base, prompt, mode, state)
    added = (*turn_headers.notices, *prompt.notices)
    if turn_headers.callers_key is None and not added:
        return prepared
    notices, key = (*added, *prepared.notices), None
    if turn_headers.callers_key is not None:
        key = state.app.key_for(base.target.model, turn_headers.callers_key)
        if key is None:
            notices += (KEY_NOT_USED,)
    return replace(prepared, notices=notices, callers_key=key)


def _build_base(
    prompt: Prompt, turn_headers: RequestHeaders, caller: Caller, state: ServerState
) -> TurnRequest:
    """Return the turn with all that does not depend on a conversation."""
    settings = state.app.settings
    return TurnRequest(
        input=TurnInput(
            messages=prompt.messages,
            prefix=state.settings.system_prefix,
            original=prompt.original,
        ),
        target=TurnTarget(
            model=select_model(prompt.model, turn_headers.provider, state),
            model_is_explicit=True,
            overrides_model=turn_headers.switches_model is None,
            switches_model=turn_headers.switches_model is True,
            fallbacks=settings.fallbacks,
            parameters=prompt.parameters,
            dialect=prompt.dialect,
            stream=prompt.stream,
            strict=settings.strict if turn_headers.strict is None else turn_headers.strict,
            # A client that retries does it alone, unless another model could reply first.
            retries=None if turn_headers.retries is None or settings.fallbacks else 0,
        ),
        storage=TurnStorage(owner=caller.owner, system="dynamic"),
    )


def _prepare_stateless(base: TurnRequest, prompt: Prompt) -> TurnRequest:
    if not prompt.messages:
        raise _empty_error("The request has no messages; send at least one.")
    if base.input.prefix is None and prompt.system is None:
        return base
    return replace(base, input=set_system_prompt(base.input, split_messages(prompt)))


def _prepare_new(base: TurnRequest, prompt: Prompt, state: ServerState) -> PreparedTurn:
    split = split_messages(prompt)
    if not split.saved_messages:
        raise _empty_error("A new conversation needs a message other than a system message.")
    ref = state.new_id()
    turn_input = _prepare_input(base, prompt, split)
    if turn_input.prompt_messages == turn_input.messages:
        turn_input = replace(turn_input, prompt_messages=None)
    request = replace(base, input=turn_input).with_storage(
        ref=ref,
        create=NewConversation(id=ref),
        preloaded=None,
        cache_key=state.app.cache_key(ref),
        saves_unsent=True,
        wait=0,
    )
    return PreparedTurn(request=request, store=state.store, events=state.store, public_id=ref)


def _prepare_input(base: TurnRequest, prompt: Prompt, split: SplitMessages) -> TurnInput:
    """Return the input of a turn whose prompt is the request as it is."""
    prefixed = set_system_prompt(base.input, split)
    return replace(
        prefixed,
        messages=split.saved_messages,
        prompt_messages=prefixed.messages,
        original=_adjust_original(prompt, split),
    )


def _adjust_original(prompt: Prompt, split: SplitMessages) -> Original | None:
    """Return the original body without the system prompt among its messages."""
    if prompt.original is None or split.system is None or split.index != 0:
        return prompt.original
    return replace(prompt.original, system=split.system, messages=split.prompt_messages)


def set_system_prompt(base: TurnInput, split: SplitMessages) -> TurnInput:
    """Return the input with the system prompt and the messages to send.

    A system prompt after other messages stays there and gets the operator's prefix here. The
    engine adds the prefix to any other system prompt.
    """
    if split.system is None or split.index == 0:
        return replace(base, system=split.system_prompt, messages=split.prompt_messages)
    messages = list(split.prompt_messages)
    if base.prefix:
        messages[split.index] = prefix_message(messages[split.index], base.prefix)
    return replace(base, system=GivenPrompt(), messages=tuple(messages), prefix=None)


def prepare_recorded(
    base: TurnRequest, prompt: Prompt, headers: Mapping[str, str], rules: Sequence[SideRule] = ()
) -> TurnRequest:
    """Return a turn that is sent as a stateless one, and recorded if that is possible."""
    split = split_messages(prompt)
    client = identify_client(headers, prompt, rules)
    if not split.saved_messages or not client.is_recorded:
        return _prepare_stateless(base, prompt)
    is_responses = prompt.dialect == "responses"
    history = ClientHistory(
        item_conversation=find_item_conversation(split.saved_messages) if is_responses else None,
        family=client.session,
        parent_family=client.parent_session,
        client=client.client or UNKNOWN_CLIENT,
        side=client.side,
    )
    return _with_client_history(base, prompt, split, history)


def _with_client_history(
    base: TurnRequest, prompt: Prompt, split: SplitMessages, history: ClientHistory
) -> TurnRequest:
    request = replace(
        base,
        input=_prepare_input(base, prompt, split),
        target=replace(base.target, overrides_model=True),
    )
    return request.with_storage(
        client_history=history, skip_preload=True, saves_unsent=True, wait=0
    )


async def _prepare_continued(
    base: TurnRequest,
    prompt: Prompt,
    mode: ContinueConversation,
    turn_headers: RequestHeaders,
    state: ServerState,
) -> PreparedTurn:
    """Continue the conversation; without messages, regenerate its last reply."""
    mode = await _find_named(mode, base.storage.owner, state)
    store = _select_store(mode, state)
    split = split_messages(prompt)
    wait = state.settings.limits.queue_seconds if turn_headers.on_conflict == "queue" else 0
    messages = await drop_repeated(
        store, mode, base.storage.owner, split.saved_messages, turn_headers.history
    )
    repeats_end = messages is not split.saved_messages
    notices: tuple[Notice, ...] = ()
    if not repeats_end and has_whole_history(turn_headers.history, messages):
        history = ClientHistory(conversation=mode.ref, strict=base.target.strict)
        create = NewConversation(id=state.new_id(), name=mode.ref) if mode.is_name else None
        request = _with_client_history(base, prompt, split, history)
        request = request.with_storage(ref=mode.ref, create=create)
    else:
        added = base.with_input(messages=messages, system=split.system_prompt, original=None)
        continued = await _continue_stored(added, mode, store, state)
        if continued is None:
            return _add_name(_prepare_new(base, prompt, state), mode.ref, wait=wait)
        request, notices = continued, split.ignored_notices()
    prefix = FILES_PREFIX if mode.in_files else ""
    return PreparedTurn(
        request=request.with_storage(wait=wait),
        store=store,
        events=None if mode.in_files else state.store,
        public_id=f"{prefix}{request.storage.ref}",
        notices=notices,
    )


def _select_store(mode: ContinueConversation, state: ServerState) -> Store:
    if not mode.in_files:
        return state.store
    if state.files is None:
        raise ApiError(
            "invalid_conversation_id",
            "This server does not serve conversation files; send the UUID of a conversation.",
            param=CONVERSATION,
        )
    return state.files


async def _continue_stored(
    added: TurnRequest, mode: ContinueConversation, store: Store, state: ServerState
) -> TurnRequest | None:
    """Return the turn that adds messages to a conversation; None if its name does not exist yet.

    Without messages, it is the last turn again.
    """
    request = added.with_storage(window=state.app.window_for, saves_unsent=True)
    has_messages, uses_own_model = bool(added.input.messages), added.target.uses_own_model
    can_skip = not mode.in_files and not mode.is_name and state.app.can_skip_preload
    if has_messages and uses_own_model and can_skip:
        key = state.app.cache_key(mode.ref)
        return request.with_storage(ref=mode.ref, skip_preload=True, cache_key=key)
    head = await _load_head(store, mode, added.storage.owner)
    if head is None:
        return None
    if not uses_own_model:
        check_model_file(head.model or "", state)
    key = state.app.cache_key(head.id)
    request = request.with_storage(ref=head.id, preloaded=head, cache_key=key)
    if has_messages:
        return request
    last = await load_last_turn(store, head.id, owner=added.storage.owner)
    if last is None:
        raise _empty_error(
            "The conversation has no reply to regenerate; send at least one message."
        )
    return request.with_input(messages=last.input).with_storage(place=last.turn.place)


async def _prepare_after_response(
    base: TurnRequest, prompt: Prompt, mode: ContinueResponse, state: ServerState
) -> PreparedTurn:
    """Continue after a stored response, with its whole history and the model of the request."""
    split = split_messages(prompt)
    if not split.saved_messages:
        raise _empty_error("The request has no input; send at least one item.")
    history = await find_history(mode, owner=base.storage.owner, state=state)
    prefixed = set_system_prompt(base.input, split)
    request = replace(base, target=replace(base.target, overrides_model=True))
    request = request.with_storage(
        ref=history.ref,
        preloaded=msgspec.UNSET if history.conversation is None else history.conversation,
        read_only=not mode.saves,
        expected_count=history.message_count,
        cache_key=state.app.cache_key(history.ref),
        window=state.app.window_for if mode.truncates else None,
        saves_unsent=True,
        wait=0,
    ).with_input(
        messages=split.saved_messages,
        # With the system messages among them, which are sent and not saved.
        prompt_messages=prefixed.messages if split.has_inner_system else None,
        system=prefixed.system,
        prefix=prefixed.prefix,
        original=None,
    )
    if not mode.saves:
        return PreparedTurn(request=request, store=state.store)
    return PreparedTurn(
        request=request, store=state.store, events=state.store, public_id=history.ref
    )


async def _find_named(
    mode: ContinueConversation, owner: str, state: ServerState
) -> ContinueConversation:
    """Return the mode with the store that has the name: the server's, or the folder of files."""
    if not mode.is_name or state.files is None:
        return mode
    if await _find_id(state.files, mode.ref, owner) is None:
        return mode
    stored_id = await _find_id(state.store, mode.ref, owner)
    if stored_id is not None:
        raise ApiError(
            "conversation_exists",
            f"Two conversations have this name: send {stored_id} for the one in the server's "
            f"store, or {FILES_PREFIX}{mode.ref} for the conversation file.",
            param=CONVERSATION,
        )
    return ContinueConversation(mode.ref, in_files=True)


async def _find_id(store: Store, ref: str, owner: str) -> str | None:
    try:
        return (await store.summary(ref, owner=owner)).id
    except ConversationNotFoundError:
        return None


async def _load_head(
    store: Store, mode: ContinueConversation, owner: str
) -> StoredConversation | None:
    """Return the conversation; None if its name does not exist yet."""
    try:
        head = await store.load(mode.ref, owner=owner, tail=0)
    except ConversationNotFoundError:
        if mode.is_name:
            return None
        raise
    if head.archived_at is not None:
        raise ConversationNotFoundError(mode.ref)
    return head


def _add_name(prepared: PreparedTurn, name: str, *, wait: float) -> PreparedTurn:
    """Return the turn that starts a conversation with a name.

    It waits if another request starts the conversation at the same moment.
    """
    create = prepared.request.storage.create
    create = None if create is None else replace(create, name=name)
    request = prepared.request.with_storage(ref=name, create=create, wait=wait)
    return replace(prepared, request=request)


def _empty_error(message: str) -> ApiError:
    return ApiError("empty_messages_array", message, param="messages")

"""Prepares the turn of a decoded request: one step for every protocol and every mode.

Chooses what is sent and what is saved; calls no provider.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from cllm.assembly.system import GivenPrompt, with_prefix
from cllm.core.conversation import Conversation, Turn
from cllm.core.errors import ConversationNotFoundError, ModelNotFoundError
from cllm.core.message import Message
from cllm.core.notice import Notice, NoticeCollector
from cllm.core.ports import NewConversation, ServerStore, Store
from cllm.core.prompt import Original, Prompt
from cllm.core.secret import CallersKey
from cllm.engine.request import TurnInput, TurnPolicy, TurnRequest, TurnTarget
from cllm.engine.turn import Engine
from cllm.providers.registry import LOCAL, ROWS, has_model, no_such_model
from cllm.server.http.errors import RefusedError
from cllm.server.serving import Caller, Serving
from cllm.server.turns.headers import (
    CALLERS_KEY,
    CONVERSATION,
    FILES,
    PROVIDER,
    Begin,
    Continue,
    OnConflict,
    Stateless,
    Wish,
)
from cllm.settings.trust import is_model_file
from cllm.wire.malformed import FieldError
from cllm.wire.translate import is_plain_user

LONGEST_NAME = 2048
"""Characters of a model's name."""
LOOKED_BACK = (1, 50, None)
"""How many messages are loaded to find what is answered again; mostly the first is enough."""
KEY_NOT_USED = Notice(
    code="key_not_used",
    path=CALLERS_KEY,
    message="The model is not asked for at Anthropic, so the key that came for it was not used.",
)


class PreparedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn to be taken, the store it is kept in, and what was ignored of the request.

    `events` is the store that keeps its stream, where there is one that does. `shown` is the id
    under which the client knows the conversation. The `callers_key` is for this call only.
    """

    request: TurnRequest
    store: Store | None = None
    events: ServerStore | None = None
    shown: str | None = None
    notices: tuple[Notice, ...] = ()
    callers_key: CallersKey | None = None


def engine_for(prepared: PreparedTurn, serving: Serving) -> Engine:
    """Return the engine for the store and the caller's key of a turn."""
    if prepared.callers_key is None and prepared.store in (None, serving.store):
        return serving.engine
    return serving.app.engine(prepared.store, callers_key=prepared.callers_key)


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a request, taken apart.

    `rest` is what follows a system prompt that stands first, with further ones in it, `others` is
    what can be kept: all that are none. `further` are the places of the system messages after the
    first.
    """

    system: Message | None
    rest: tuple[Message, ...]
    others: tuple[Message, ...]
    further: tuple[int, ...] = ()
    place: int = 0

    @property
    def given(self) -> GivenPrompt:
        if self.system is None:
            return GivenPrompt()
        path = f"messages[{self.place}]"
        return GivenPrompt(said=self.system, text=self.system.text, source=path)


async def prepare_turn(
    prompt: Prompt, wish: Wish, caller: Caller, serving: Serving
) -> PreparedTurn:
    """The turn that a request asks for; an error if there is none to be taken."""
    prepared = await _prepare(prompt, wish, caller, serving)
    if wish.callers_key is None and not prompt.notices:
        return prepared
    notices = (*prompt.notices, *prepared.notices)
    if wish.callers_key is None:
        return replace(prepared, notices=notices)
    key = serving.app.key_for(prepared.request.target.model, wish.callers_key)
    if key is None:
        return replace(prepared, notices=(*notices, KEY_NOT_USED))
    return replace(prepared, notices=notices, callers_key=key)


async def _prepare(prompt: Prompt, wish: Wish, caller: Caller, serving: Serving) -> PreparedTurn:
    settings = serving.app.settings
    base = TurnRequest(
        input=TurnInput(
            messages=prompt.messages,
            prefix=serving.settings.system_prefix,
            original=prompt.original,
        ),
        target=TurnTarget(
            model=chosen_model(prompt.model, wish.provider, serving),
            model_is_explicit=True,
            fallbacks=settings.fallbacks,
            parameters=prompt.parameters,
            dialect=prompt.dialect,
            stream=prompt.stream,
            strict=settings.strict if wish.strict is None else wish.strict,
        ),
        policy=TurnPolicy(owner=caller.owner, system="dynamic"),
    )
    match wish.mode:
        case Stateless():
            return PreparedTurn(request=_stateless(base, prompt))
        case Begin():
            return _new(base, prompt, serving)
        case Continue():
            return await _continuing(base, prompt, wish.mode, wish.on_conflict, serving)


def _stateless(base: TurnRequest, prompt: Prompt) -> TurnRequest:
    """The request as it is, under the operator's text if there is one."""
    if not prompt.messages:
        raise _empty("A request needs at least one message.")
    if base.input.prefix is None and prompt.system is None:
        return base
    return replace(base, input=_as_sent(base.input, _taken_apart(prompt)))


def _new(base: TurnRequest, prompt: Prompt, serving: Serving) -> PreparedTurn:
    """A conversation is begun with what is said, which is sent as it is."""
    said = _taken_apart(prompt)
    if not said.others:
        raise _empty("A new conversation needs at least one message that is no system message.")
    ref = serving.new_id()
    as_sent = _as_sent(base.input, said)
    made = replace(
        as_sent,
        messages=said.others,
        sent=None if as_sent.messages == said.others else as_sent.messages,
        original=_original(prompt, said),
    )
    request = replace(base, input=made).with_policy(
        ref=ref,
        create=NewConversation(id=ref),
        found=None,
        cache_key=serving.app.cache_key(ref),
        visible=True,
        wait=0,
    )
    return PreparedTurn(request=request, store=serving.store, events=serving.store, shown=ref)


def _as_sent(base: TurnInput, said: _Said) -> TurnInput:
    """All messages in their places, the system prompt under the operator's text if there is one."""
    if said.system is None or said.place == 0:
        return replace(base, system=said.given, messages=said.rest)
    rest = list(said.rest)
    if base.prefix:
        rest[said.place] = with_prefix(rest[said.place], base.prefix)
    return replace(base, system=GivenPrompt(), messages=tuple(rest), prefix=None)


async def _continuing(
    base: TurnRequest, prompt: Prompt, mode: Continue, on_conflict: OnConflict, serving: Serving
) -> PreparedTurn:
    """A conversation goes on: with what is said, or from what was said last if nothing is."""
    store: Store | None = serving.files if mode.in_files else serving.store
    if store is None:
        raise RefusedError(
            "invalid_conversation_id",
            "The folder of conversation files is not served here.",
            param=CONVERSATION,
        )
    said = _taken_apart(prompt)
    found: Conversation | None = None
    at_once = bool(said.others) and not mode.in_files and serving.app.takes_at_once
    if not at_once:
        found = await store.load(mode.ref, owner=base.policy.owner, tail=0)
        if found.archived_at is not None:
            raise ConversationNotFoundError(mode.ref)
    ref = mode.ref if found is None else found.id
    request = base.with_policy(
        ref=ref,
        found=msgspec.UNSET if found is None else found,
        at_once=at_once,
        cache_key=serving.app.cache_key(ref),
        window=serving.app.window_for,
        visible=True,
        wait=serving.settings.limits.queue_seconds if on_conflict == "queue" else 0,
    ).with_input(messages=said.others, system=said.given, original=None)
    notices = tuple(NoticeCollector(map(_ignored, said.further)))
    if found is not None and not said.others:
        last, again = await _regenerated(store, found, base.policy.owner)
        request = request.with_input(messages=again).with_policy(place=last.place)
    return PreparedTurn(
        request=request,
        store=store,
        events=None if mode.in_files else serving.store,
        shown=f"{FILES}{ref}" if mode.in_files else ref,
        notices=notices,
    )


async def _regenerated(
    store: Store, found: Conversation, owner: str
) -> tuple[Turn, tuple[Message, ...]]:
    """The turn that is answered once more, and what was said in it.

    It is the last in which a person said something: results of tools, which came later, go with
    the reply that they were for.
    """
    for tail in LOOKED_BACK:
        loaded = await store.load(found.id, owner=owner, tail=tail)
        for turn in reversed(loaded.turns):
            if turn.state != "running" and (said := _said_in(turn)):
                return turn, said
    raise _empty("There is nothing to answer again; send at least one message.")


def _said_in(turn: Turn) -> tuple[Message, ...]:
    """The messages of a turn up to the last plain one of the user's; none if tools began it."""
    places = [place for place, message in enumerate(turn.messages) if is_plain_user(message)]
    return turn.messages[: places[-1] + 1] if places else ()


def _taken_apart(prompt: Prompt) -> _Said:
    messages = prompt.messages
    places = [place for place, message in enumerate(messages) if message.role == "system"]
    if prompt.system is not None:
        others = tuple(message for message in messages if message.role != "system")
        return _Said(system=prompt.system, rest=messages, others=others, further=tuple(places))
    if not places:
        return _Said(system=None, rest=messages, others=messages)
    first = places[0]
    return _Said(
        system=messages[first],
        place=first,
        rest=messages[1:] if first == 0 else messages,
        others=tuple(message for message in messages if message.role != "system"),
        further=tuple(places[1:]),
    )


def _original(prompt: Prompt, said: _Said) -> Original | None:
    """The client's body, as what it says with the system prompt apart."""
    if prompt.original is None or said.system is None or said.place != 0:
        return prompt.original
    return replace(prompt.original, system=said.system, messages=said.rest)


def _ignored(place: int) -> Notice:
    return Notice(
        code="system_message_ignored",
        path=f"messages[{place}]",
        message="A request has one system prompt; this further system message was ignored.",
    )


def _empty(message: str) -> RefusedError:
    return RefusedError("empty_messages_array", message, param="messages")


def chosen_model(name: str, provider: str | None, serving: Serving) -> str:
    """The model with its provider where somebody named one; else as it is, to be looked up."""
    _check_name(name)
    return _chosen(name, provider, serving)


def _check_name(name: str) -> None:
    """FieldError for what cannot be a name: it is kept, counted and logged by whole names."""
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise FieldError(
            "model", f"a model has a name of at most {LONGEST_NAME} printable characters"
        )


def _chosen(name: str, provider: str | None, serving: Serving) -> str:
    if provider is not None:
        return _checked(_at(provider, name, serving), serving)
    prefix, slash, _ = name.partition("/")
    if slash and prefix in _providers(serving):
        return _checked(name, serving)
    routes = serving.settings.routes
    if name in routes:
        return routes[name]
    if any(name in models for models in _lists(serving)):
        return name
    default = serving.settings.default_provider
    if default is not None and has_model(name, serving.app.catalogue(default)):
        return f"{default}/{name}"
    return name


def _at(provider: str, name: str, serving: Serving) -> str:
    known = _providers(serving)
    if provider not in known:
        raise RefusedError(
            "invalid_header",
            f"{PROVIDER} names a provider that is not configured here; there are "
            f"{', '.join(sorted(known))}.",
            param=PROVIDER,
        )
    prefix, slash, _ = name.partition("/")
    if slash and prefix == provider:
        return name
    if slash and prefix in known:
        raise RefusedError(
            "invalid_header",
            f"{PROVIDER} says {provider}, but the model is {prefix}'s; leave one of them out.",
            param=PROVIDER,
        )
    return f"{provider}/{name}"


def _checked(model: str, serving: Serving) -> str:
    """The model, if its provider is not known to be without it."""
    provider, _, name = model.partition("/")
    settings = serving.app.settings
    if is_model_file(model) and model not in (serving.app.model, *settings.fallbacks):
        raise ModelNotFoundError(
            "A model file is asked for over HTTP only if the server's settings name it.",
            model=model,
        )
    if provider == LOCAL:
        return model
    catalogue = serving.app.catalogue(provider)
    if has_model(name, catalogue) is False:
        raise no_such_model(name, catalogue)
    return model


def _providers(serving: Serving) -> set[str]:
    return {LOCAL, *ROWS, *serving.app.settings.providers}


def _lists(serving: Serving) -> Iterable[tuple[str, ...]]:
    return (row.models for row in serving.app.settings.providers.values())

"""What a turn sends: the prompt of a request, for one model, cut to its window.

Puts together what `assembly` has; asks nobody and keeps nothing.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial

import msgspec

from cllm.assembly.assemble import assemble
from cllm.assembly.system import Context, SystemChoice
from cllm.assembly.tokens import weigh_text, weights_for
from cllm.core.conversation import Conversation
from cllm.core.notice import Notice
from cllm.core.prompt import Prompt
from cllm.engine.keep import Price
from cllm.engine.log import Served
from cllm.engine.request import Route, TurnRequest
from cllm.engine.windowing import cut_to_window


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One model about to be asked: who serves it, under which prompt and context, at what price."""

    route: Route
    model: str
    choice: SystemChoice
    context: Context
    price: Price


def served_by(
    route: Route, model: str, context_window: Callable[[Route], int | None], now: datetime
) -> Served:
    """What a window has to know of the model that is asked, and when it is."""
    return Served(
        model=model,
        provider=route.provider.name,
        context_window=partial(context_window, route),
        now=now,
    )


def windowed_prompt(
    conversation: Conversation | None, request: TurnRequest, attempt: Attempt, served: Served
) -> Prompt:
    """What is sent: assembled, and cut to its window if it has one."""
    prompt = _with_context_counted(whole_prompt(conversation, request, attempt), attempt)
    if request.window is None:
        return prompt
    return cut_to_window(
        prompt,
        conversation,
        request.window(attempt.model),
        served=served,
        place=request.place,
        tools=request.tools,
    )


def whole_prompt(
    conversation: Conversation | None, request: TurnRequest, attempt: Attempt
) -> Prompt:
    """The prompt with all of the history."""
    fixed = _fixed_model_notice(conversation, request)
    return assemble(
        conversation,
        request.messages if request.sent is None else request.sent,
        system=attempt.choice,
        context=attempt.context,
        notices=() if fixed is None else (fixed,),
        model=attempt.route.model,
        asked_model=attempt.model,
        said_to=model_of(conversation, request),
        parameters=request.parameters,
        dialect=request.dialect,
        strict=request.strict,
        original=request.original,
        stream=request.stream,
        cache_key=request.cache_key,
        place=request.place,
        kept=not request.read_only and request.sent is None,
    )


def model_of(conversation: Conversation | None, request: TurnRequest) -> str:
    """A conversation keeps the model it was created with."""
    stored = None if conversation is None else conversation.model
    return stored or request.model


def _with_context_counted(prompt: Prompt, attempt: Attempt) -> Prompt:
    """The prompt, with a note of how much of it is for this turn only."""
    if not attempt.context.now or prompt.window is None:
        return prompt
    weights = weights_for(attempt.route.provider.name)
    tokens = weigh_text(attempt.context.now, weights).tokens
    return msgspec.structs.replace(
        prompt, window=msgspec.structs.replace(prompt.window, context=tokens)
    )


def _fixed_model_notice(conversation: Conversation | None, request: TurnRequest) -> Notice | None:
    if conversation is None or not request.model_is_explicit:
        return None
    if conversation.model in (None, request.model):
        return None
    return Notice(
        code="model_fixed",
        path="model",
        message=(
            f"Conversation uses model '{conversation.model}', but you specified "
            f"'{request.model}'. Using '{conversation.model}'."
        ),
    )

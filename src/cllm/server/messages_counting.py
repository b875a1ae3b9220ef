"""POST /v1/messages/count_tokens: by whoever would answer, or estimated where they do not count."""

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from cllm.assembly.system import with_prefix
from cllm.assembly.tokens import estimate_tokens, weigh_text, weights_for
from cllm.core.message import plain_message
from cllm.core.notice import Notice
from cllm.core.ports import Provider, TokenCount, TokenCounter
from cllm.core.prompt import Prompt
from cllm.server.choosing import chosen_model
from cllm.server.messages import read_prompt
from cllm.server.refusal import RefusedError
from cllm.server.request_log import record_of
from cllm.server.running import JSON, encode_notices
from cllm.server.serving import Serving, serving_of
from cllm.server.wish import CONVERSATION, NOTICE, STATELESS, read_wish

NOT_WITH_HISTORY = Notice(
    code="history_not_counted",
    path=CONVERSATION,
    message="Only the request itself is counted, without the conversation's earlier messages.",
)


async def count(request: Request) -> Response:
    """How many tokens the prompt of a request is."""
    serving = serving_of(request)
    _, prompt = await read_prompt(request)
    if not prompt.messages:
        raise RefusedError(
            "empty_messages_array", "A request needs at least one message.", param="messages"
        )
    wish = read_wish(request.headers)
    model = chosen_model(prompt.model, wish.provider, serving)
    find = serving.app.find_route
    route = (
        find(model)
        if wish.callers_key is None
        else (serving.app.find_route_for(model, wish.callers_key))
    )
    _note(request, prompt, model)
    counted = await _counted(route.provider, _as_sent(prompt, route.model, serving))
    notices = [*prompt.notices, *counted.notices]
    if wish.mode != STATELESS:
        notices.append(NOT_WITH_HISTORY)
    body = counted.raw or msgspec.json.encode({"input_tokens": counted.tokens})
    headers = {NOTICE: encode_notices(notices)} if notices else {}
    return Response(body, headers=headers, media_type=JSON)


def _note(request: Request, prompt: Prompt, model: str) -> None:
    record = record_of(request)
    record.model, record.messages = model, len(prompt.messages)
    record.system_prompt = any(message.role == "system" for message in prompt.all_messages)


def _as_sent(prompt: Prompt, model: str, serving: Serving) -> Prompt:
    """The prompt for its model, under the operator's text if there is one."""
    prefix, system = serving.settings.system_prefix, prompt.system
    if prefix is not None:
        system = plain_message("system", prefix) if system is None else with_prefix(system, prefix)
    changed = system is not prompt.system
    original = None if changed else prompt.original
    return replace(prompt, model=model, system=system, original=original, stream=False)


async def _counted(provider: Provider, prompt: Prompt) -> TokenCount:
    """The provider's own count, or an estimate that says that it is one."""
    if isinstance(provider, TokenCounter):
        await provider.prepare()
        counted = await provider.count_tokens(prompt)
        if counted is not None:
            return counted
    return TokenCount(tokens=_estimate(provider.name, prompt), notices=(_estimated(provider),))


def _estimated(provider: Provider) -> Notice:
    return Notice(
        code="tokens_estimated",
        path="input_tokens",
        message=f"Provider '{provider.name}' does not count this; the number is an estimate.",
    )


def _estimate(provider: str, prompt: Prompt) -> int:
    weights = weights_for(provider)
    said = sum(estimate_tokens(message, weights) for message in prompt.all_messages)
    tools = prompt.parameters.get("tools")
    if not tools:
        return said
    return said + weigh_text(msgspec.json.encode(tools).decode(), weights).tokens

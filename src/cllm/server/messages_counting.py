"""POST /v1/messages/count_tokens: by whoever would answer, or estimated where they do not count.

What is counted is what a message would be asked for with, history and all. Nothing is kept.
"""

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from cllm.assembly.tokens import estimate_tokens, weigh_text, weights_for
from cllm.core.notice import Notice
from cllm.core.ports import Provider, TokenCount, TokenCounter
from cllm.core.prompt import Prompt
from cllm.server.messages import read_prompt, with_thread
from cllm.server.prepared_turn import engine_for, prepare_turn
from cllm.server.request_log import record_of
from cllm.server.serving import caller_of, serving_of
from cllm.server.turn_task import JSON, encode_notices
from cllm.server.wish import CONVERSATION, NOTICE, STATELESS, Continue, read_wish


async def count(request: Request) -> Response:
    """How many tokens the prompt of a request is."""
    serving, wish = serving_of(request), read_wish(request.headers)
    _, prompt = await read_prompt(request)
    if wish.mode != STATELESS and prompt.parameters.get("thread") is not None:
        prompt = with_thread(prompt, wish, serving)
    _note(request, prompt)
    prepared = await prepare_turn(prompt, wish, caller_of(request), serving)
    route, sent = await engine_for(prepared, serving).would_send(prepared.request)
    record_of(request).model = prepared.request.model
    counted = await _counted(route.provider, replace(sent, stream=False))
    notices = [*prepared.notices, *sent.notices, *counted.notices]
    headers = {NOTICE: encode_notices(notices)} if notices else {}
    if isinstance(wish.mode, Continue) and prepared.shown is not None:
        headers[CONVERSATION] = record_of(request).conversation = prepared.shown
    body = counted.raw or msgspec.json.encode({"input_tokens": counted.tokens})
    return Response(body, headers=headers, media_type=JSON)


def _note(request: Request, prompt: Prompt) -> None:
    record = record_of(request)
    record.messages = len(prompt.messages)
    record.system_prompt = any(message.role == "system" for message in prompt.all_messages)


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

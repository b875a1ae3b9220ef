"""POST /v1/messages: Anthropic's protocol, to whoever serves the model, with memory if wanted.

What Anthropic's clients say in headers is read here: beta flags go with the request to a provider
that knows them. The turn itself is taken as for any other protocol.
"""

import msgspec
from msgspec.structs import replace
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from cllm.assembly.tokens import estimate_tokens, weigh_text, weights_for
from cllm.core.notice import Notice
from cllm.core.ports import Provider, TokenCount, TokenCounter
from cllm.core.prompt import Prompt
from cllm.server.http.errors import RefusedError
from cllm.server.http.limits import check_counts, read_body
from cllm.server.http.request_log import record_of
from cllm.server.serving import Serving, caller_of, serving_of
from cllm.server.turns.encoders import AnthropicVoice, Voice
from cllm.server.turns.handler import reply_to
from cllm.server.turns.headers import CONVERSATION, NOTICE, STATELESS, Continue, Wish, read_wish
from cllm.server.turns.prepare import chosen_model, engine_for, prepare_turn
from cllm.server.turns.task import JSON, encode_notices
from cllm.wire.anthropic.models import read_betas
from cllm.wire.anthropic.request import decode_request

BETAS = "anthropic-beta"
VERSION = "anthropic-version"
SPOKEN_VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 1024
LIMITED = Notice(
    code="max_tokens_set",
    path="max_tokens",
    message=f"The request has no max_tokens; the answer is limited to {DEFAULT_MAX_TOKENS}.",
)
OTHER_VERSION = Notice(
    code="version_not_spoken",
    path=VERSION,
    message=f"This server speaks version {SPOKEN_VERSION}, whatever the header says.",
)

NO_THREADS = "thread_unsupported_request"
THREAD_LEFT_OUT = Notice(
    code="thread_left_out",
    path="thread",
    message="The conversation is kept here, and all of its history is sent; no thread is needed.",
)


async def create(request: Request) -> Response:
    """Answer a request for a message."""
    body, prompt = await read_prompt(request)
    prompt = with_limit(prompt)
    if prompt.parameters.get("thread") is not None:
        prompt = with_thread(prompt, read_wish(request.headers), serving_of(request))
    return await reply_to(request, prompt, body, _voice)


async def read_prompt(request: Request) -> tuple[bytes, Prompt]:
    """The body, and what it and its headers say."""
    limits = serving_of(request).settings.limits
    body = await read_body(request, limits)
    prompt = decode_request(body)
    check_counts(body, len(prompt.messages), limits)
    return body, with_headers(prompt, request.headers)


def with_headers(prompt: Prompt, headers: Headers) -> Prompt:
    """The prompt with the beta flags of the headers, and a notice of a version we do not speak."""
    if headers.get(VERSION, SPOKEN_VERSION) != SPOKEN_VERSION:
        prompt = replace(prompt, notices=(*prompt.notices, OTHER_VERSION))
    own, named = prompt.parameters.get("betas"), headers.getlist(BETAS)
    if own is None and not named:
        return prompt
    asked = (*read_betas(own), *read_betas(",".join(named)))
    flags = [flag.strip() for flag in asked if flag.strip()]
    if not flags:
        return prompt
    parameters = {**prompt.parameters, "betas": flags}
    original = prompt.original
    if original is not None:
        original = replace(original, parameters=parameters)
    return replace(prompt, parameters=parameters, original=original)


def with_limit(prompt: Prompt) -> Prompt:
    """The prompt with a limit on its answer, which Anthropic wants and others can do without."""
    if prompt.parameters.get("max_tokens") is not None:
        return prompt
    parameters = {**prompt.parameters, "max_tokens": DEFAULT_MAX_TOKENS}
    notices = (*prompt.notices, LIMITED)
    return replace(prompt, parameters=parameters, original=None, notices=notices)


def with_thread(prompt: Prompt, wish: Wish, serving: Serving) -> Prompt:
    """The prompt, for which Anthropic is to keep the state; RefusedError where nobody would.

    A client that is refused in these words sends the whole history instead. Where a conversation
    is kept here its history is ours, and is sent whole.
    """
    if wish.mode != STATELESS:
        parameters = {k: v for k, v in prompt.parameters.items() if k != "thread"}
        notices = (*prompt.notices, THREAD_LEFT_OUT)
        return replace(prompt, parameters=parameters, original=None, notices=notices)
    model = chosen_model(prompt.model, wish.provider, serving)
    if serving.app.settings.fallbacks or not serving.app.takes_callers_key(model):
        raise RefusedError(
            NO_THREADS,
            "Only Anthropic keeps threads; send the whole history without `thread`.",
            param="thread",
            details={"error_code": NO_THREADS, "unsupported": ["thread"]},
        )
    return prompt


def _voice(prompt: Prompt, serving: Serving) -> Voice:
    return AnthropicVoice(model=prompt.model, new_id=serving.new_id)


async def count(request: Request) -> Response:
    """How many tokens the prompt of a request is."""
    serving, wish = serving_of(request), read_wish(request.headers)
    _, prompt = await read_prompt(request)
    if wish.mode != STATELESS and prompt.parameters.get("thread") is not None:
        prompt = with_thread(prompt, wish, serving)
    _note(request, prompt)
    prepared = await prepare_turn(prompt, wish, caller_of(request), serving)
    route, sent = await engine_for(prepared, serving).would_send(prepared.request)
    record_of(request).model = prepared.request.target.model
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

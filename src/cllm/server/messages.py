"""POST /v1/messages: Anthropic's protocol, to whoever serves the model, with memory if wanted.

What Anthropic's clients say in headers is read here: beta flags go with the request to a provider
that knows them. The turn itself is taken as for any other protocol.
"""

from msgspec.structs import replace
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from cllm.core.notice import Notice
from cllm.core.prompt import Prompt
from cllm.server.choosing import chosen_model
from cllm.server.errors import RefusedError
from cllm.server.limits import check_counts, read_body
from cllm.server.messages_voice import AnthropicVoice
from cllm.server.replying import reply_to
from cllm.server.serving import Serving, serving_of
from cllm.server.voices import Voice
from cllm.server.wish import STATELESS, Wish, read_wish
from cllm.wire.anthropic.betas import read_betas
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

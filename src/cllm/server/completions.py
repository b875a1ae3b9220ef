"""POST /v1/chat/completions: OpenAI's protocol, with memory for those who ask for it."""

from starlette.requests import Request
from starlette.responses import Response

from cllm.core.prompt import Prompt
from cllm.server.limits import check_counts, read_body
from cllm.server.replying import reply_to
from cllm.server.serving import Serving, serving_of
from cllm.server.voices import OpenAIVoice, Voice
from cllm.wire.openai.request import decode_request


async def complete(request: Request) -> Response:
    """Answer a request for a chat completion."""
    limits = serving_of(request).settings.limits
    body = await read_body(request, limits)
    prompt = decode_request(body)
    check_counts(body, len(prompt.messages), limits)
    return await reply_to(request, prompt, body, _voice)


def _voice(prompt: Prompt, serving: Serving) -> Voice:
    return OpenAIVoice(
        model=prompt.model,
        new_id=serving.new_id,
        clock=serving.clock,
        parameters=prompt.parameters,
    )

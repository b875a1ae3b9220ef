"""POST /v1/chat/completions: OpenAI's protocol, with memory for those who ask for it."""

from typing import Any, Protocol, runtime_checkable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cllm.core.prompt import Prompt
from cllm.server.http.errors import RefusedError
from cllm.server.http.limits import check_counts, read_body
from cllm.server.http.request_log import record_of
from cllm.server.serving import Serving, serving_of
from cllm.server.turns.encoders import OpenAIVoice, Voice
from cllm.server.turns.handler import reply_to
from cllm.server.turns.headers import read_wish
from cllm.server.turns.prepare import chosen_model
from cllm.wire.malformed import FieldError
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


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


@runtime_checkable
class Embedder(Protocol):
    """A provider that has embeddings."""

    async def embed(self, body: bytes) -> bytes: ...


async def embed(request: Request) -> Response:
    """Answer a request for embeddings with what its model's provider says."""
    serving = serving_of(request)
    body = await read_body(request, serving.settings.limits)
    fields, name = _decoded(body)
    model = chosen_model(name, read_wish(request.headers).provider, serving)
    route = serving.app.find_route(model)
    record_of(request).model = model
    if not isinstance(route.provider, Embedder):
        raise RefusedError(
            "not_supported",
            f"Provider '{route.provider.name}' has no embeddings; name a model of an "
            "OpenAI-compatible one.",
            param="model",
        )
    await route.provider.prepare()
    if route.model != name:
        body = msgspec.json.encode({**fields, "model": route.model})
    return Response(await route.provider.embed(body), media_type="application/json")


def _decoded(body: bytes) -> tuple[dict[str, Any], str]:
    """The fields, unread, and the model among them."""
    try:
        fields = _fields.decode(body)
        model = msgspec.json.decode(fields["model"], type=str) if "model" in fields else ""
    except (msgspec.MsgspecError, ValueError) as error:
        raise FieldError("", f"body: not a JSON object with a model: {error}") from error
    if not model.strip():
        raise FieldError("model", "the name of a model is needed")
    if "input" not in fields:
        raise FieldError("input", "what is to be embedded is needed")
    return fields, model

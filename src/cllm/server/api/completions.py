"""Chat completions and embeddings in OpenAI's protocol."""

from typing import Any, Protocol, runtime_checkable

import msgspec
from starlette.responses import Response

from cllm.server.http.errors import JSON, RefusedError
from cllm.server.http.limits import check_counts, read_body
from cllm.server.serving import ApiRequest
from cllm.server.turns.encoders import OpenAIVoice
from cllm.server.turns.handler import reply_to
from cllm.server.turns.headers import read_wish
from cllm.server.turns.prepare import chosen_model
from cllm.wire.malformed import FieldError
from cllm.wire.openai.request import decode_request

_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


@runtime_checkable
class Embedder(Protocol):
    async def embed(self, body: bytes) -> bytes: ...


async def complete(request: ApiRequest) -> Response:
    """POST /v1/chat/completions."""
    room = request.serving.bodies
    body = await read_body(request, room)
    prompt = decode_request(body)
    check_counts(body, len(prompt.messages), room.limits)
    voice = OpenAIVoice(
        model=prompt.model,
        new_id=request.serving.new_id,
        clock=request.serving.clock,
        parameters=prompt.parameters,
    )
    return await reply_to(request, prompt, body, voice)


async def embed(request: ApiRequest) -> Response:
    """POST /v1/embeddings: the response of the model's provider."""
    serving = request.serving
    body = await read_body(request, serving.bodies)
    fields, name = _decode(body)
    model = chosen_model(name, read_wish(request.headers).provider, serving)
    route = serving.app.find_route(model)
    request.record.model = model
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
    return Response(await route.provider.embed(body), media_type=JSON)


def _decode(body: bytes) -> tuple[dict[str, Any], str]:
    try:
        fields = _decoder.decode(body)
        model = msgspec.json.decode(fields["model"], type=str) if "model" in fields else ""
    except (msgspec.MsgspecError, ValueError) as error:
        raise FieldError("", f"body: not a JSON object with a model: {error}") from error
    if not model.strip():
        raise FieldError("model", "the name of a model is needed")
    if "input" not in fields:
        raise FieldError("input", "what is to be embedded is needed")
    return fields, model

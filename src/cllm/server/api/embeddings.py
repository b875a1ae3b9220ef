"""The embeddings endpoint, forwarded to the model's provider."""

from typing import Any, Protocol, runtime_checkable

import msgspec
from starlette.responses import Response

from cllm.server.http.errors import JSON, ApiError
from cllm.server.http.limits import read_body
from cllm.server.state import ApiRequest
from cllm.server.turns.headers import read_turn_headers
from cllm.server.turns.model_selection import select_model
from cllm.wire.errors import FieldError

_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


@runtime_checkable
class Embedder(Protocol):
    async def embed(self, body: bytes) -> bytes: ...


async def create_embedding(request: ApiRequest) -> Response:
    """POST /v1/embeddings."""
    state = request.server
    body = await read_body(request, state.body_quota)
    fields, name = _decode_embedding_request(body)
    model = select_model(name, read_turn_headers(request.headers).provider, state)
    route = state.app.find_route(model)
    request.record.model, request.record.provider = model, route.provider.name
    if not isinstance(route.provider, Embedder):
        raise ApiError(
            "not_supported",
            f"Provider '{route.provider.name}' has no embeddings; use a model of an "
            "OpenAI-compatible provider.",
            param="model",
        )
    await route.provider.prepare()
    if route.model != name:
        body = msgspec.json.encode({**fields, "model": route.model})
    return Response(await route.provider.embed(body), media_type=JSON)


def _decode_embedding_request(body: bytes) -> tuple[dict[str, Any], str]:
    try:
        fields = _decoder.decode(body)
        model = msgspec.json.decode(fields["model"], type=str) if "model" in fields else ""
    except (msgspec.MsgspecError, ValueError) as error:
        raise FieldError("", f"body: not a JSON object with a model: {error}") from error
    if not model.strip():
        raise FieldError("model", "required; send the name of a model")
    if "input" not in fields:
        raise FieldError("input", "required; send the text to embed")
    return fields, model

"""POST /v1/embeddings: passed on to the model's provider, and its answer passed back."""

from typing import Any, Protocol, runtime_checkable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cllm.server.choosing import chosen_model
from cllm.server.errors import RefusedError
from cllm.server.limits import read_body
from cllm.server.request_log import record_of
from cllm.server.serving import serving_of
from cllm.server.wish import read_wish
from cllm.wire.malformed import FieldError

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

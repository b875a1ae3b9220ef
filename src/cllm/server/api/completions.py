"""Chat completions and embeddings in OpenAI's protocol."""

from typing import Any, Protocol, runtime_checkable

import msgspec
from starlette.responses import Response

from cllm.core.errors import ErrorReport
from cllm.core.ports import Clock, NewId
from cllm.core.reply import ReplyEvent, ReplyFinished
from cllm.server.http.errors import JSON, ApiError, encode_openai_error
from cllm.server.http.limits import check_counts, read_body
from cllm.server.state import ApiRequest
from cllm.server.turns.handler import handle_turn
from cllm.server.turns.headers import read_turn_headers
from cllm.server.turns.prepare import select_model
from cllm.wire.convert import parts_of
from cllm.wire.errors import FieldError
from cllm.wire.openai.functions import FunctionCalls, uses_functions
from cllm.wire.openai.request import decode_request
from cllm.wire.openai.response_encoder import OpenAIStreamEncoder, encode_reply

_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
KEEP_ALIVE = b": keep-alive\n\n"


@runtime_checkable
class Embedder(Protocol):
    async def embed(self, body: bytes) -> bytes: ...


async def complete(request: ApiRequest) -> Response:
    """POST /v1/chat/completions."""
    room = request.server.bodies
    body = await read_body(request, room)
    prompt = decode_request(body)
    check_counts(body, len(prompt.messages), room.limits)
    encoder = OpenAIResponseEncoder(
        model=prompt.model,
        new_id=request.server.new_id,
        clock=request.server.clock,
        parameters=prompt.parameters,
    )
    return await handle_turn(request, prompt, body, encoder)


async def embed(request: ApiRequest) -> Response:
    """POST /v1/embeddings: the response of the model's provider."""
    state = request.server
    body = await read_body(request, state.bodies)
    fields, name = _decode_embedding_request(body)
    model = select_model(name, read_turn_headers(request.headers).provider, state)
    route = state.app.find_route(model)
    request.record.model = model
    if not isinstance(route.provider, Embedder):
        raise ApiError(
            "not_supported",
            f"Provider '{route.provider.name}' has no embeddings; name a model of an "
            "OpenAI-compatible one.",
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
        raise FieldError("model", "the name of a model is needed")
    if "input" not in fields:
        raise FieldError("input", "what is to be embedded is needed")
    return fields, model


class OpenAIResponseEncoder:
    """Chat completions."""

    keep_alive = KEEP_ALIVE

    def __init__(
        self, *, model: str, new_id: NewId, clock: Clock, parameters: dict[str, Any]
    ) -> None:
        self._model = model
        self._new_id = new_id
        self._clock = clock
        self._parameters = parameters
        self._functions = FunctionCalls() if uses_functions(parameters) else None
        self._encoder: OpenAIStreamEncoder | None = None

    def encode(self, event: ReplyEvent) -> bytes:
        if self._encoder is None:
            options = self._parameters.get("stream_options")
            self._encoder = OpenAIStreamEncoder(
                model=self._model,
                id=self._id(),
                created=self._created(),
                include_usage=isinstance(options, dict) and options.get("include_usage") is True,
            )
        if self._functions is None:
            return self._encoder.encode(event)
        return b"".join(map(self._encoder.encode, self._functions.convert(event)))

    def error(self, report: ErrorReport) -> bytes:
        return b"data: " + encode_openai_error(report) + b"\n\n"

    def whole(self, reply: ReplyFinished) -> bytes:
        if reply.message.dialect == "openai" and reply.raw is not None:
            return encode_reply(reply, parts=())
        return encode_reply(
            reply,
            parts=parts_of(reply.message),
            model=reply.model or self._model,
            id=self._id(),
            created=self._created(),
            functions=self._functions is not None,
        )

    def _id(self) -> str:
        return f"chatcmpl-{self._new_id()}"

    def _created(self) -> int:
        return int(self._clock().timestamp())

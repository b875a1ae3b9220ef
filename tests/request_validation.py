"""What others say about the requests that we make: the SDKs' own types, and botocore's model.

Each takes a body as it goes over the wire and raises what is wrong with it.
"""

import base64
import functools
import json
from collections.abc import Iterable
from typing import Any

import botocore.loaders
import botocore.model
import botocore.validate
import pydantic
from anthropic.types import message_create_params as anthropic_params
from openai.types.chat import completion_create_params as openai_params

SAMPLING = {"temperature", "top_k", "top_p"}


def validate_openai_request(body: bytes) -> None:
    """OpenAI's types have a place for everything in this request."""
    _typed(
        json.loads(body),
        streaming=openai_params.CompletionCreateParamsStreaming,
        whole=openai_params.CompletionCreateParamsNonStreaming,
    )


def validate_compatible_request(body: bytes) -> None:
    """The same for a server like OpenAI's that takes past reasoning, as unknown ones are sent."""
    request = json.loads(body)
    for message in request["messages"]:
        if message["role"] == "assistant":
            message.pop("reasoning_content", None)
    validate_openai_request(json.dumps(request).encode())


def validate_anthropic_request(body: bytes, *, sampling: bool) -> None:
    """Anthropic's types have a place for everything in this request.

    They are those of models that take no temperature and its like; with `sampling` the model is an
    older one, to which the API still gives them.
    """
    request = json.loads(body)
    if sampling:
        for name in SAMPLING & request.keys():
            assert request.pop(name) >= 0
    _typed(
        request,
        streaming=anthropic_params.MessageCreateParamsStreaming,
        whole=anthropic_params.MessageCreateParamsNonStreaming,
    )


def validate_bedrock_request(body: bytes, *, model: str) -> None:
    """botocore would send this request to Converse and to ConverseStream."""
    for name in ("Converse", "ConverseStream"):
        shape = _operation(name).input_shape
        parameters = {"modelId": model, **_as_parameters(json.loads(body), shape)}
        report = botocore.validate.ParamValidator().validate(parameters, shape)
        assert not report.has_errors(), report.generate_report()


def _typed(request: dict[str, Any], *, streaming: Any, whole: Any) -> None:
    read = _adapter(streaming if request.get("stream") else whole).validate_python(request)
    # The types drop a field that they do not know.
    assert read_lazy_lists(read) == request


@functools.cache
def _adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(kind)


def read_lazy_lists(value: Any) -> Any:
    """The value with its lazy lists read, which is when they are judged."""
    if isinstance(value, dict):
        return {name: read_lazy_lists(inner) for name, inner in value.items()}
    if isinstance(value, str) or not isinstance(value, Iterable):
        return value
    return [read_lazy_lists(inner) for inner in value]


@functools.cache
def _operation(name: str) -> Any:
    described = botocore.loaders.Loader().load_service_model("bedrock-runtime", "service-2")
    return botocore.model.ServiceModel(described, "bedrock-runtime").operation_model(name)


def _as_parameters(value: Any, shape: Any) -> Any:
    """What a program would give botocore for this JSON: blobs are bytes there."""
    match shape.type_name:
        case "blob":
            return base64.b64decode(value, validate=True)
        case "list":
            return [_as_parameters(item, shape.member) for item in value]
        case "map":
            return {key: _as_parameters(item, shape.value) for key, item in value.items()}
        case "structure" if not shape.is_document_type:
            unknown = value.keys() - shape.members.keys()
            assert not unknown, f"{shape.name} has no {sorted(unknown)}"
            return {key: _as_parameters(item, shape.members[key]) for key, item in value.items()}
        case _:
            return value

"""Validates provider requests with the types of the SDKs and with botocore's service model.

Each function takes an encoded body and raises an error if it is invalid.
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
    """Check that OpenAI's types accept every field of the request."""
    _validate(
        json.loads(body),
        streaming=openai_params.CompletionCreateParamsStreaming,
        whole=openai_params.CompletionCreateParamsNonStreaming,
    )


def validate_compatible_request(body: bytes) -> None:
    """The same for OpenAI-compatible servers, which may receive past reasoning."""
    request = json.loads(body)
    for message in request["messages"]:
        if message["role"] == "assistant":
            message.pop("reasoning_content", None)
    validate_openai_request(json.dumps(request).encode())


def validate_anthropic_request(body: bytes, *, sampling: bool) -> None:
    """Check that Anthropic's types accept every field of the request.

    The types are for models without sampling parameters such as temperature. `sampling`: the model
    is an older one, for which the API still accepts them.
    """
    request = json.loads(body)
    if sampling:
        for name in SAMPLING & request.keys():
            assert request.pop(name) >= 0
    _validate(
        request,
        streaming=anthropic_params.MessageCreateParamsStreaming,
        whole=anthropic_params.MessageCreateParamsNonStreaming,
    )


def validate_bedrock_request(body: bytes, *, model: str) -> None:
    """Check that botocore accepts the request for Converse and ConverseStream."""
    for name in ("Converse", "ConverseStream"):
        shape = _operation(name).input_shape
        parameters = {"modelId": model, **_to_parameters(json.loads(body), shape)}
        report = botocore.validate.ParamValidator().validate(parameters, shape)
        assert not report.has_errors(), report.generate_report()


def _validate(request: dict[str, Any], *, streaming: Any, whole: Any) -> None:
    parsed = _adapter(streaming if request.get("stream") else whole).validate_python(request)
    # The types drop unknown fields.
    assert read_lazy_lists(parsed) == request


@functools.cache
def _adapter(type_: Any) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(type_)


def read_lazy_lists(value: Any) -> Any:
    """Return the value with its lazy lists read: pydantic validates them when they are read."""
    if isinstance(value, dict):
        return {name: read_lazy_lists(inner) for name, inner in value.items()}
    if isinstance(value, str) or not isinstance(value, Iterable):
        return value
    return [read_lazy_lists(inner) for inner in value]


@functools.cache
def _operation(name: str) -> Any:
    description = botocore.loaders.Loader().load_service_model("bedrock-runtime", "service-2")
    return botocore.model.ServiceModel(description, "bedrock-runtime").operation_model(name)


def _to_parameters(value: Any, shape: Any) -> Any:
    """Return botocore's parameters for this JSON. Blobs are bytes in botocore."""
    match shape.type_name:
        case "blob":
            return base64.b64decode(value, validate=True)
        case "list":
            return [_to_parameters(item, shape.member) for item in value]
        case "map":
            return {key: _to_parameters(item, shape.value) for key, item in value.items()}
        case "structure" if not shape.is_document_type:
            unknown = value.keys() - shape.members.keys()
            assert not unknown, f"{shape.name} has no {sorted(unknown)}"
            return {key: _to_parameters(item, shape.members[key]) for key, item in value.items()}
        case _:
            return value

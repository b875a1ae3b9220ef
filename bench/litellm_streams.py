"""LiteLLM's translation without its other work, for `wire.py`.

Calls only the functions that translate. Omitted, in LiteLLM's favour: router, callbacks, logging,
copies of the messages, the proxy's hooks, request signatures and the HTTP client. The measurement
starts and ends with the same bytes as cllm's: from a client's body to a provider's body, from a
provider's events to a client's events.

Chat completion requests: `get_optional_params` (translates tools and parameters), the provider
config's `transform_request`, then `json.dumps` as in its handlers. Requests to the Messages API are
first converted to a chat completion by the adapter of LiteLLM's `/v1/messages`.
Streams: the provider's iterator, `CustomStreamWrapper`, and `model_dump_json` as in its proxy; for
Anthropic clients the adapter's stream instead.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from traffic import MODELS, Client, Fields, Protocol

# Read at import: makes LiteLLM load its prices from its own file instead of the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import httpx
import httpx2
import litellm
import openai
from litellm.litellm_core_utils.litellm_logging import Logging
from litellm.litellm_core_utils.streaming_handler import CustomStreamWrapper
from litellm.llms.anthropic.chat.handler import ModelResponseIterator
from litellm.llms.anthropic.pass_through.adapters.handler import (
    ANTHROPIC_ADAPTER,
    LiteLLMMessagesToCompletionTransformationHandler,
)
from litellm.llms.bedrock.chat.invoke_handler import AWSEventStreamDecoder
from litellm.types.utils import LlmProviders
from litellm.utils import ProviderConfigManager, get_optional_params
from openai.types.chat import ChatCompletionChunk

litellm.suppress_debug_info = True
# Otherwise a thread counts and logs every chunk of a stream.
litellm.disable_streaming_logging = True

MODEL_IDS: dict[Protocol, str] = {
    "openai": MODELS["openai"],
    "anthropic": MODELS["anthropic"],
    "bedrock": f"us.anthropic.{MODELS['bedrock']}-v1:0",
}


def translate(body: bytes, client: Client, provider: Protocol) -> bytes:
    """Return the body that LiteLLM sends to a provider for a client's body."""
    fields = json.loads(body)
    del fields["model"]
    if client == "anthropic":
        fields = _convert_to_chat(fields, provider)
    return _encode_chat(fields, provider)


def _convert_to_chat(fields: Fields, provider: Protocol) -> Fields:
    prepare = LiteLLMMessagesToCompletionTransformationHandler._prepare_completion_kwargs  # noqa: SLF001
    extra = {"custom_llm_provider": provider}
    chat, _ = prepare(model=MODEL_IDS[provider], extra_kwargs=extra, **fields)
    return {name: value for name, value in chat.items() if name not in ("model", *extra)}


def _encode_chat(fields: Fields, provider: Protocol) -> bytes:
    model, messages = MODEL_IDS[provider], fields.pop("messages")
    parameters = get_optional_params(
        model=model, custom_llm_provider=provider, messages=messages, **fields
    )
    config = ProviderConfigManager.get_provider_chat_config(
        model=model, provider=LlmProviders(provider)
    )
    assert config is not None
    data = config.transform_request(
        model=model,
        messages=messages,
        optional_params=parameters,
        litellm_params={},
        headers={},
    )
    return json.dumps(data).encode()


def translate_stream(
    chunks: Iterable[bytes], client: Client, provider: Protocol
) -> Iterator[bytes]:
    """Yield the events that LiteLLM sends to a client for the bytes of a provider's stream."""
    events = CustomStreamWrapper(
        completion_stream=READERS[provider](iter(chunks)),
        model=MODEL_IDS[provider],
        custom_llm_provider=provider,
        logging_obj=_make_logging(MODEL_IDS[provider]),
        stream_options={"include_usage": True},
    )
    if client == "anthropic":
        return _encode_for_anthropic(events, MODEL_IDS[provider])
    return _encode_for_openai(events)


def _encode_for_openai(chunks: Iterable[Any]) -> Iterator[bytes]:
    for chunk in chunks:
        data = chunk.model_dump_json(exclude_none=True, exclude_unset=True)
        yield f"data: {data}\n\n".encode()


def _encode_for_anthropic(chunks: Iterable[Any], model: str) -> Iterator[bytes]:
    adapted = ANTHROPIC_ADAPTER.translate_completion_output_params_streaming(
        chunks, model=model, is_async=False
    )
    assert isinstance(adapted, Iterator)
    return adapted


def _make_logging(model: str) -> Logging:
    return Logging(
        model=model,
        messages=[],
        stream=True,
        call_type="completion",
        start_time=datetime.now(UTC),
        litellm_call_id="bench",
        function_id="bench",
    )


def _read_openai(chunks: Iterator[bytes]) -> Iterable[Any]:
    request = httpx2.Request("POST", "http://127.0.0.1")
    response = httpx2.Response(200, content=chunks, request=request)
    return openai.Stream(cast_to=ChatCompletionChunk, response=response, client=_openai_client)


def _read_anthropic(chunks: Iterator[bytes]) -> Iterable[Any]:
    lines = httpx.Response(200, content=chunks).iter_lines()
    return ModelResponseIterator(streaming_response=lines, sync_stream=True)


def _read_bedrock(chunks: Iterator[bytes]) -> Iterable[Any]:
    decoder = AWSEventStreamDecoder(model=MODEL_IDS["bedrock"])
    return decoder.iter_bytes(httpx.Response(200, content=chunks).iter_bytes())


_openai_client = openai.OpenAI(api_key="unused", base_url="http://127.0.0.1")
READERS: dict[Protocol, Callable[[Iterator[bytes]], Iterable[Any]]] = {
    "openai": _read_openai,
    "anthropic": _read_anthropic,
    "bedrock": _read_bedrock,
}

"""LiteLLM's translation, for `wire.py`: the functions that its own calls go through, and no more.

Left out, in its favour: its router, callbacks and logging, its copies of the messages, its proxy's
hooks, the signature, the HTTP client's sending. What is timed begins with the same bytes as ours
and ends with the same: a request's body from a client's body, a client's events from a provider's.

Requests to a chat completion: `get_optional_params` (where tools and parameters are translated),
then `transform_request` of the provider's config, then the `json.dumps` of its handlers. Requests
to the Messages API are first made a chat completion by the adapter that its `/v1/messages` uses.
Streams: the provider's iterator, `CustomStreamWrapper`, which makes chunks of what that gives, and
`model_dump_json` as its proxy calls it; for Anthropic's clients the adapter's stream instead.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from traffic import MODELS, Client, Fields, Protocol

# Read when the package is imported: its prices come from a file of its own then, not the network.
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
# Otherwise each chunk of a stream is given to a thread that counts and logs it.
litellm.disable_streaming_logging = True

NAMES: dict[Protocol, str] = {
    "openai": MODELS["openai"],
    "anthropic": MODELS["anthropic"],
    "bedrock": f"us.anthropic.{MODELS['bedrock']}-v1:0",
}


def translate(body: bytes, client: Client, provider: Protocol) -> bytes:
    """The body that LiteLLM would send to a provider for this body of a client's."""
    fields = json.loads(body)
    del fields["model"]
    if client == "anthropic":
        fields = _as_chat(fields, provider)
    return _encode_chat(fields, provider)


def _as_chat(fields: Fields, provider: Protocol) -> Fields:
    prepare = LiteLLMMessagesToCompletionTransformationHandler._prepare_completion_kwargs  # noqa: SLF001
    extra = {"custom_llm_provider": provider}
    chat, _ = prepare(model=NAMES[provider], extra_kwargs=extra, **fields)
    return {name: said for name, said in chat.items() if name not in ("model", *extra)}


def _encode_chat(fields: Fields, provider: Protocol) -> bytes:
    model, messages = NAMES[provider], fields.pop("messages")
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


def restream(pieces: Iterable[bytes], client: Client, provider: Protocol) -> Iterator[bytes]:
    """The events that LiteLLM would send to a client for these pieces of a provider's stream."""
    chunks = CustomStreamWrapper(
        completion_stream=READERS[provider](iter(pieces)),
        model=NAMES[provider],
        custom_llm_provider=provider,
        logging_obj=_logging(NAMES[provider]),
        stream_options={"include_usage": True},
    )
    if client == "anthropic":
        return _for_anthropic(chunks, NAMES[provider])
    return _for_openai(chunks)


def _for_openai(chunks: Iterable[Any]) -> Iterator[bytes]:
    for chunk in chunks:
        said = chunk.model_dump_json(exclude_none=True, exclude_unset=True)
        yield f"data: {said}\n\n".encode()


def _for_anthropic(chunks: Iterable[Any], model: str) -> Iterator[bytes]:
    adapted = ANTHROPIC_ADAPTER.translate_completion_output_params_streaming(
        chunks, model=model, is_async=False
    )
    assert isinstance(adapted, Iterator)
    return adapted


def _logging(model: str) -> Logging:
    return Logging(
        model=model,
        messages=[],
        stream=True,
        call_type="completion",
        start_time=datetime.now(UTC),
        litellm_call_id="bench",
        function_id="bench",
    )


def _read_openai(pieces: Iterator[bytes]) -> Iterable[Any]:
    request = httpx2.Request("POST", "http://127.0.0.1")
    response = httpx2.Response(200, content=pieces, request=request)
    return openai.Stream(cast_to=ChatCompletionChunk, response=response, client=_openai_client)


def _read_anthropic(pieces: Iterator[bytes]) -> Iterable[Any]:
    lines = httpx.Response(200, content=pieces).iter_lines()
    return ModelResponseIterator(streaming_response=lines, sync_stream=True)


def _read_bedrock(pieces: Iterator[bytes]) -> Iterable[Any]:
    decoder = AWSEventStreamDecoder(model=NAMES["bedrock"])
    return decoder.iter_bytes(httpx.Response(200, content=pieces).iter_bytes())


_openai_client = openai.OpenAI(api_key="unused", base_url="http://127.0.0.1")
READERS: dict[Protocol, Callable[[Iterator[bytes]], Iterable[Any]]] = {
    "openai": _read_openai,
    "anthropic": _read_anthropic,
    "bedrock": _read_bedrock,
}

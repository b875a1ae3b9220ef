"""The choice between OpenAI's two APIs, and the body of a request."""

import json
from typing import Any

import pytest

from cllm.core.message import Message, plain_message
from cllm.core.prompt import Prompt
from cllm.providers.openai import OpenAIProvider, choose_api
from cllm.wire.media import TEXT_ONLY

HELLO = (plain_message("user", "Hello"),)
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def make_provider(**options: Any) -> OpenAIProvider:
    fields = {"name": "mine", "base_url": "https://x.test/v1/", "api_key": None, "http": None}
    return OpenAIProvider(**fields | options)


def prompt(**fields: Any) -> Prompt:
    defaults: dict[str, Any] = {"model": "gpt-4o", "messages": HELLO, "stream": False}
    return Prompt(**defaults | fields)


@pytest.mark.parametrize(
    ("model", "url", "api"),
    [
        ("gpt-4o", "https://api.openai.com/v1", "chat"),
        ("gpt-5-pro", "https://api.openai.com/v1", "responses"),
        ("o3-pro-2025-06-10", "https://api.openai.com/v1", "responses"),
        ("gpt-5.1-codex", "https://api.openai.com/v1", "responses"),
        ("gpt-5-pro", "http://127.0.0.1:8000/v1", "chat"),
    ],
)
def test_only_openai_gets_the_responses_api(model, url, api):
    assert choose_api(prompt(model=model), url=url) == api


@pytest.mark.parametrize(
    ("api", "path", "field"),
    [("chat", "chat/completions", "messages"), ("responses", "responses", "input")],
)
def test_the_configured_api_is_used(api, path, field):
    request = make_provider(api=api)._build_request(prompt())

    assert request.url == f"https://x.test/v1/{path}"
    assert field in json.loads(request.body)


def test_defaults_fill_fields_that_the_prompt_lacks():
    provider = make_provider(defaults={"temperature": 0, "seed": 1})

    body = json.loads(provider.encode_body(prompt(parameters={"temperature": 1})))

    assert (body["temperature"], body["seed"]) == (1, 1)


@pytest.mark.parametrize(("key", "sent"), [(None, None), ("sk-a", "Bearer sk-a")])
async def test_a_key_is_sent_as_a_bearer_token(key, sent):
    provider = make_provider(api_key=key)

    headers = await provider._request_headers(provider._build_request(prompt()))

    assert headers.get("Authorization") == sent


def test_media_become_text_for_a_server_that_reads_text_only():
    content = [{"type": "text", "text": "Look."}, IMAGE]
    message = Message(role="user", raw=json.dumps({"role": "user", "content": content}).encode())

    more = prompt(
        messages=(message, plain_message("assistant", "I see."), plain_message("user", "!"))
    )
    plain = make_provider().encode_body(more)
    text_only = make_provider(media=TEXT_ONLY).encode_body(more)

    assert b"image_url" in plain
    assert b"image_url" not in text_only

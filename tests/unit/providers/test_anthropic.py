"""The requests of the Anthropic provider: URL, headers, beta flags and keys."""

import json
from typing import Any

import pytest

from cllm.core.message import plain_message
from cllm.core.prompt import Prompt
from cllm.core.secret import CallersKey, Secret
from cllm.providers.anthropic import AnthropicProvider
from cllm.providers.http.provider import SseReader
from cllm.wire.anthropic.passthrough import PassthroughReader

HELLO = (plain_message("user", "Hello"),)


def make_provider(**options: Any) -> AnthropicProvider:
    fields = {"name": "anthropic", "base_url": "https://x.test", "api_key": "sk-ours", "http": None}
    return AnthropicProvider(**fields | options)


def prompt(**fields: Any) -> Prompt:
    defaults: dict[str, Any] = {"model": "claude-sonnet-4-5", "messages": HELLO, "stream": False}
    return Prompt(**defaults | fields)


@pytest.mark.parametrize("base_url", ["https://x.test", "https://x.test/", "https://x.test/v1/"])
def test_the_url_has_one_version(base_url):
    request = make_provider(base_url=base_url)._build_request(prompt())

    assert request.url == "https://x.test/v1/messages"


async def test_our_key_is_sent_as_x_api_key():
    provider = make_provider()

    headers = await provider._request_headers(provider._build_request(prompt()))

    assert headers["x-api-key"] == "sk-ours"
    assert headers["anthropic-version"] == "2023-06-01"
    assert "anthropic-beta" not in headers


@pytest.mark.parametrize(
    ("token", "expected"),
    [(False, {"x-api-key": "sk-theirs"}), (True, {"Authorization": "Bearer sk-theirs"})],
)
async def test_a_callers_key_replaces_ours(token, expected):
    provider = make_provider(headers={"X-API-Key": "sk-configured", "X-A": "1"})
    key = CallersKey(provider="anthropic", secret=Secret("sk-theirs"), token=token)

    headers = await provider.with_key(key)._request_headers(provider._build_request(prompt()))

    assert expected.items() <= headers.items()
    assert headers["X-A"] == "1"
    assert "sk-ours" not in headers.values()
    assert "sk-configured" not in headers.values()


def test_configured_and_requested_betas_are_sent_once_and_unknown_ones_are_reported():
    provider = make_provider(
        betas=["output-128k-2025-02-19"], headers={"Anthropic-Beta": "files-api-2025-04-14"}
    )
    betas = ["files-api-2025-04-14", "no-such-flag"]

    request = provider._build_request(prompt(dialect="anthropic", parameters={"betas": betas}))

    assert request.headers == {"anthropic-beta": "output-128k-2025-02-19,files-api-2025-04-14"}
    assert [notice.code for notice in request.notices] == ["beta_left_out", "max_tokens_added"]


@pytest.mark.parametrize(
    ("dialect", "kind"), [("anthropic", PassthroughReader), ("openai", SseReader)]
)
def test_a_stream_for_an_anthropic_client_is_relayed_unchanged(dialect, kind):
    provider = make_provider()

    request = provider._build_request(prompt(dialect=dialect, parameters={"max_tokens": 5}))

    assert type(provider._stream_reader(request)) is kind


def test_messages_that_continue_a_stored_thread_are_not_repaired():
    thread = {"type": "continue", "id": "thread_1"}
    fields = {"max_tokens": 5, "thread": thread}
    answer = (plain_message("assistant", "Yes"), plain_message("user", "Why?"))

    request = make_provider()._build_request(
        prompt(messages=answer, dialect="anthropic", parameters=fields)
    )

    assert json.loads(request.body)["messages"][0]["role"] == "assistant"

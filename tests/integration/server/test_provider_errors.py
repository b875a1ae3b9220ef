"""Error responses of providers: message, param and request ID reach the client and the log."""

import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.fake_provider import FakeProvider, response_steps
from tests.messages_api import MODELS, OPERATORS_KEY, make_settings
from tests.server_app import ServerApp, open_server_app

from cllm.logs import configure

PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
BROKE = "You exceeded your current quota, please check your plan and billing details."


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        yield provider


@pytest.fixture
async def server(tmp_path: Path, provider: FakeProvider) -> AsyncIterator[ServerApp]:
    settings = yaml.safe_dump({**make_settings(provider), "num_retries": 2})
    async with open_server_app(tmp_path, settings) as running:
        yield running


async def post(
    server: ServerApp, *, to: str = "openai", model: str = "openai", **headers: str
) -> httpx.Response:
    body = {
        "model": MODELS[model],
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hello."}],
    }
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return await server("POST", PATHS[to], json=body, headers=names)


def read_error(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    return error


async def test_a_quota_error_keeps_the_providers_message_and_is_not_retried(
    server: ServerApp, provider: FakeProvider
):
    provider.queue_error(429, BROKE, code="insufficient_quota")

    response = await post(server)

    assert response.status_code == 429
    error = read_error(response)
    assert error["code"] == "insufficient_quota"
    assert BROKE in error["message"]
    assert "wait" not in error["message"]
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    ("model", "status", "code", "message", "kind"),
    [
        ("openai", 402, "402", "Insufficient credits. Add more.", "billing_error"),
        ("openai", 403, None, "Key limit exceeded (total limit).", "permission_error"),
        ("anthropic", 402, "billing_error", "Update your payment method.", "billing_error"),
        (
            "anthropic",
            400,
            "invalid_request_error",
            "Your credit balance is too low to access the Anthropic API.",
            "invalid_request_error",
        ),
        (
            "bedrock",
            400,
            "ServiceQuotaExceededException",
            "Your request exceeds the service quota for your account.",
            "invalid_request_error",
        ),
        (
            "bedrock",
            429,
            "ThrottlingException",
            "Too many tokens per day, please wait before trying again.",
            "rate_limit_error",
        ),
    ],
)
async def test_an_account_without_credit_is_reported_once_by_every_provider(
    server: ServerApp,
    provider: FakeProvider,
    model: str,
    status: int,
    code: str | None,
    message: str,
    kind: str,
):
    for _ in range(2):
        provider.queue_error(status, message, code=code)

    openai = await post(server, model=model)
    anthropic = await post(server, model=model, to="anthropic")

    assert (openai.status_code, read_error(openai)["code"]) == (status, "insufficient_quota")
    assert (anthropic.status_code, read_error(anthropic)["type"]) == (status, kind)
    for response in (openai, anthropic):
        assert message in read_error(response)["message"]
    assert len(provider.requests) == 2


async def test_throttling_of_bedrock_is_retried(server: ServerApp, provider: FakeProvider):
    provider.queue_error(429, "Too many requests.", code="ThrottlingException", retry_after="0")

    assert (await post(server, model="bedrock")).status_code == 200
    assert len(provider.requests) == 2


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("status", "code"), [(429, "rate_limited"), (500, "upstream_error"), (529, "upstream_error")]
)
@pytest.mark.parametrize("to", PATHS)
async def test_an_error_response_contains_the_providers_message(
    server: ServerApp, provider: FakeProvider, model: str, status: int, code: str, to: str
):
    for _ in range(3):
        provider.queue_error(status, "Limit 30000, requested 31000.", retry_after="0")

    response = await post(server, to=to, model=model)

    assert response.status_code == status
    assert "Limit 30000, requested 31000." in read_error(response)["message"]
    if to == "openai":
        assert read_error(response)["code"] == code


@pytest.mark.parametrize("status", [401, 403])
async def test_a_message_about_the_operators_account_is_not_sent_to_clients(
    server: ServerApp, provider: FakeProvider, status: int
):
    provider.queue_error(status, "User arn:aws:iam::123456789012:user/ops is not authorized.")

    response = await post(server, model="bedrock")

    assert response.status_code == status
    assert "123456789012" not in response.text


async def test_a_providers_message_contains_no_key_and_no_address(
    server: ServerApp, provider: FakeProvider
):
    text = f"No capacity at http://10.1.2.3/x for {OPERATORS_KEY}."
    for _ in range(3):
        provider.queue_error(503, text, retry_after="0")

    response = await post(server, model="anthropic")

    assert "No capacity" in response.text
    assert OPERATORS_KEY not in response.text
    assert "10.1.2.3" not in response.text


async def test_the_param_that_a_provider_rejects_is_named(
    server: ServerApp, provider: FakeProvider
):
    error = {"message": "Bad value.", "type": "invalid_request_error", "param": "top_p"}
    provider.queue_steps(*response_steps(400, json.dumps({"error": error}).encode()))

    response = await post(server)

    assert response.status_code == 400
    assert read_error(response)["param"] == "top_p"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "cllm.log"
    configure(as_json=True, file=file)
    yield file
    logger = logging.getLogger("cllm")
    for handler in logger.handlers:
        if type(handler) is logging.StreamHandler:
            handler.stream.close()
    logger.handlers.clear()


@pytest.mark.parametrize(
    ("model", "header"),
    [("openai", "x_request_id"), ("anthropic", "request_id"), ("bedrock", "x_amzn_RequestId")],
)
async def test_the_log_has_the_providers_message_and_request_id(
    tmp_path: Path, provider: FakeProvider, log: Path, model: str, header: str
):
    provider.queue_error(401, "The key was revoked.", **{header: "req_42"})

    async with open_server_app(tmp_path, yaml.safe_dump(make_settings(provider))) as server:
        await post(server, model=model)

    (line,) = map(json.loads, log.read_text("utf-8").splitlines())
    assert line["outcome"] == "provider_key_refused"
    assert line["provider_message"] == "The key was revoked."
    assert line["provider_request"] == "req_42"


async def test_a_client_that_counts_its_retries_is_the_only_one_that_retries(
    server: ServerApp, provider: FakeProvider
):
    for _ in range(3):
        provider.queue_error(503, "Down.", retry_after="0")

    failed = [await post(server, x_stainless_retry_count=str(count)) for count in range(3)]
    answered = await post(server, x_stainless_retry_count="3")

    assert [response.headers["x-should-retry"] for response in failed] == ["true"] * 3
    assert answered.status_code == 200
    assert "x-should-retry" not in answered.headers
    assert len(provider.requests) == 4


async def test_after_its_own_retries_the_server_asks_for_no_more(
    server: ServerApp, provider: FakeProvider
):
    for _ in range(3):
        provider.queue_error(503, "Down.", retry_after="0")

    failed = await post(server)

    assert (failed.status_code, failed.headers["x-should-retry"]) == (503, "false")
    assert len(provider.requests) == 3


async def test_with_fallbacks_the_server_retries_and_the_client_does_not(
    tmp_path: Path, provider: FakeProvider
):
    values = make_settings(provider) | {"num_retries": 1, "fallbacks": [MODELS["anthropic"]]}
    for _ in range(4):
        provider.queue_error(503, "Down.", retry_after="0")
    async with open_server_app(tmp_path, yaml.safe_dump(values)) as server:
        failed = await post(server, x_stainless_retry_count="0")

    assert failed.headers["x-should-retry"] == "false"
    assert len(provider.requests) == 4


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [(429, "insufficient_quota", "false"), (400, None, "false"), (401, None, "false")],
)
async def test_a_client_is_not_to_retry_what_cannot_succeed(
    server: ServerApp, provider: FakeProvider, status: int, code: str | None, expected: str
):
    provider.queue_error(status, "No.", code=code)

    response = await post(server, x_stainless_retry_count="0")

    assert response.headers["x-should-retry"] == expected


@pytest.mark.parametrize(
    ("model", "message", "code"),
    [
        ("openai", "This model's maximum context length is 8192 tokens.", None),
        ("bedrock", "Input is too long for requested model.", "ValidationException"),
        ("anthropic", "prompt is too long: 208310 tokens > 200000 maximum", None),
    ],
)
async def test_a_prompt_above_the_context_window_has_the_form_that_makes_clients_compact(
    server: ServerApp, provider: FakeProvider, model: str, message: str, code: str | None
):
    for _ in range(2):
        provider.queue_error(400, message, code=code)

    openai = await post(server, model=model)
    anthropic = await post(server, model=model, to="anthropic")

    assert (openai.status_code, anthropic.status_code) == (400, 400)
    assert read_error(openai)["code"] == "context_length_exceeded"
    assert "prompt is too long" in read_error(anthropic)["message"]
    assert message in read_error(anthropic)["message"]

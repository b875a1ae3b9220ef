"""Errors of messages as Anthropic's SDK raises them."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from tests.fake_provider import FakeProvider, Head, Send, Silence, closed_port
from tests.messages_api import MODELS, make_settings, start_server
from tests.server_process import Server

KEY = "key-of-the-caller-0123456789"
HELLO: Any = {"role": "user", "content": "Hello."}
CLAUDE = MODELS["anthropic"]
UNKNOWN = "00000000-0000-4000-8000-000000000000"
STREAM = Head(headers={"Content-Type": "text/event-stream"}, chunked=True)
STARTED = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","type":"message",'
    b'"role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,'
    b'"usage":{"input_tokens":1,"output_tokens":1}}}\n\n'
)


@pytest.fixture(scope="module")
def server(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = {"body_bytes": 200_000, "messages": 20}
    keys = [{"name": "caller", "owner": "caller", "key": KEY}]
    values = make_settings(upstream, limits=limits, keys=keys)
    own = {"type": "anthropic", "api_key": "unused", "models": ["any"]}
    values["providers"] |= {
        "gone": {**own, "api_base": f"http://127.0.0.1:{closed_port()}"},
        "silent": {**own, "api_base": upstream.root, "timeout": 1},
        "keyless": {"type": "anthropic", "api_base": upstream.root},
    }
    with start_server(tmp_path_factory.mktemp("errors"), values) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.address, api_key=KEY, max_retries=0) as made:
        yield made


def refusal(client: anthropic.Anthropic, **changes: Any) -> anthropic.APIStatusError:
    """Return the error that the SDK raises."""
    request_fields: Any = {"model": CLAUDE, "max_tokens": 9, "messages": [HELLO], **changes}
    with pytest.raises(anthropic.APIStatusError) as raised:
        client.messages.create(**request_fields)
    return raised.value


def kind(error: anthropic.APIStatusError) -> tuple[type[Exception], int, str]:
    body: Any = error.body
    assert body["type"] == "error"
    assert body["error"]["message"]
    return type(error), error.status_code, body["error"]["type"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model": "no-such"}, (anthropic.NotFoundError, 404, "not_found_error")),
        ({"messages": []}, (anthropic.BadRequestError, 400, "invalid_request_error")),
        ({"messages": [HELLO] * 21}, (anthropic.RequestTooLargeError, 413, "request_too_large")),
        ({"system": "x" * 300_000}, (anthropic.RequestTooLargeError, 413, "request_too_large")),
        ({"model": "gone/any"}, (anthropic.InternalServerError, 502, "api_error")),
        (
            {"extra_headers": {"X-Conversation-ID": UNKNOWN}},
            (anthropic.NotFoundError, 404, "not_found_error"),
        ),
        (
            {"extra_headers": {"X-Conversation-ID": "my own"}},
            (anthropic.BadRequestError, 400, "invalid_request_error"),
        ),
        (
            {
                "extra_headers": {"X-CLLM-Strict": "true"},
                "model": MODELS["openai"],
                "extra_body": {"top_k": 1},
            },
            (anthropic.BadRequestError, 400, "invalid_request_error"),
        ),
        (
            {
                "model": MODELS["openai"],
                "tools": [{"type": "web_search_20250305", "name": "web_search"}],
            },
            (anthropic.BadRequestError, 400, "invalid_request_error"),
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_before_the_provider_is_called(
    client: anthropic.Anthropic, changes: dict[str, Any], expected: tuple[Any, ...], stream: bool
):
    assert kind(refusal(client, stream=stream, **changes)) == expected


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, (anthropic.BadRequestError, 400, "invalid_request_error")),
        (401, (anthropic.AuthenticationError, 401, "authentication_error")),
        (403, (anthropic.PermissionDeniedError, 403, "permission_error")),
        (429, (anthropic.RateLimitError, 429, "rate_limit_error")),
        (500, (anthropic.InternalServerError, 500, "api_error")),
        (503, (anthropic.ServiceUnavailableError, 503, "api_error")),
    ],
)
def test_errors_of_a_provider(
    client: anthropic.Anthropic,
    upstream: FakeProvider,
    model: str,
    status: int,
    expected: tuple[Any, ...],
):
    upstream.queue_error(status, "No.", retry_after="3")
    error = refusal(client, model=model)

    assert kind(error) == expected
    if status == 429:
        assert error.response.headers["retry-after"] == "3"


def test_a_silent_provider_times_out(client: anthropic.Anthropic, upstream: FakeProvider):
    upstream.queue_steps(Silence())
    error = refusal(client, model="silent/any")

    assert (error.status_code, error.type) == (504, "api_error")
    assert isinstance(error, anthropic.InternalServerError | anthropic.GatewayTimeoutError)


def test_a_request_without_a_key_is_rejected(server: Server):
    with anthropic.Anthropic(base_url=server.address, api_key="wrong-key", max_retries=0) as made:
        assert kind(refusal(made)) == (
            anthropic.AuthenticationError,
            401,
            "authentication_error",
        )


def test_a_busy_conversation_is_a_conflict(client: anthropic.Anthropic, upstream: FakeProvider):
    begun = client.messages.with_raw_response.create(
        model=CLAUDE, max_tokens=9, messages=[HELLO], extra_headers={"X-Conversation-ID": ""}
    )
    header = {"X-Conversation-ID": begun.headers["X-Conversation-ID"]}
    gate = upstream.queue_held_reply("Very ", "late.")
    with client.messages.create(
        model=MODELS["openai"], max_tokens=9, messages=[HELLO], stream=True, extra_headers=header
    ) as running:
        gate.wait_reached()
        error = refusal(client, extra_headers=header)
        gate.open()
        last = [event.type for event in running][-1]

    assert kind(error) == (anthropic.ConflictError, 409, "invalid_request_error")
    assert int(error.response.headers["retry-after"]) >= 1
    assert error.response.headers["x-turn-id"] == running.response.headers["x-turn-id"]
    assert last == "message_stop"


@pytest.mark.parametrize(
    ("error_type", "expected"),
    [
        ("overloaded_error", "overloaded_error"),
        ("rate_limit_error", "rate_limit_error"),
        ("api_error", "api_error"),
        ("an_error_of_tomorrow", "api_error"),
    ],
)
def test_an_error_during_a_stream_keeps_its_type(
    client: anthropic.Anthropic, upstream: FakeProvider, error_type: str, expected: str
):
    upstream.queue_reply("Half ", "of it", stop_after=1, error=(error_type, "No more."))
    with (
        client.messages.stream(model=CLAUDE, max_tokens=9, messages=[HELLO]) as stream,
        pytest.raises(anthropic.APIStatusError) as raised,
    ):
        stream.get_final_message()

    assert kind(raised.value)[2] == expected
    assert "Provider 'anthropic'" in raised.value.message


def test_an_empty_stream_is_an_error(client: anthropic.Anthropic, upstream: FakeProvider):
    upstream.queue_steps(STREAM, Send(STARTED))

    assert kind(refusal(client, stream=True)) == (anthropic.InternalServerError, 502, "api_error")

"""The Bedrock provider against a server on loopback with real Converse frames."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.eventstream import EventStreamBuffer
from tests.fake_provider import (
    WAIT,
    FakeProvider,
    Head,
    Request,
    Send,
    ToolCall,
    error_frame,
    event_frame,
    exception_frame,
    response_steps,
)

from cllm.core import errors
from cllm.core.message import Message, Role, plain_message
from cllm.core.prompt import Prompt
from cllm.core.reply import (
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from cllm.providers.bedrock import AwsAccount, BedrockProvider
from cllm.providers.http.aiohttp_transport import AiohttpTransport
from cllm.providers.http.stdlib_transport import StdlibTransport
from cllm.providers.http.transport import HttpTransport

ACCESS = "AKIDEXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
TOKEN = "session+token/of=tests"
BEARER = "bedrock-api-key-0123456789abcdef"
REGION = "eu-central-1"
FRAMES = {"Content-Type": "application/vnd.amazon.eventstream"}
MODEL = "claude-3-7-sonnet-20250219"
RAW_PATH = "/model/eu.anthropic.claude-3-7-sonnet-20250219-v1%3A0/"
PIRATE = "You are a pirate. Always respond like a pirate."
ALICE: tuple[tuple[Role, str], ...] = (
    ("user", "My name is Alice"),
    ("assistant", "Hello Alice!"),
    ("user", "What is my name?"),
)
both_ways = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use the credentials of the tests only."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AWS_WEB_IDENTITY_TOKEN_FILE", raising=False)
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.fixture
def server() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        # A server that is stopped before its loop runs for good would be waited for in vain.
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), provider._loop).result(WAIT)
        yield provider


@pytest.fixture(params=[AiohttpTransport, StdlibTransport])
def transport(request: pytest.FixtureRequest) -> type[HttpTransport]:
    kind: type[HttpTransport] = request.param
    return kind


@pytest.fixture
async def make(server: FakeProvider, transport: type[HttpTransport]) -> AsyncIterator[Any]:
    """Make providers of that server; close them after the test."""
    providers: list[BedrockProvider] = []

    def make(headers: dict[str, str] | None = None, **account: Any) -> BedrockProvider:
        arguments: dict[str, Any] = {"region": REGION, "endpoint_url": server.root} | account
        providers.append(
            BedrockProvider(
                name="test", account=AwsAccount(**arguments), http=transport(), headers=headers
            )
        )
        return providers[-1]

    yield make
    for provider in providers:
        await provider.close()


def prompt(*messages: Message, **fields: Any) -> Prompt:
    return Prompt(
        **{"model": MODEL, "messages": messages or (plain_message("user", "Hello"),)} | fields
    )


async def ask(provider: BedrockProvider, *messages: Message, **fields: Any) -> list[ReplyEvent]:
    return [event async for event in provider.ask(prompt(*messages, **fields))]


async def expect_error(
    provider: BedrockProvider, kind: type[errors.ProviderError], **fields: Any
) -> Any:
    """Check that a request raises exactly this error, one sentence without secrets."""
    events: list[ReplyEvent] = []

    async def listen() -> None:
        async for event in provider.ask(prompt(**fields)):
            events.append(event)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(errors.ProviderError) as caught:
        await listen()
    error = caught.value
    assert not any(isinstance(event, ReplyFinished) for event in events)
    assert type(error) is kind, error
    assert error.provider == "test"
    for secret in (SECRET, BEARER, TOKEN):
        assert secret not in str(error)
    assert "\n" not in str(error)
    assert len(str(error)) < 600
    return error


def last(events: list[ReplyEvent]) -> ReplyFinished:
    event = events[-1]
    assert isinstance(event, ReplyFinished)
    return event


def texts(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (message["role"], "".join(block["text"] for block in message["content"]))
        for message in messages
    ]


class TestFrames:
    """The frames that the fake encodes itself, decoded by botocore."""

    @pytest.mark.parametrize("size", [1, 5, 10_000])
    def test_botocore_decodes_the_frames_of_the_fake(self, size):
        data = event_frame("messageStop", {"stopReason": "end_turn", "p": "ä🐈"})
        data += exception_frame("throttlingException", "Slow.") + error_frame("Oops", "No.")
        buffer = EventStreamBuffer()
        found: list[Any] = []
        for start in range(0, len(data), size):
            buffer.add_data(data[start : start + size])
            found += list(buffer)

        event, exception, error = found
        assert event.headers == {
            ":event-type": "messageStop",
            ":content-type": "application/json",
            ":message-type": "event",
        }
        assert json.loads(event.payload) == {"stopReason": "end_turn", "p": "ä🐈"}
        assert exception.headers[":exception-type"] == "throttlingException"
        assert json.loads(exception.payload) == {"message": "Slow."}
        assert error.headers[":error-code"] == "Oops"
        assert error.to_response_dict()["status_code"] == 400


@both_ways
class TestReplies:
    async def test_a_streamed_and_a_complete_response_are_equal(self, server, make, stream):
        server.queue_reply("Hel", "lo ä🐈", usage=(5, 3))

        events = await ask(make(), stream=stream)

        texts = [event.text for event in events if isinstance(event, TextDelta)]
        assert "".join(texts) == "Hello ä🐈"
        end = last(events)
        assert end.message.json() == {"role": "assistant", "content": [{"text": "Hello ä🐈"}]}
        assert (end.message.dialect, end.stop_reason) == ("bedrock", "end")
        assert end.usage == Usage(input=5, output=3)

    async def test_the_model_id_is_escaped_in_the_path(self, server, make, stream):
        await ask(make(), stream=stream)

        (request,) = server.requests
        assert request.method == "POST"
        assert request.path == RAW_PATH + ("converse-stream" if stream else "converse")
        assert request.headers["content-type"] == "application/json"
        assert not {"model", "modelId", "stream"} & set(request.json)

    async def test_an_arn_is_escaped_completely(self, server, make, stream):
        arn = "arn:aws:bedrock:eu-central-1:123456789012:application-inference-profile/abc"

        await ask(make(), model=arn, stream=stream)

        (request,) = server.requests
        model = request.path.split("/")[2]
        assert model == arn.replace(":", "%3A").replace("/", "%2F")
        assert_signed(server, request)

    async def test_thinking_and_a_tool_call_are_complete(self, server, make, stream):
        call = ToolCall(id="tooluse_1", name="weather", arguments='{"city": "Kyiv", "days": 2}')
        server.queue_reply(
            "Let me see.", reasoning=("Hm, ", "so."), tool_calls=(call,), finish="tool_calls"
        )

        events = await ask(make(), stream=stream)

        thoughts = [event for event in events if isinstance(event, ThinkingDelta)]
        assert "".join(thought.text for thought in thoughts) == "Hm, so."
        assert [t.signature for t in thoughts if t.signature] == ["c2lnbmVk"]
        calls = [event for event in events if isinstance(event, ToolCallDelta)]
        assert (calls[0].id, calls[0].name) == ("tooluse_1", "weather")
        assert json.loads("".join(c.arguments for c in calls)) == {"city": "Kyiv", "days": 2}
        end = last(events)
        assert end.stop_reason == "tool_calls"
        use = {"toolUseId": "tooluse_1", "name": "weather", "input": {"city": "Kyiv", "days": 2}}
        thought = {"text": "Hm, so.", "signature": "c2lnbmVk"}
        assert end.message.json()["content"] == [
            {"reasoningContent": {"reasoningText": thought}},
            {"toolUse": use},
            {"text": "Let me see."},
        ]

    async def test_a_truncated_response_has_the_stop_reason_length(self, server, make, stream):
        server.queue_reply("Hel", finish="length")

        assert last(await ask(make(), stream=stream)).stop_reason == "length"

    async def test_the_whole_history_is_sent(self, server, make, stream):
        history = [plain_message(role, text) for role, text in ALICE]

        events = await ask(make(), *history, stream=stream)

        assert texts(server.requests[0].json["messages"]) == list(ALICE)
        assert last(events).message.text == "echo: What is my name?"

    async def test_the_system_prompt_is_sent_as_text(self, server, make, stream):
        hello = plain_message("user", "Hello!")

        await ask(make(), hello, system=plain_message("system", PIRATE), stream=stream)

        (request,) = server.requests
        assert request.json["system"] == [{"text": PIRATE}]
        assert texts(request.json["messages"]) == [("user", "Hello!")]

    async def test_the_providers_own_answer_is_sent_back_unchanged(self, server, make, stream):
        server.queue_reply("Let me see.", reasoning=("Hm.",))
        provider = make()
        hello = plain_message("user", "Hello")
        answer = last(await ask(provider, hello, stream=stream)).message

        await ask(provider, hello, answer, plain_message("user", "And?"), stream=stream)

        assert server.requests[1].json["messages"][1] == answer.json()

    async def test_tools_and_options_are_sent_in_the_format_of_the_api(self, server, make, stream):
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        function = {"name": "weather", "description": "Looks.", "parameters": schema}
        options = {
            "max_tokens": 50,
            "temperature": 0.5,
            "stop": ["END"],
            "tools": [{"type": "function", "function": function}],
        }

        await ask(make(), parameters=options, stream=stream)

        sent = server.requests[0].json
        assert sent["inferenceConfig"] == {
            "maxTokens": 50,
            "temperature": 0.5,
            "stopSequences": ["END"],
        }
        (tool,) = sent["toolConfig"]["tools"]
        assert tool["toolSpec"]["name"] == "weather"
        assert tool["toolSpec"]["inputSchema"] == {"json": schema}

    async def test_a_tool_call_has_the_clients_tool_name(self, server, make, stream):
        function = {"name": "files.read", "parameters": {"type": "object"}}
        options = {"tools": [{"type": "function", "function": function}]}
        provider = make()
        await ask(provider, parameters=options, stream=stream)
        (tool,) = server.requests[0].json["toolConfig"]["tools"]
        alias = tool["toolSpec"]["name"]
        call = ToolCall(id="tooluse_1", name=alias, arguments="{}")
        server.queue_reply(tool_calls=(call,), finish="tool_calls")

        events = await ask(provider, parameters=options, stream=stream)

        assert alias != "files.read"
        names = [event.name for event in events if isinstance(event, ToolCallDelta)]
        assert names[0] == "files.read"
        assert last(events).message.json()["content"][0]["toolUse"]["name"] == "files.read"


class TestStreams:
    @pytest.mark.parametrize("packet", [1, 7, None])
    async def test_packets_of_any_size_give_the_same_reply(self, server, make, packet):
        server.queue_reply("Hel", "lo ä🐈", packet=packet)

        assert last(await ask(make())).message.text == "Hello ä🐈"

    async def test_events_are_yielded_before_the_response_is_complete(self, server, make):
        gate = server.queue_held_reply("Hel", "lo")
        async with aclosing(make().ask(prompt())) as events:
            assert await anext(events) == TextDelta(text="Hel")
            gate.open()
            assert await anext(events) == TextDelta(text="lo")

    async def test_a_response_without_usage_is_complete(self, server, make):
        server.queue_reply("Hi", usage=None)

        assert last(await ask(make())).usage is None


def assert_signed(server: FakeProvider, request: Request, *, token: str | None = None) -> None:
    """Sign the raw request again, at the time it says, and come to the same signature."""
    authorization = request.headers["authorization"]
    signed = authorization.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    headers = {name: request.headers[name] for name in signed if name != "host"}
    again = AWSRequest(
        method="POST", url=server.root + request.path, data=request.body, headers=headers
    )
    again.context["timestamp"] = request.headers["x-amz-date"]
    auth = SigV4Auth(Credentials(ACCESS, SECRET, token), "bedrock", REGION)
    canonical = auth.canonical_request(again)
    signature = auth.signature(auth.string_to_sign(again, canonical), again)
    scope = f"{request.headers['x-amz-date'][:8]}/{REGION}/bedrock/aws4_request"
    assert authorization.startswith(f"AWS4-HMAC-SHA256 Credential={ACCESS}/{scope}, ")
    assert authorization.endswith(f"Signature={signature}")
    assert request.headers["host"] == server.root.removeprefix("http://")
    assert "host" in signed


@both_ways
class TestCredentials:
    async def test_a_request_is_signed(self, server, make, stream):
        await ask(make(), plain_message("user", "ä🐈"), stream=stream)

        assert_signed(server, server.requests[0])

    async def test_the_session_token_is_sent(self, server, make, stream, monkeypatch):
        monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)

        await ask(make(), stream=stream)

        (request,) = server.requests
        assert request.headers["x-amz-security-token"] == TOKEN
        assert_signed(server, request, token=TOKEN)

    async def test_configured_headers_are_signed(self, server, make, stream):
        await ask(make(headers={"X-Team": "a"}), stream=stream)

        assert server.requests[0].headers["x-team"] == "a"
        assert_signed(server, server.requests[0])

    async def test_a_profile_is_used(self, server, make, stream, monkeypatch, tmp_path):
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        keys = f"aws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n"
        (tmp_path / "credentials").write_text(f"[work]\n{keys}")

        await ask(make(profile="work"), stream=stream)

        assert_signed(server, server.requests[0])

    async def test_a_bearer_token_replaces_the_signature(self, server, make, stream, monkeypatch):
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

        await ask(make(bearer=BEARER), stream=stream)

        (request,) = server.requests
        assert request.headers["authorization"] == f"Bearer {BEARER}"
        assert "x-amz-date" not in request.headers

    async def test_missing_credentials_are_one_sentence(self, server, make, stream, monkeypatch):
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

        error = await expect_error(make(), errors.AuthenticationError, stream=stream)

        assert "Cannot load AWS credentials" in str(error)
        assert "AWS_BEARER_TOKEN_BEDROCK" in str(error)
        assert str(error).count(". ") == 0
        assert server.requests == []

    async def test_incomplete_credentials_are_an_error(self, server, make, stream, monkeypatch):
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

        await expect_error(make(), errors.AuthenticationError, stream=stream)

        assert server.requests == []

    async def test_a_missing_profile_is_named_in_the_error(self, server, make, stream):
        error = await expect_error(
            make(profile="nowhere"), errors.AuthenticationError, stream=stream
        )

        assert "nowhere" in str(error)
        assert server.requests == []

    async def test_an_expired_login_is_one_sentence(
        self, server, make, stream, monkeypatch, tmp_path
    ):
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        (tmp_path / "config").write_text(
            "[profile work]\nsso_start_url = http://host.invalid\nsso_region = eu-central-1\n"
            "sso_account_id = 123456789012\nsso_role_name = tests\n"
        )

        error = await expect_error(make(profile="work"), errors.AuthenticationError, stream=stream)

        assert "SSO" in str(error)
        assert server.requests == []

    async def test_a_failing_credential_process_is_one_sentence(
        self, server, make, stream, monkeypatch, tmp_path
    ):
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        (tmp_path / "config").write_text("[profile work]\ncredential_process = false\n")

        await expect_error(make(profile="work"), errors.AuthenticationError, stream=stream)

        assert server.requests == []

    async def test_an_unknown_model_is_an_error_with_close_matches(self, server, make, stream):
        with pytest.raises(errors.ModelNotFoundError, match="claude-3-7-sonnet-20250219") as caught:
            await ask(make(), model="claude-3-7-sonet-20250219", stream=stream)

        assert caught.value.model == "claude-3-7-sonet-20250219"
        assert server.requests == []

    async def test_a_model_without_a_profile_in_the_region_is_an_error_with_its_profiles(
        self, server, make, stream
    ):
        profile = "us.anthropic.claude-opus-4-1-20250805-v1:0"
        with pytest.raises(errors.ModelNotFoundError, match=profile):
            await ask(make(), model="claude-opus-4-1", stream=stream)

        assert server.requests == []


REFUSALS = [
    (400, "ValidationException", errors.InvalidRequestError),
    (401, "UnrecognizedClientException", errors.AuthenticationError),
    (403, "AccessDeniedException", errors.PermissionDeniedError),
    (404, "ResourceNotFoundException", errors.InvalidRequestError),
    (408, "ModelTimeoutException", errors.UpstreamError),
    (424, "ModelErrorException", errors.UpstreamError),
    (429, "ThrottlingException", errors.RateLimitedError),
    (500, "InternalServerException", errors.UpstreamError),
    (503, "ServiceUnavailableException", errors.UpstreamError),
]


@both_ways
class TestErrorResponses:
    async def test_error_messages_never_contain_the_keys_of_the_account(
        self, server, make, stream, monkeypatch
    ):
        monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
        server.queue_error(403, f"Bad signature with {SECRET} and {TOKEN}.")

        await expect_error(make(), errors.PermissionDeniedError, stream=stream)

    async def test_the_error_type_can_be_in_the_body(self, server, make, stream):
        body = {"__type": "com.amazon.coral#ThrottlingException", "Message": "Slow down."}
        server.queue_steps(*response_steps(429, json.dumps(body).encode()))

        error = await expect_error(make(), errors.RateLimitedError, stream=stream)

        assert error.code == "ThrottlingException"
        assert "Slow down." in str(error)

    @pytest.mark.parametrize(
        "body",
        [b"", b"<html>Bad gateway</html>", b"\xff\xfe", b"[]", b'{"message": 5}', b"x" * 100_000],
        ids=["empty", "html", "bytes", "list", "number", "long"],
    )
    async def test_an_error_body_can_be_anything(self, server, make, stream, body):
        server.queue_steps(*response_steps(502, body))

        error = await expect_error(make(), errors.UpstreamError, stream=stream)

        assert "returned HTTP 502" in str(error)


TEXT = event_frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hi"}})
STOP = event_frame("messageStop", {"stopReason": "end_turn"})


class TestBrokenStreams:
    @pytest.mark.parametrize("index", [9, 20, -6, -1])
    async def test_a_frame_with_a_wrong_checksum_is_a_bad_reply(self, server, make, index):
        frame = bytearray(TEXT)
        frame[index] ^= 1
        server.queue_steps(Head(headers=FRAMES, chunked=True), Send(bytes(frame) + STOP))

        await expect_error(make(), errors.BadReplyError)

    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            ("internalServerException", errors.UpstreamError),
            ("modelStreamErrorException", errors.UpstreamError),
            ("modelTimeoutException", errors.UpstreamError),
            ("serviceUnavailableException", errors.UpstreamError),
            ("newKindOfException", errors.UpstreamError),
            ("throttlingException", errors.RateLimitedError),
            ("validationException", errors.InvalidRequestError),
        ],
    )
    @pytest.mark.parametrize("after", [0, 1, 2])
    async def test_an_exception_in_a_stream_is_the_error_of_its_type(
        self, server, make, code, kind, after
    ):
        server.queue_reply("Hel", "lo", stop_after=after, error=(code, f"No {BEARER}\nleft."))

        error = await expect_error(make(bearer=BEARER), kind)

        assert error.code == code
        assert "No *** left." in str(error)

    @pytest.mark.parametrize("before", [b"", TEXT, TEXT + STOP], ids=["first", "middle", "end"])
    async def test_an_unmodelled_error_ends_the_stream(self, server, make, before):
        frame = error_frame("InternalError", f"No {BEARER} left.")
        server.queue_steps(Head(headers=FRAMES, chunked=True), Send(before + frame))

        error = await expect_error(make(bearer=BEARER), errors.UpstreamError)

        assert "No *** left." in str(error)
        assert error.code == "InternalError"

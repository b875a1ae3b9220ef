"""The real LiteLLM against a server on loopback that does everything wrong."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from tests.fake_provider import (
    WAIT,
    Cut,
    FakeProvider,
    Silence,
    ToolCall,
    closed_port,
    response_steps,
)

from cllm.core import errors
from cllm.core.message import Message, plain_message
from cllm.core.prompt import Prompt
from cllm.core.reply import (
    ModelReported,
    Noticed,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from cllm.providers.http.transport import Timeouts
from cllm.providers.litellm import LitellmProvider, load_library

KEY = "sk-0123456789abcdef"
OPENAI = "openai/gpt-test"
ANTHROPIC = "anthropic/claude-test"
SHORT = 0.3
SOON = 10
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {"where": {"type": "string"}}},
    },
}
CALL = ToolCall(id="call_1", name="look", arguments='{"where":"here"}')
# LiteLLM uses what its own dependencies deprecate.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:litellm")
both_models = pytest.mark.parametrize("model", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])
both_ways = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    """LiteLLM's import is long; the time limit of a test is not for it."""
    load_library()


@pytest.fixture
def server() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        # A server that is stopped before its loop runs for good would be waited for in vain.
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), provider._loop).result(WAIT)
        yield provider


@pytest.fixture
async def make(server: FakeProvider) -> AsyncIterator[Any]:
    """Makes providers that ask the model's service at that server, and closes them."""
    providers: list[LitellmProvider] = []

    def make(model: str = OPENAI, **options: Any) -> LitellmProvider:
        base = server.root if model == ANTHROPIC else server.url
        arguments: dict[str, Any] = {"name": "litellm", "api_key": KEY, "api_base": base} | options
        providers.append(LitellmProvider(**arguments))
        return providers[-1]

    yield make
    for provider in providers:
        await provider.close()


def prompt(model: str = OPENAI, text: str = "Hello", **fields: Any) -> Prompt:
    return Prompt(model=model, **({"messages": (plain_message("user", text),)} | fields))


async def ask(provider: LitellmProvider, model: str = OPENAI, **fields: Any) -> list[ReplyEvent]:
    return [event async for event in provider.ask(prompt(model, **fields))]


async def expect_error(
    provider: LitellmProvider, kind: type[errors.ProviderError], model: str, **fields: Any
) -> Any:
    """The error of that very kind, on one line and without the key."""
    with pytest.raises(errors.ProviderError) as caught:
        await ask(provider, model, **fields)
    assert type(caught.value) is kind, repr(caught.value)
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.provider == "litellm"
    return caught.value


def finished(events: list[ReplyEvent]) -> ReplyFinished:
    last = events[-1]
    assert isinstance(last, ReplyFinished)
    return last


def text(events: list[ReplyEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def message(role: Any, **fields: Any) -> Message:
    return Message(role=role, raw=json.dumps({"role": role, **fields}).encode())


class TestAnswers:
    @both_models
    @both_ways
    async def test_a_response_has_a_stop_reason_and_usage(self, server, make, model, stream):
        server.queue_reply("Hel", "lo")

        events = await ask(make(model), model, stream=stream)

        last = finished(events)
        assert text(events) == last.message.text == "Hello"
        assert last.stop_reason == "end"
        assert last.usage == Usage(input=11, output=7)
        assert last.message.json() == {"role": "assistant", "content": "Hello"}

    @both_models
    async def test_a_stream_is_yielded_while_it_is_sent(self, server, make, model):
        gate = server.queue_held_reply("Hel", "lo", at=1)

        async with aclosing(make(model).ask(prompt(model))) as events:
            model, first = await anext(events), await anext(events)
            gate.open()
            rest = [event async for event in events]

        assert isinstance(model, ModelReported)
        assert first == TextDelta(text="Hel")
        assert text(rest) == "lo"

    @both_models
    @both_ways
    async def test_tool_calls_are_complete(self, server, make, model, stream):
        server.queue_reply(tool_calls=(CALL,), finish="tool_calls")

        events = await ask(make(model), model, stream=stream, parameters={"tools": [TOOL]})

        last = finished(events)
        assert last.stop_reason == "tool_calls"
        (call,) = last.message.json()["tool_calls"]
        assert (call["id"], call["function"]["name"]) == ("call_1", "look")
        assert json.loads(call["function"]["arguments"]) == {"where": "here"}
        assert call.keys() == {"id", "type", "function"}
        pieces = [event for event in events if isinstance(event, ToolCallDelta)]
        assert json.loads("".join(piece.arguments for piece in pieces)) == {"where": "here"}

    @both_models
    @both_ways
    async def test_thinking_is_separate_from_the_text(self, server, make, model, stream):
        server.queue_reply("Yes.", reasoning=("Hm", "."))

        events = await ask(make(model), model, stream=stream)

        thought = [event for event in events if isinstance(event, ThinkingDelta)]
        assert "".join(event.text for event in thought) == "Hm."
        assert text(events) == "Yes."
        assert finished(events).message.json()["reasoning_content"] == "Hm."

    @both_ways
    async def test_signed_thinking_is_sent_back_to_the_model_that_signed_it(
        self, server, make, stream
    ):
        server.queue_reply("Yes.", reasoning=("Hm.",), signature="c2ln")
        provider = make(ANTHROPIC)
        events = await ask(provider, ANTHROPIC, stream=stream)
        reply = finished(events).message
        block = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
        question = plain_message("user", "Sure?")

        await ask(provider, ANTHROPIC, messages=(question, reply, question))
        await ask(provider, ANTHROPIC, messages=(question, reply, question), foreign=frozenset({1}))

        assert "c2ln" in [e.signature for e in events if isinstance(e, ThinkingDelta)]
        assert reply.json()["reasoning_details"] == [block]
        assert block in server.requests[1].messages[1]["content"]
        assert "c2ln" not in server.requests[2].body.decode()

    async def test_reasoning_is_sent_back_in_the_field_of_the_service(self, server, make):
        question = plain_message("user", "Hi")
        messages = (
            question,
            message("assistant", content="Yes.", reasoning_content="Hm."),
            question,
        )

        await ask(make(), "groq/x", messages=messages)
        await ask(make(), "deepseek/x", messages=messages)

        assert server.requests[0].messages[1]["reasoning"] == "Hm."
        assert "reasoning_content" not in server.requests[0].messages[1]
        assert server.requests[1].messages[1]["reasoning_content"] == "Hm."

    @both_ways
    async def test_missing_token_counts_are_unknown(self, server, make, stream):
        server.queue_reply("Hello", usage=None)

        assert finished(await ask(make(), stream=stream)).usage is None


class TestRequests:
    @both_models
    @both_ways
    async def test_system_prompt_history_and_tools_are_sent(self, server, make, model, stream):
        call: dict[str, Any] = {"id": "call_1", "type": "function"}
        call |= {"function": {"name": "look", "arguments": '{"where":"here"}'}}
        history = (
            plain_message("user", "Look here."),
            message("assistant", content=None, tool_calls=[call]),
            message("tool", tool_call_id="call_1", content="A cat."),
            plain_message("user", "And?"),
        )

        await ask(
            make(model),
            model,
            stream=stream,
            system=plain_message("system", "Be brief."),
            messages=history,
            parameters={"tools": [TOOL], "temperature": 0, "max_tokens": 50},
        )

        sent = server.requests[0].json
        body = server.requests[0].body.decode()
        for word in ("Be brief.", "Look here.", "call_1", "here", "A cat.", "And?", "Looks."):
            assert word in body
        assert sent["model"] == model.partition("/")[2]
        assert (sent["temperature"], sent["max_tokens"]) == (0, 50)
        assert bool(sent.get("stream")) == stream
        if model == OPENAI:
            assert sent["messages"] == [
                {"role": "system", "content": "Be brief."},
                *({k: v for k, v in sent.json().items() if v is not None} for sent in history),
            ]

    @both_models
    async def test_key_and_headers_are_sent(self, server, make, model):
        await ask(make(model, headers={"X-Team": "blue"}), model)

        headers = server.requests[0].headers
        assert KEY in (headers.get("authorization", "") + headers.get("x-api-key", ""))
        assert headers["x-team"] == "blue"

    @pytest.mark.parametrize(
        "field",
        ["api_base", "api_key", "base_url", "extra_headers", "mock_response", "fallbacks"],
    )
    async def test_a_prompt_cannot_set_litellms_arguments(self, server, make, field):
        events = await ask(make(), parameters={field: "http://127.0.0.1:1/v1"})

        (noticed,) = [event for event in events if isinstance(event, Noticed)]
        assert noticed.notice.path == field
        assert "127.0.0.1:1" not in server.requests[0].body.decode()

    async def test_configured_options_are_litellms_arguments(self, server, make):
        provider = make(options={"custom_llm_provider": "openai", "stream": False, "model": "no"})

        await ask(provider, "gpt-test")

        assert server.requests[0].json["model"] == "gpt-test"
        assert server.requests[0].json["stream"] is True

    async def test_the_name_of_a_model_cannot_be_an_address(self, server, make):
        model = f"huggingface/{server.url}"

        await expect_error(make(), errors.UnsendableError, model)
        assert server.requests == []

    async def test_strict_mode_refuses_changes(self, server, make):
        error = await expect_error(
            make(), errors.StrictError, OPENAI, parameters={"api_base": "x"}, strict=True
        )

        assert [notice.path for notice in error.notices] == ["api_base"]
        assert server.requests == []

    async def test_a_parameter_that_the_service_does_not_accept_is_refused(self, server, make):
        error = await expect_error(
            make(ANTHROPIC), errors.InvalidRequestError, ANTHROPIC, parameters={"seed": 3}
        )

        assert "seed" in str(error)
        assert server.requests == []

    async def test_an_unknown_service_is_refused(self, server, make):
        await expect_error(make(), errors.InvalidRequestError, "nosuchservice/x")
        assert server.requests == []


class TestFaults:
    @both_models
    @both_ways
    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            (400, errors.InvalidRequestError),
            (401, errors.AuthenticationError),
            (403, errors.PermissionDeniedError),
            (404, errors.InvalidRequestError),
            (429, errors.RateLimitedError),
            (500, errors.UpstreamError),
            (503, errors.UpstreamError),
            (529, errors.UpstreamError),
        ],
    )
    async def test_an_error_status_is_the_error_of_its_class(
        self, server, make, model, stream, status, kind
    ):
        server.queue_error(status, f"Not with {KEY}.", **{"Retry-After": "7"})

        error = await expect_error(make(model), kind, model, stream=stream)

        assert error.status == status
        assert error.retry_after == 7
        assert "Not with ***." in str(error)
        assert error.provider_message == "Not with ***."
        assert len(server.requests) == 1

    @both_models
    @both_ways
    async def test_an_account_without_credit_is_recognised(self, server, make, model, stream):
        kind = "insufficient_quota" if model == OPENAI else "billing_error"
        server.queue_error(429 if model == OPENAI else 402, "Pay first.", code=kind)

        error = await expect_error(make(model), errors.QuotaExceededError, model, stream=stream)

        assert error.provider_message == "Pay first."

    @both_ways
    async def test_a_prompt_that_is_too_long_is_recognised_by_its_code(self, server, make, stream):
        server.queue_error(400, "No.", code="context_length_exceeded")

        await expect_error(make(), errors.PromptTooLongError, OPENAI, stream=stream)

    @both_models
    @both_ways
    async def test_an_unreachable_server(self, make, model, stream):
        base = f"http://127.0.0.1:{closed_port()}/v1"

        error = await expect_error(
            make(model, api_base=base), errors.UnreachableError, model, stream=stream
        )
        assert base.removesuffix("/v1") in str(error)

    @both_models
    @both_ways
    async def test_a_server_that_closes_the_connection(self, server, make, model, stream):
        server.queue_steps(Cut())

        await expect_error(make(model), errors.BrokenStreamError, model, stream=stream)

    @both_models
    @pytest.mark.parametrize(
        "end", [{"stop_after": 1}, {"stop_after": 1, "abrupt": False}, {"finish": None}]
    )
    async def test_a_stream_without_a_finish_reason_is_broken(self, server, make, model, end):
        if model == OPENAI and end == {"finish": None}:
            end = end | {"done": False}
        server.queue_reply("Hel", "lo", **end)

        await expect_error(make(model), errors.BrokenStreamError, model)

    @both_models
    async def test_a_truncated_response_is_an_error(self, server, make, model):
        server.queue_reply("Hel", "lo", stop_after=1)

        await expect_error(make(model), errors.BrokenStreamError, model, stream=False)

    async def test_an_error_event_in_a_stream(self, server, make):
        server.queue_reply("Hel", "lo", stop_after=1, error=("overloaded_error", f"Busy {KEY}"))

        await expect_error(make(ANTHROPIC), errors.UpstreamError, ANTHROPIC)

    @both_models
    async def test_a_response_that_is_not_json_is_an_error(self, server, make, model):
        server.queue_steps(*response_steps(200, b"<html>"))

        await expect_error(make(model), errors.BadReplyError, model, stream=False)

    @both_models
    async def test_a_web_page_instead_of_a_stream_is_an_error(self, server, make, model):
        server.queue_steps(*response_steps(200, b"<html>Sign in</html>", content_type="text/html"))

        await expect_error(make(model), errors.BadReplyError, model, stream=True)

    @both_models
    @both_ways
    async def test_silence_ends_in_a_timeout(self, server, make, model, stream):
        server.queue_steps(Silence())

        provider = make(model, timeouts=Timeouts(first_byte=SHORT, idle=SHORT))
        await expect_error(provider, errors.ProviderTimeoutError, model, stream=stream)

    @both_models
    async def test_silence_in_a_stream_has_a_separate_timeout(self, server, make, model):
        server.queue_held_reply("Hel", "lo", at=1)

        provider = make(model, timeouts=Timeouts(first_byte=WAIT, idle=SHORT))
        await expect_error(provider, errors.ProviderTimeoutError, model)
        await asyncio.to_thread(server.requests[0].wait_disconnected, SOON)

    async def test_an_error_contains_no_key_from_the_environment(self, server, make):
        server.queue_error(401, "Not with hunter2-hunter2.")

        error = await expect_error(
            make(secrets=["hunter2-hunter2"]), errors.AuthenticationError, OPENAI
        )
        assert "hunter2" not in str(error)

    @pytest.mark.parametrize("key", ["sk-ü", "sk-\n"])
    async def test_a_key_that_a_header_cannot_contain_is_refused(self, server, make, key):
        await expect_error(make(api_key=key), errors.AuthenticationError, OPENAI)
        assert server.requests == []

    @pytest.mark.parametrize(
        ("model", "variable"),
        [
            (OPENAI, "OPENAI_API_KEY"),
            (ANTHROPIC, "ANTHROPIC_API_KEY"),
            ("gemini/gemini-pro", "GEMINI_API_KEY"),
            ("azure/gpt", "AZURE_API_KEY"),
            ("groq/llama", "GROQ_API_KEY"),
        ],
    )
    async def test_a_missing_key_is_named(self, server, make, monkeypatch, model, variable):
        for name in (variable, "ANTHROPIC_AUTH_TOKEN", "GOOGLE_API_KEY", "OPENAI_ADMIN_KEY"):
            monkeypatch.delenv(name, raising=False)
        # Groq gets a request without a key.
        server.queue_error(401, "Unauthorized.")

        with pytest.raises(errors.MissingKeyError) as caught:
            await ask(make(model, api_key=None), model)

        assert variable in caught.value.variable
        assert str(caught.value).startswith("Provider 'litellm' needs an API key: ")
        assert "/" not in str(caught.value)

    async def test_the_error_of_an_earlier_attempt_is_not_the_cause(self, make):
        unreachable = make(api_base=f"http://127.0.0.1:{closed_port()}/v1")
        try:
            await ask(unreachable)
        except errors.UnreachableError:
            await expect_error(make(), errors.InvalidRequestError, "nosuchservice/x")


class TestMissingPackages:
    @pytest.mark.parametrize(
        ("model", "advice"),
        [
            ("vertex_ai/gemini-2.5-flash", "install litellm[google] in the environment of cllm"),
            ("vertex_ai/claude-3-5-sonnet", "pip install google-cloud-aiplatform"),
        ],
    )
    @both_ways
    async def test_a_missing_package_of_a_service_is_named(
        self, make, monkeypatch, model, advice, stream
    ):
        monkeypatch.setitem(sys.modules, "google", None)
        monkeypatch.setitem(sys.modules, "vertexai", None)

        with pytest.raises(errors.MissingPackageError) as caught:
            await ask(make(model, api_key=None), model, stream=stream)

        assert advice in str(caught.value)
        assert "on this machine" in str(caught.value)
        assert "provider's side" not in str(caught.value)


class TestCancellation:
    @both_models
    async def test_an_abandoned_stream_is_closed(self, server, make, model):
        server.queue_held_reply("Hel", "lo", at=1)

        async with aclosing(make(model).ask(prompt(model))) as events:
            await anext(events)

        await asyncio.to_thread(server.requests[0].wait_disconnected, SOON)

    @both_models
    @both_ways
    async def test_a_cancelled_turn_ends_immediately(self, server, make, model, stream):
        server.queue_steps(Silence())
        turn = asyncio.ensure_future(ask(make(model), model, stream=stream))
        await asyncio.to_thread(server.wait_for, 1)

        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn

        await asyncio.to_thread(server.requests[0].wait_disconnected, SOON)


class TestLoading:
    def test_litellm_prints_nothing_and_uses_no_network(self):
        litellm = load_library().litellm

        assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
        assert litellm.suppress_debug_info
        assert not litellm.telemetry
        assert not litellm.drop_params

    async def test_a_missing_litellm_names_the_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "litellm", None)

        with pytest.raises(errors.MissingExtraError, match=r"install .*\[litellm\]'"):
            await LitellmProvider(name="litellm").prepare()

    async def test_an_unused_provider_is_closed_without_loading_litellm(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "litellm", None)

        await LitellmProvider(name="litellm").close()

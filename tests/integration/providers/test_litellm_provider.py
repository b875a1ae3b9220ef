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
    made: list[LitellmProvider] = []

    def make(model: str = OPENAI, **options: Any) -> LitellmProvider:
        base = server.root if model == ANTHROPIC else server.url
        given: dict[str, Any] = {"name": "litellm", "api_key": KEY, "api_base": base} | options
        made.append(LitellmProvider(**given))
        return made[-1]

    yield make
    for provider in made:
        await provider.close()


def prompt(model: str = OPENAI, text: str = "Hello", **fields: Any) -> Prompt:
    return Prompt(model=model, **({"messages": (plain_message("user", text),)} | fields))


async def ask(provider: LitellmProvider, model: str = OPENAI, **fields: Any) -> list[ReplyEvent]:
    return [event async for event in provider.ask(prompt(model, **fields))]


async def fails(
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
    async def test_the_answer_comes_with_its_end_and_its_counts(self, server, make, model, stream):
        server.say("Hel", "lo")

        events = await ask(make(model), model, stream=stream)

        last = finished(events)
        assert text(events) == last.message.text == "Hello"
        assert last.stop_reason == "end"
        assert last.usage == Usage(input=11, output=7)
        assert last.message.json() == {"role": "assistant", "content": "Hello"}

    @both_models
    async def test_a_stream_comes_as_it_is_sent(self, server, make, model):
        gate = server.say_held("Hel", "lo", at=1)

        async with aclosing(make(model).ask(prompt(model))) as events:
            first = await anext(events)
            gate.open()
            rest = [event async for event in events]

        assert first == TextDelta(text="Hel")
        assert text(rest) == "lo"

    @both_models
    @both_ways
    async def test_tool_calls_come_whole(self, server, make, model, stream):
        server.say(tool_calls=(CALL,), finish="tool_calls")

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
    async def test_thinking_is_apart_from_the_text(self, server, make, model, stream):
        server.say("Yes.", reasoning=("Hm", "."))

        events = await ask(make(model), model, stream=stream)

        thought = [event for event in events if isinstance(event, ThinkingDelta)]
        assert "".join(event.text for event in thought) == "Hm."
        assert text(events) == "Yes."
        assert finished(events).message.json()["reasoning_content"] == "Hm."

    @both_ways
    async def test_signed_thinking_goes_back_to_the_model_that_signed_it(
        self, server, make, stream
    ):
        server.say("Yes.", reasoning=("Hm.",), signature="c2ln")
        provider = make(ANTHROPIC)
        events = await ask(provider, ANTHROPIC, stream=stream)
        reply = finished(events).message
        block = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
        asked = plain_message("user", "Sure?")

        await ask(provider, ANTHROPIC, messages=(asked, reply, asked))
        await ask(provider, ANTHROPIC, messages=(asked, reply, asked), foreign=frozenset({1}))

        assert "c2ln" in [e.signature for e in events if isinstance(e, ThinkingDelta)]
        assert reply.json()["reasoning_details"] == [block]
        assert block in server.requests[1].messages[1]["content"]
        assert "c2ln" not in server.requests[2].body.decode()

    async def test_reasoning_goes_back_in_the_field_that_the_service_takes(self, server, make):
        asked = plain_message("user", "Hi")
        messages = (asked, message("assistant", content="Yes.", reasoning_content="Hm."), asked)

        await ask(make(), "groq/x", messages=messages)
        await ask(make(), "deepseek/x", messages=messages)

        assert server.requests[0].messages[1]["reasoning"] == "Hm."
        assert "reasoning_content" not in server.requests[0].messages[1]
        assert server.requests[1].messages[1]["reasoning_content"] == "Hm."

    @both_ways
    async def test_counts_that_did_not_come_are_unknown(self, server, make, stream):
        server.say("Hello", usage=None)

        assert finished(await ask(make(), stream=stream)).usage is None


class TestRequests:
    @both_models
    @both_ways
    async def test_system_prompt_history_and_tools_arrive(self, server, make, model, stream):
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
                *({k: v for k, v in said.json().items() if v is not None} for said in history),
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
    async def test_a_prompt_cannot_say_how_litellm_asks(self, server, make, field):
        events = await ask(make(), parameters={field: "http://127.0.0.1:1/v1"})

        (noticed,) = [event for event in events if isinstance(event, Noticed)]
        assert noticed.notice.path == field
        assert "127.0.0.1:1" not in server.requests[0].body.decode()

    async def test_the_settings_options_are_litellm_s_arguments(self, server, make):
        provider = make(options={"custom_llm_provider": "openai", "stream": False, "model": "no"})

        await ask(provider, "gpt-test")

        assert server.requests[0].json["model"] == "gpt-test"
        assert server.requests[0].json["stream"] is True

    async def test_a_model_s_name_cannot_be_an_address(self, server, make):
        model = f"huggingface/{server.url}"

        await fails(make(), errors.UnsendableError, model)
        assert server.requests == []

    async def test_in_strict_mode_nothing_is_left_out(self, server, make):
        error = await fails(
            make(), errors.StrictError, OPENAI, parameters={"api_base": "x"}, strict=True
        )

        assert [notice.path for notice in error.notices] == ["api_base"]
        assert server.requests == []

    async def test_a_parameter_that_the_service_does_not_take_is_refused(self, server, make):
        error = await fails(
            make(ANTHROPIC), errors.InvalidRequestError, ANTHROPIC, parameters={"seed": 3}
        )

        assert "seed" in str(error)
        assert server.requests == []

    async def test_a_service_that_litellm_does_not_have_is_refused(self, server, make):
        await fails(make(), errors.InvalidRequestError, "nosuchservice/x")
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
    async def test_a_refusal_means_what_its_status_means(
        self, server, make, model, stream, status, kind
    ):
        server.fail(status, f"Not with {KEY}.", **{"Retry-After": "7"})

        error = await fails(make(model), kind, model, stream=stream)

        assert error.status == status
        assert error.retry_after == 7
        assert "Not with ***." in str(error)
        assert len(server.requests) == 1

    @both_ways
    async def test_a_prompt_that_is_too_long_is_told_by_its_code(self, server, make, stream):
        server.fail(400, "No.", code="context_length_exceeded")

        await fails(make(), errors.PromptTooLongError, OPENAI, stream=stream)

    @both_models
    @both_ways
    async def test_nobody_there(self, make, model, stream):
        base = f"http://127.0.0.1:{closed_port()}/v1"

        error = await fails(
            make(model, api_base=base), errors.UnreachableError, model, stream=stream
        )
        assert base.removesuffix("/v1") in str(error)

    @both_models
    @both_ways
    async def test_a_server_that_hangs_up(self, server, make, model, stream):
        server.answer(Cut())

        await fails(make(model), errors.BrokenStreamError, model, stream=stream)

    @both_models
    @pytest.mark.parametrize(
        "end", [{"stop_after": 1}, {"stop_after": 1, "abrupt": False}, {"finish": None}]
    )
    async def test_a_stream_without_a_finish_reason_is_broken(self, server, make, model, end):
        if model == OPENAI and end == {"finish": None}:
            end = end | {"done": False}
        server.say("Hel", "lo", **end)

        await fails(make(model), errors.BrokenStreamError, model)

    @both_models
    async def test_an_answer_that_is_cut_is_no_answer(self, server, make, model):
        server.say("Hel", "lo", stop_after=1)

        await fails(make(model), errors.BrokenStreamError, model, stream=False)

    async def test_an_error_in_the_middle_of_a_stream(self, server, make):
        server.say("Hel", "lo", stop_after=1, error=("overloaded_error", f"Busy {KEY}"))

        await fails(make(ANTHROPIC), errors.UpstreamError, ANTHROPIC)

    @both_models
    async def test_what_is_no_json_is_no_answer(self, server, make, model):
        server.answer(*response_steps(200, b"<html>"))

        await fails(make(model), errors.BadReplyError, model, stream=False)

    @both_models
    async def test_a_web_page_where_a_stream_should_be_is_no_answer(self, server, make, model):
        server.answer(*response_steps(200, b"<html>Sign in</html>", content_type="text/html"))

        await fails(make(model), errors.BadReplyError, model, stream=True)

    @both_models
    @both_ways
    async def test_silence_ends_after_its_limit(self, server, make, model, stream):
        server.answer(Silence())

        provider = make(model, timeouts=Timeouts(first_byte=SHORT, idle=SHORT))
        await fails(provider, errors.ProviderTimeoutError, model, stream=stream)

    @both_models
    async def test_silence_within_a_stream_has_a_limit_of_its_own(self, server, make, model):
        server.say_held("Hel", "lo", at=1)

        provider = make(model, timeouts=Timeouts(first_byte=WAIT, idle=SHORT))
        await fails(provider, errors.ProviderTimeoutError, model)
        await asyncio.to_thread(server.requests[0].wait_disconnected, SOON)

    async def test_an_error_shows_no_key_that_litellm_found_by_itself(self, server, make):
        server.fail(401, "Not with hunter2-hunter2.")

        error = await fails(make(secrets=["hunter2-hunter2"]), errors.AuthenticationError, OPENAI)
        assert "hunter2" not in str(error)

    @pytest.mark.parametrize("key", ["sk-ü", "sk-\n"])
    async def test_a_key_that_no_header_can_hold_is_refused(self, server, make, key):
        await fails(make(api_key=key), errors.AuthenticationError, OPENAI)
        assert server.requests == []

    async def test_an_earlier_attempt_s_error_is_not_taken_for_this_one_s(self, make):
        unreachable = make(api_base=f"http://127.0.0.1:{closed_port()}/v1")
        try:
            await ask(unreachable)
        except errors.UnreachableError:
            await fails(make(), errors.InvalidRequestError, "nosuchservice/x")


class TestLeaving:
    @both_models
    async def test_a_stream_that_is_left_is_closed(self, server, make, model):
        server.say_held("Hel", "lo", at=1)

        async with aclosing(make(model).ask(prompt(model))) as events:
            await anext(events)

        await asyncio.to_thread(server.requests[0].wait_disconnected, SOON)

    @both_models
    @both_ways
    async def test_a_cancelled_turn_is_not_waited_for(self, server, make, model, stream):
        server.answer(Silence())
        turn = asyncio.ensure_future(ask(make(model), model, stream=stream))
        await asyncio.to_thread(server.wait_for, 1)

        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn

        await asyncio.to_thread(server.requests[0].wait_disconnected, SOON)


class TestLoading:
    def test_litellm_is_quiet_and_stays_on_this_machine(self):
        litellm = load_library().litellm

        assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
        assert litellm.suppress_debug_info
        assert not litellm.telemetry
        assert not litellm.drop_params

    async def test_without_litellm_the_extra_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "litellm", None)

        with pytest.raises(errors.MissingExtraError, match=r"cllm\[litellm\]"):
            await LitellmProvider(name="litellm").prepare()

    async def test_a_provider_that_was_never_asked_is_closed_without_loading(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "litellm", None)

        await LitellmProvider(name="litellm").close()

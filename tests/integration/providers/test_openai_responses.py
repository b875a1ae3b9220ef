"""The OpenAI provider and the Responses API, against a server on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import Any, get_args

import pytest
from openai.types.shared.all_models import AllModels
from openai.types.shared.chat_model import ChatModel
from tests.fake_provider import WAIT, FakeProvider, Head, Hold, Request, Send, Step
from tests.fake_responses import (
    PATH,
    STREAM,
    Item,
    encode_events,
    function_call_item,
    json_response_steps,
    make_events,
    make_response,
    message_item,
    reasoning_item,
    stream_steps,
    web_search_item,
)

from cllm.core import errors
from cllm.core.message import Image, Message, ToolResult, plain_message
from cllm.core.prompt import Prompt
from cllm.core.reply import ModelReported, Noticed, ReplyEvent, ReplyFinished, TextDelta, Usage
from cllm.providers.http.aiohttp_transport import AiohttpTransport
from cllm.providers.http.stdlib_transport import StdlibTransport
from cllm.providers.http.transport import HttpTransport
from cllm.providers.openai import OpenAIProvider, choose_api
from cllm.wire.openai.parts import encode_parts

KEY = "sk-0123456789abcdef"
MODEL = "gpt-5-codex"
OPENAI = "https://api.openai.com/v1/responses"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
}
both_ways = pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])


@pytest.fixture
def server() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        # A server that is stopped before its loop runs for good would be waited for in vain.
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), provider._loop).result(WAIT)
        yield provider


@pytest.fixture(params=[AiohttpTransport, StdlibTransport])
async def provider(
    server: FakeProvider, request: pytest.FixtureRequest
) -> AsyncIterator[OpenAIProvider]:
    kind: type[HttpTransport] = request.param
    provider = OpenAIProvider(
        name="test", base_url=server.url, api_key=KEY, http=kind(), api="responses"
    )
    yield provider
    await provider.close()


def prompt(*messages: Message, **fields: Any) -> Prompt:
    history = messages or (plain_message("user", "Hello"),)
    return Prompt(**({"model": MODEL, "messages": history} | fields))


async def ask(provider: OpenAIProvider, *messages: Message, **fields: Any) -> list[ReplyEvent]:
    return [event async for event in provider.ask(prompt(*messages, **fields))]


async def expect_error(
    provider: OpenAIProvider, kind: type[errors.ProviderError], **fields: Any
) -> Any:
    with pytest.raises(errors.ProviderError) as caught:
        await ask(provider, **fields)
    assert type(caught.value) is kind
    assert KEY not in str(caught.value)
    return caught.value


def last(events: list[ReplyEvent]) -> ReplyFinished:
    assert isinstance(events[-1], ReplyFinished)
    return events[-1]


def steps(answer: Item, *, streams: bool) -> tuple[Step, ...]:
    return stream_steps(make_events(answer)) if streams else json_response_steps(answer)


class TestApiChoice:
    @pytest.mark.parametrize(
        "model",
        [
            "o1-pro",
            "o1-pro-2025-03-19",
            "o3-pro",
            "gpt-5-pro",
            "gpt-5-pro-2025-10-06",
            "gpt-5.5-pro",
            "gpt-5-codex",
            "gpt-5.1-codex-max",
            "codex-mini-latest",
            "o3-deep-research",
            "o4-mini-deep-research-2025-06-26",
            "computer-use-preview",
            "gpt-6-cyber",
            "gpt-daybreak-blue-latest",
            "gpt-rosalind-research",
            "gpt-6-rosalind",
        ],
    )
    def test_a_model_of_the_responses_api_uses_it_at_openai(self, model):
        assert choose_api(prompt(model=model), url=OPENAI) == "responses"
        assert choose_api(prompt(model=model), url="http://127.0.0.1:8000/v1/responses") == "chat"
        assert (
            choose_api(prompt(model=model), url="https://api.openai.com.example/v1/responses")
            == "chat"
        )

    @pytest.mark.parametrize(
        "model",
        ["gpt-4o", "gpt-5", "gpt-5.1-chat-latest", "o3", "o1", "gpt-6.1-sol", "gpt-4o-mini"],
    )
    def test_any_other_model_uses_chat(self, model):
        assert choose_api(prompt(model=model), url=OPENAI) == "chat"

    @pytest.mark.parametrize(
        ("model", "effort", "api"),
        [
            ("gpt-5.6-sol", "low", "responses"),
            ("gpt-5.6-sol", None, "responses"),
            ("gpt-5.6-sol", "none", "chat"),
            ("gpt-5.5", None, "responses"),
            ("gpt-5.4-mini", "medium", "responses"),
            ("gpt-5.4-mini", None, "chat"),
            ("gpt-6-astra", "none", "responses"),
            ("gpt-5.2", "high", "chat"),
            ("gpt-5", "high", "chat"),
            ("gpt-4o", None, "chat"),
        ],
    )
    @pytest.mark.parametrize("offered", [{"tools": [TOOL]}, {"functions": [TOOL["function"]]}])
    def test_tools_for_a_reasoning_model_use_the_api_that_accepts_them(
        self, offered, model, effort, api
    ):
        request = prompt(model=model, parameters={**offered, "reasoning_effort": effort})

        assert choose_api(request, url=OPENAI) == api
        assert choose_api(request, url="http://127.0.0.1:8000/v1/responses") == "chat"

    def test_anthropic_tools_use_the_api_that_accepts_them(self):
        def api(**parameters: Any) -> str:
            fields = {"tools": [{"name": "f", "input_schema": {}}], "max_tokens": 9, **parameters}
            request = prompt(model="gpt-5.6-sol", dialect="anthropic", parameters=fields)
            return choose_api(request, url=OPENAI)

        assert api() == "responses"
        assert api(thinking={"type": "enabled", "budget_tokens": 2000}) == "responses"
        assert api(thinking={"type": "disabled"}) == "chat"

    @pytest.mark.parametrize("parameters", [{}, {"tools": []}, {"reasoning_effort": "high"}])
    def test_without_tools_a_reasoning_model_uses_chat(self, parameters):
        assert choose_api(prompt(model="gpt-5.6-sol", parameters=parameters), url=OPENAI) == "chat"

    async def test_a_server_is_requested_by_its_configured_api(self, server):
        for api in (None, "chat", "responses"):
            provider = OpenAIProvider(
                name="test", base_url=server.url, api_key=None, http=AiohttpTransport(), api=api
            )
            await ask(provider)
            await provider.close()

        paths = [request.path for request in server.requests]
        assert paths == ["/v1/chat/completions", "/v1/chat/completions", PATH]

    def test_the_table_contains_every_responses_model_of_the_sdk(self):
        known = {name for kind in get_args(AllModels) for name in get_args(kind)}
        only = known - set(get_args(ChatModel))

        assert len(only) > 10
        assert {
            name for name in only if choose_api(prompt(model=name), url=OPENAI) != "responses"
        } == set()


class TestReplies:
    @both_ways
    async def test_a_streamed_and_a_complete_response_are_equal(self, server, provider, streams):
        items = (reasoning_item("Hm."), web_search_item(), message_item("Hello ä🐈"))
        server.queue_steps(*steps(make_response(*items, usage=(9, 4, 1, 6, 2)), streams=streams))

        events = await ask(provider, stream=streams)

        end = last(events)
        texts = [event.text for event in events if isinstance(event, TextDelta)]
        assert "".join(texts) == end.message.text == "Hello ä🐈"
        assert end.message.json()["content"] == list(items)
        assert (end.stop_reason, end.model) == ("end", "gpt-5-codex-1")
        assert end.usage == Usage(input=4, cache_read=4, cache_write=1, output=4, reasoning=2)

    async def test_the_key_and_the_whole_history_are_sent(self, server, provider):
        await ask(provider, stream=True, system=plain_message("system", "Be brief."))

        (request,) = server.requests
        assert (request.path, request.headers["authorization"]) == (PATH, f"Bearer {KEY}")
        assert request.json == {
            "model": MODEL,
            "instructions": "Be brief.",
            "input": [{"type": "message", "role": "user", "content": "Hello"}],
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "stream": True,
        }

    async def test_equal_prompts_have_equal_bytes(self, server, provider):
        tools = [{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": 2}}}]
        for _ in range(2):
            await ask(provider, parameters={"tools": tools, "temperature": 1})

        first, second = server.requests
        assert first.body == second.body

    @pytest.mark.parametrize("packet", [1, 7, 1000])
    async def test_packets_of_any_size_give_the_same_reply(self, server, provider, packet):
        server.queue_steps(
            *stream_steps(make_events(make_response(message_item("Hello ä🐈"))), packet=packet)
        )

        assert last(await ask(provider)).message.text == "Hello ä🐈"

    async def test_a_json_response_to_a_stream_request_is_decoded(self, server, provider):
        server.queue_steps(*json_response_steps(make_response(message_item("Hi"))))

        assert last(await ask(provider, stream=True)).message.text == "Hi"

    async def test_an_unsupported_field_is_a_notice_or_refused_in_strict_mode(
        self, server, provider
    ):
        events = await ask(provider, parameters={"seed": 1})

        assert isinstance(events[0], Noticed)
        assert (events[0].notice.code, events[0].notice.path) == ("field_left_out", "seed")
        with pytest.raises(errors.CllmError):
            await ask(provider, parameters={"seed": 1}, strict=True)
        assert len(server.requests) == 1

    async def test_a_tool_call_has_the_clients_tool_name(self, server, provider):
        tool = {"type": "function", "function": {"name": "my.tool"}}
        await ask(provider, parameters={"tools": [tool]})
        alias = server.requests[0].json["tools"][0]["name"]
        server.queue_steps(
            *stream_steps(make_events(make_response(function_call_item("c", alias, "{}"))))
        )

        end = last(await ask(provider, parameters={"tools": [tool]}))

        assert alias != "my.tool"
        assert end.message.json()["content"][0]["name"] == "my.tool"


def result(call_id: str, text: str) -> Message:
    """A tool message of a Chat Completions client."""
    fields = {"role": "tool", "tool_call_id": call_id, "content": text}
    return Message(role="tool", raw=json.dumps(fields).encode())


class TestThreeTurns:
    @both_ways
    async def test_reasoning_calls_and_results_are_sent_back_in_order(
        self, server, provider, streams
    ):
        answers = (
            (
                reasoning_item("Which city?", item_id="rs_1", sealed="one"),
                function_call_item("call_1", "weather", '{"city":"Bern"}', "fc_1"),
                function_call_item("call_2", "weather", '{"city":"Thun"}', "fc_2"),
            ),
            (
                reasoning_item(item_id="rs_2", sealed="two"),
                message_item("Let me look.", "msg_2", annotations=[]) | {"phase": "commentary"},
                web_search_item("ws_2"),
                reasoning_item("More.", "Still more.", item_id="rs_3", sealed="three"),
                function_call_item("call_3", "now", "{}", "fc_3"),
            ),
            (message_item("It is warm.", "msg_3"),),
        )
        said_next: tuple[tuple[Message, ...], ...] = (
            (plain_message("user", "Is it warm?"),),
            (result("call_1", "21"), result("call_2", "22")),
            (result("call_3", "noon"), plain_message("user", "And?")),
            (plain_message("user", "Thanks."),),
        )
        history: list[Message] = []
        for added, items in zip(
            said_next, (*answers, (message_item("Bye.", "msg_4"),)), strict=True
        ):
            server.queue_steps(*steps(make_response(*items), streams=streams))
            history.extend(added)
            history.append(last(await ask(provider, *history, stream=streams)).message)

        def output(call_id: str, text: str) -> Item:
            return {"type": "function_call_output", "call_id": call_id, "output": text}

        def user(text: str) -> Item:
            return {"type": "message", "role": "user", "content": text}

        assert server.requests[-1].json["input"] == [
            user("Is it warm?"),
            *answers[0],
            output("call_1", "21"),
            output("call_2", "22"),
            *answers[1],
            output("call_3", "noon"),
            user("And?"),
            *answers[2],
            user("Thanks."),
        ]
        prefixes = [request.json["input"] for request in server.requests]
        for shorter, longer in pairwise(prefixes):
            assert longer[: len(shorter)] == shorter

    async def test_an_interrupted_call_gets_a_result(self, server, provider):
        server.queue_steps(
            *stream_steps(
                make_events(
                    make_response(reasoning_item("Hm."), function_call_item("c", "f", "{}"))
                )
            )
        )
        question = plain_message("user", "Do it.")
        answer = last(await ask(provider, question)).message

        events = await ask(provider, question, answer, plain_message("user", "Never mind."))

        sent = server.requests[-1].json["input"]
        assert [item["type"] for item in sent] == [
            "message",
            "reasoning",
            "function_call",
            "function_call_output",
            "message",
        ]
        assert sent[3]["call_id"] == "c"
        assert isinstance(events[0], Noticed)
        assert events[0].notice.code == "interrupted_call_answered"

    async def test_unknown_items_are_sent_back_in_order(self, server, provider):
        custom = {
            "type": "custom_tool_call",
            "id": "ct_1",
            "call_id": "c",
            "name": "grep",
            "input": "x",
        }
        output = {"type": "custom_tool_call_output", "call_id": "c", "output": "none"}
        server.queue_steps(*stream_steps(make_events(make_response(custom))))
        question = plain_message("user", "Find x.")
        end = last(await ask(provider, question))
        raw = json.dumps({"role": "tool", "content": [output]}).encode()

        await ask(
            provider, question, end.message, Message(role="tool", raw=raw, dialect="responses")
        )

        assert end.stop_reason == "tool_calls"
        assert server.requests[-1].json["input"][1:] == [custom, output]

    async def test_an_image_of_a_tool_is_sent_in_its_result(self, server, provider):
        server.queue_steps(
            *stream_steps(make_events(make_response(function_call_item("c", "f", "{}"))))
        )
        question = plain_message("user", "Look.")
        answer = last(await ask(provider, question)).message
        shown = ToolResult(call_id="c", content=(Image(media_type="image/png", data="QUJD"),))

        await ask(provider, question, answer, encode_parts("tool", [shown]))

        output = server.requests[-1].json["input"][-1]["output"]
        assert output[0]["image_url"] == "data:image/png;base64,QUJD"


class TestErrors:
    @both_ways
    async def test_status_429_has_retry_after(self, server, provider, streams):
        server.queue_error(429, "Slow down.", code="rate_limit_exceeded", retry_after="7")

        error = await expect_error(provider, errors.RateLimitedError, stream=streams)

        assert (error.retry_after, error.code, error.status) == (7.0, "rate_limit_exceeded", 429)

    @both_ways
    @pytest.mark.parametrize(
        ("status", "code", "kind"),
        [
            (500, None, errors.UpstreamError),
            (503, None, errors.UpstreamError),
            (401, "invalid_api_key", errors.AuthenticationError),
            (400, "context_length_exceeded", errors.PromptTooLongError),
            (400, "unsupported_parameter", errors.InvalidRequestError),
        ],
    )
    async def test_an_error_status_is_the_error_of_its_class(
        self, server, provider, streams, status, code, kind
    ):
        server.queue_error(status, "No.", code=code)

        await expect_error(provider, kind, stream=streams)

    @pytest.mark.parametrize("cut", [True, False], ids=["cut", "ended"])
    async def test_a_stream_without_its_end_is_an_error(self, server, provider, cut):
        sent = make_events(make_response(reasoning_item("Hm."), message_item("Hello")))
        for length in (0, 1, len(sent) // 2, len(sent) - 1):
            server.queue_steps(*stream_steps(sent[:length], cut=cut))
            await expect_error(provider, errors.BrokenStreamError)

    async def test_a_truncated_event_is_not_the_end(self, server, provider):
        data = encode_events(make_events(make_response(message_item("Hello"))))
        server.queue_steps(Head(headers=STREAM, chunked=True), Send(data[:-20]))

        await expect_error(provider, errors.BrokenStreamError)

    @both_ways
    async def test_garbage_is_an_error(self, server, provider, streams):
        kind = "text/event-stream" if streams else "application/json"
        garbage = b"data: <html>\n\n" if streams else b"<html>"
        server.queue_steps(Head(headers={"Content-Type": kind}, chunked=True), Send(garbage))

        await expect_error(provider, errors.BadReplyError, stream=streams)

    async def test_a_chat_completion_is_not_a_response(self, server, provider):
        server.queue_steps(
            Head(headers=STREAM, chunked=True),
            Send(b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\ndata: [DONE]\n\n'),
        )

        await expect_error(provider, errors.BadReplyError)

    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            ("server_error", errors.UpstreamError),
            ("rate_limit_exceeded", errors.RateLimitedError),
            ("invalid_prompt", errors.InvalidRequestError),
        ],
    )
    @pytest.mark.parametrize("way", ["error event", "failed event", "failed answer"])
    async def test_an_error_in_a_response_is_the_error_of_its_type(
        self, server, provider, code, kind, way
    ):
        failed = make_response(
            message_item("H"), status="failed", error={"code": code, "message": "Oh."}
        )
        sent = make_events(failed)
        if way == "error event":
            sent = [*sent[:-1], {"type": "error", "code": code, "message": "Oh.", "param": None}]
        server.queue_steps(
            *(json_response_steps(failed) if way == "failed answer" else stream_steps(sent))
        )

        error = await expect_error(provider, kind, stream=way != "failed answer")

        assert error.code == code
        assert "Oh." in str(error)

    async def test_an_abandoned_stream_closes_the_connection(self, server, provider):
        gate = server.gate()
        sent = make_events(make_response(message_item("Hello")))
        head, first = stream_steps(sent[:6])
        server.queue_steps(head, first, Hold(gate), Send(encode_events(sent[6:])))
        events = provider.ask(prompt())
        assert isinstance(await anext(events), ModelReported)
        assert isinstance(await anext(events), TextDelta)
        await events.aclose()

        request: Request = server.requests[0]
        await asyncio.to_thread(request.wait_disconnected)
        gate.open()

"""`POST /v1/messages`: the called provider, its request, and the response to the client."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fake_provider import FakeProvider, Head, Send, ToolCall
from tests.messages_api import (
    BEDROCK_KEY,
    COUNT,
    MESSAGES,
    MODELS,
    OPERATORS_KEY,
    SONNET,
    event_names,
    list_notice_codes,
    make_settings,
    post_message,
    read_text,
    start_server,
)
from tests.server_process import Response, Server, list_messages
from tests.waits import wait_until

HELLO = ("user", "Hello.")
PROFILE = "us.anthropic.claude-3-7-sonnet-20250219-v1%3A0"
NOVEL_START = (
    b'{"id":"msg_x","type":"message","role":"assistant","model":"m","content":[],'
    b'"usage":{"input_tokens":1},"novel":true}'
)
CALLERS_KEY = "sk-ant-caller-0123456789"


def logged(server: Server, response: Response) -> dict[str, Any]:
    """Return the log line of a request, which is written a moment later."""
    wanted = response.headers["x-request-id"]
    lines: list[dict[str, Any]] = []

    def is_logged() -> bool:
        records = [json.loads(line) for line in server.log.splitlines() if line[:1] == "{"]
        lines[:] = [record for record in records if record.get("request") == wanted]
        return bool(lines)

    assert wait_until(is_logged)
    return lines[0]


@pytest.fixture(scope="module")
def server(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("messages")
    values = make_settings(upstream, silence_seconds=0.3, routes={"our-model": MODELS["bedrock"]})
    values["providers"]["openai"]["names"] = {"claude-opus-5": "gpt-mapped"}
    values["providers"]["mine"] = {"api_base": upstream.url, "models": ["mine-1"]}
    with start_server(folder, values, store=f"sqlite:{folder / 'served.db'}") as running:
        yield running


def test_a_body_for_anthropic_passes_through_unchanged(server: Server, upstream: FakeProvider):
    body = (
        b'{ "model": "claude-3-7-sonnet-20250219","max_tokens":7, "novel": {"a": [1.50]},\n'
        b'"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],'
        b'"messages":[{"role":"user","content":[{"type":"novel_block","x":1},'
        b'{"type":"text","text":"Hello."}]}]}'
    )
    response = server("POST", f"{MESSAGES}?beta=true", body)

    assert response.status == 200, response.body
    assert upstream.requests[-1].body == body
    assert response.notices == []


def test_a_stream_of_anthropic_passes_through_event_by_event(
    server: Server, upstream: FakeProvider
):
    sent = b"".join(
        b'event: %b\ndata: {"type":"%b"%b}\n\n' % (name, name, fields)
        for name, fields in (
            (b"message_start", b',"message":%b' % NOVEL_START),
            (b"novel_event", b',"x":1'),
            (b"content_block_start", b',"index":0,"content_block":{"type":"text","text":""}'),
            (b"content_block_delta", b',"index":0,"delta":{"type":"text_delta","text":"Hi"}'),
            (b"content_block_delta", b',"index":0,"delta":{"type":"novel_delta","y":2}'),
            (b"content_block_stop", b',"index":0'),
            (b"message_delta", b',"delta":{"stop_reason":"novel"},"usage":{"output_tokens":2}'),
            (b"message_stop", b""),
        )
    )
    upstream.queue_steps(
        Head(headers={"Content-Type": "text/event-stream"}, chunked=True), Send(sent)
    )

    assert post_message(server, HELLO, stream=True).body == sent


def test_unknown_blocks_of_a_response_reach_the_client(server: Server, upstream: FakeProvider):
    body = json.dumps(
        {
            "id": "msg_x",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [{"type": "novel_block", "x": [1]}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 1, "output_tokens": 1, "novel": 5},
        }
    ).encode()
    upstream.queue_steps(
        Head(headers={"Content-Type": "application/json"}, chunked=True), Send(body)
    )

    assert post_message(server, HELLO).body == body


@pytest.mark.parametrize(
    ("provider", "path"),
    [
        ("anthropic", MESSAGES),
        ("bedrock", f"/model/{PROFILE}/converse"),
        ("openai", "/v1/chat/completions"),
    ],
)
def test_every_provider_replies_with_a_message(
    server: Server, upstream: FakeProvider, provider: str, path: str
):
    response = post_message(server, HELLO, model=MODELS[provider], system="Be brief.")

    assert upstream.requests[-1].path == path
    assert b"Be brief." in upstream.requests[-1].body
    assert read_text(response) == "echo: Hello."
    assert response.json["stop_reason"] == "end_turn"
    assert (response.json["usage"]["input_tokens"], response.json["usage"]["output_tokens"]) == (
        11,
        7,
    )


@pytest.mark.parametrize("provider", MODELS)
def test_every_provider_streams_the_same_events(server: Server, provider: str):
    response = post_message(server, HELLO, model=MODELS[provider], stream=True)

    told = [name for name in event_names(response) if name != "ping"]
    assert response.headers["content-type"].startswith("text/event-stream")
    assert told[:2] == ["message_start", "content_block_start"]
    assert told[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert b"[DONE]" not in response.body


def test_a_request_without_max_tokens_is_limited_with_a_notice(
    server: Server, upstream: FakeProvider
):
    response = post_message(server, HELLO, max_tokens=None)

    assert upstream.requests[-1].json["max_tokens"] == 1024
    assert list_notice_codes(response) == ["max_tokens_set"]


def test_beta_flags_go_to_providers_that_accept_them(server: Server, upstream: FakeProvider):
    flags = {"anthropic-beta": "claude-code-20250219, interleaved-thinking-2025-05-14,no-such-1"}

    direct = post_message(server, HELLO, headers=flags)
    assert upstream.requests[-1].headers["anthropic-beta"] == (
        "claude-code-20250219,interleaved-thinking-2025-05-14"
    )
    assert "betas" not in upstream.requests[-1].json
    assert list_notice_codes(direct) == ["beta_left_out"]

    post_message(server, HELLO, model=MODELS["bedrock"], headers=flags)
    assert upstream.requests[-1].json["additionalModelRequestFields"]["anthropic_beta"] == [
        "interleaved-thinking-2025-05-14"
    ]

    post_message(server, HELLO, model=MODELS["openai"], headers=flags)
    assert "anthropic-beta" not in upstream.requests[-1].headers
    assert b"interleaved" not in upstream.requests[-1].body


def test_another_version_is_a_notice(server: Server, upstream: FakeProvider):
    same = post_message(server, HELLO, headers={"anthropic-version": "2023-06-01"})
    other = post_message(server, HELLO, headers={"anthropic-version": "2039-01-01"})

    assert upstream.requests[-1].headers["anthropic-version"] == "2023-06-01"
    assert (list_notice_codes(same), list_notice_codes(other)) == ([], ["version_not_spoken"])


@pytest.mark.parametrize(
    ("header", "sent"),
    [
        ({"x-anthropic-api-key": CALLERS_KEY}, ("x-api-key", CALLERS_KEY)),
        ({"x-anthropic-api-key": "sk-ant-oat01-x"}, ("authorization", "Bearer sk-ant-oat01-x")),
        ({"ANTHROPIC_AUTH_TOKEN": "token-of-mine"}, ("authorization", "Bearer token-of-mine")),
    ],
)
def test_the_callers_key_is_used_for_one_call_only(
    server: Server, upstream: FakeProvider, header: dict[str, str], sent: tuple[str, str]
):
    post_message(server, HELLO, headers=header)
    theirs = upstream.requests[-1].headers
    post_message(server, HELLO)
    ours = upstream.requests[-1].headers

    assert theirs[sent[0]] == sent[1]
    assert OPERATORS_KEY not in theirs.values()
    assert ours["x-api-key"] == OPERATORS_KEY
    assert next(iter(header.values())) not in server.log


def test_the_callers_key_goes_to_no_other_provider(server: Server, upstream: FakeProvider):
    response = post_message(
        server, HELLO, model=MODELS["bedrock"], headers={"x-anthropic-api-key": CALLERS_KEY}
    )

    assert list_notice_codes(response) == ["key_not_used"]
    assert upstream.requests[-1].headers["authorization"] == f"Bearer {BEDROCK_KEY}"
    assert CALLERS_KEY not in str(upstream.requests[-1].headers)


def test_an_error_about_the_callers_key_does_not_contain_it(server: Server, upstream: FakeProvider):
    upstream.queue_error(401, f"invalid x-api-key: {CALLERS_KEY}")
    response = post_message(server, HELLO, headers={"x-anthropic-api-key": CALLERS_KEY})

    assert response.status == 401
    assert response.error["type"] == "authentication_error"
    assert CALLERS_KEY.encode() not in response.body


@pytest.mark.parametrize(
    ("model", "headers", "path", "named"),
    [
        (SONNET, {}, MESSAGES, SONNET),
        (SONNET, {"X-Provider": "bedrock"}, f"/model/{PROFILE}/converse", None),
        (PROFILE.replace("%3A", ":"), {"X-Provider": "anthropic"}, MESSAGES, SONNET),
        (f"anthropic/{SONNET}", {"X-Provider": "anthropic"}, MESSAGES, SONNET),
        ("our-model", {}, f"/model/{PROFILE}/converse", None),
        ("mine-1", {}, "/v1/chat/completions", "mine-1"),
        ("claude-opus-5", {"X-Provider": "openai"}, "/v1/chat/completions", "gpt-mapped"),
    ],
)
def test_the_model_name_and_header_select_the_provider(
    server: Server,
    upstream: FakeProvider,
    model: str,
    headers: dict[str, str],
    path: str,
    named: str | None,
):
    response = post_message(server, HELLO, model=model, headers=headers)

    assert response.status == 200, response.body
    assert upstream.requests[-1].path == path
    assert upstream.requests[-1].json.get("model") == named


def test_a_header_that_contradicts_the_model_is_an_error(server: Server):
    response = post_message(
        server, HELLO, model=MODELS["bedrock"], headers={"X-Provider": "anthropic"}
    )

    assert (response.status, response.error["type"]) == (400, "invalid_request_error")
    assert "bedrock" in response.error["message"]


@pytest.mark.parametrize("model", ["no-such-model", "bedrock/claude-none-1"])
def test_an_unknown_model_is_an_error_and_calls_no_provider(
    server: Server, upstream: FakeProvider, model: str
):
    before = len(upstream.requests)
    response = post_message(server, HELLO, model=model)

    assert (response.status, response.error["type"]) == (404, "not_found_error")
    assert "claude" in response.error["message"] or "provider/model" in response.error["message"]
    assert len(upstream.requests) == before


def test_errors_have_anthropics_format(server: Server, upstream: FakeProvider):
    upstream.queue_error(429, "Slow down.", retry_after="7")
    limited = post_message(server, HELLO)
    upstream.queue_error(529, "Overloaded.")
    overloaded = post_message(server, HELLO)
    upstream.queue_error(500, "Broken.")
    broken = post_message(server, HELLO)
    malformed = server("POST", MESSAGES, b'{"model": 1}')
    empty = post_message(server)

    assert (limited.status, limited.error["type"]) == (429, "rate_limit_error")
    assert limited.headers["retry-after"] == "7"
    assert (overloaded.status, overloaded.error["type"]) == (529, "overloaded_error")
    assert (broken.status, broken.error["type"]) == (500, "api_error")
    assert (malformed.status, malformed.error["type"]) == (400, "invalid_request_error")
    assert "model" in malformed.error["message"]
    assert (empty.status, empty.error["type"]) == (400, "invalid_request_error")
    assert malformed.json["type"] == "error"


def test_an_error_during_a_stream_is_the_last_event(server: Server, upstream: FakeProvider):
    upstream.queue_reply("Half ", "of it", stop_after=1, error=("overloaded_error", "Overloaded"))
    response = post_message(server, HELLO, stream=True)

    assert event_names(response)[-1] == "error"
    assert "message_stop" not in event_names(response)
    assert response.events[-1]["error"]["type"] == "overloaded_error"


def test_an_error_before_the_reply_is_an_event_if_the_stream_has_started(
    server: Server, upstream: FakeProvider
):
    upstream.queue_reply("Nothing", stop_after=0, error=("overloaded_error", "Overloaded"))
    response = post_message(server, HELLO, stream=True)

    assert (response.status, response.error["type"]) == (529, "overloaded_error")


def test_a_silent_stream_sends_a_ping(server: Server, upstream: FakeProvider):
    gate = upstream.queue_held_reply("Late.", at=0)
    streaming = server.open(
        "POST",
        MESSAGES,
        {
            "model": MODELS["openai"],
            "max_tokens": 5,
            "stream": True,
            "messages": [{"role": "user", "content": "Hello."}],
        },
    )
    first = streaming.event()
    gate.open()
    rest = streaming.rest()

    assert first == b'event: ping\ndata: {"type":"ping"}\n'
    assert b"event: message_stop" in rest


@pytest.mark.parametrize("provider", MODELS)
def test_a_conversation_by_one_header(server: Server, upstream: FakeProvider, provider: str):
    first_response = post_message(
        server,
        ("user", "My cat is called Luna."),
        model=MODELS[provider],
        system="Be brief.",
        headers={"X-Conversation-ID": ""},
    )
    going_on = post_message(
        server,
        ("user", "What is my cat called?"),
        model=MODELS[provider],
        headers={"X-Conversation-ID": first_response.conversation},
        stream=True,
    )

    assert going_on.headers["x-conversation-id"] == first_response.conversation
    assert going_on.headers["x-turn-id"]
    assert b"Luna" in upstream.requests[-1].body
    assert b"Be brief." not in upstream.requests[-1].body
    assert [role for role, _ in list_messages(server, first_response.conversation)] == [
        "user",
        "assistant",
    ] * 2


def test_a_saved_stream_can_be_read_again(server: Server):
    first_response = post_message(server, HELLO, headers={"X-Conversation-ID": ""}, stream=True)
    turn = first_response.headers["x-turn-id"]
    again = server("GET", f"/v1/conversations/{first_response.conversation}/turns/{turn}/events")

    assert again.body == first_response.body
    assert event_names(again)[-1] == "message_stop"


def test_a_conversation_can_be_continued_in_the_other_protocol(
    server: Server, upstream: FakeProvider
):
    upstream.queue_reply(
        "Looking.",
        reasoning=("I should look.",),
        tool_calls=(ToolCall(id="toolu_1", name="look", arguments='{"at": "sky"}'),),
        finish="tool_calls",
    )
    tools: list[dict[str, Any]] = [
        {"name": "look", "input_schema": {"type": "object", "properties": {}}}
    ]
    first_response = post_message(
        server, ("user", "What do you see?"), headers={"X-Conversation-ID": ""}, tools=tools
    )
    result = {"role": "tool", "tool_call_id": "toolu_1", "content": "Clouds."}
    other = server(
        "POST",
        "/v1/chat/completions",
        {"model": MODELS["openai"], "messages": [result]},
        {"X-Conversation-ID": first_response.conversation},
    )
    roles = [message["role"] for message in upstream.requests[-1].messages]
    back = post_message(
        server, ("user", "Thanks."), headers={"X-Conversation-ID": first_response.conversation}
    )
    history = upstream.requests[-1].messages

    assert other.status == 200, other.body
    assert roles == ["user", "assistant", "tool"]
    assert back.status == 200, back.body
    assert [block["type"] for block in history[1]["content"]] == ["thinking", "tool_use", "text"]
    assert history[1]["content"][0]["signature"] == "c2lnbmVk"
    assert history[2]["content"][0]["tool_use_id"] == "toolu_1"


def test_a_request_with_a_key_calls_the_provider_once(server: Server, upstream: FakeProvider):
    before = len(upstream.requests)
    responses = [
        post_message(server, HELLO, headers={"Idempotency-Key": "messages-once"}, stream=True)
        for _ in range(2)
    ]

    assert responses[0].body == responses[1].body
    assert len(upstream.requests) == before + 1


@pytest.mark.parametrize("stream", [False, True])
def test_the_log_has_the_message_count_and_whether_a_system_prompt_exists(
    server: Server, stream: bool
):
    responses = [
        post_message(
            server, HELLO, ("assistant", "Hi."), HELLO, system="Sealed lips.", stream=stream
        ),
        post_message(server, HELLO, stream=stream),
    ]

    told = [logged(server, response) for response in responses]
    assert [(line["messages"], line["system_prompt"]) for line in told] == [(3, True), (1, False)]
    assert "Sealed lips" not in server.log


def test_the_system_prefix_is_the_first_block(upstream: FakeProvider, tmp_path: Path):
    blocks = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    with start_server(tmp_path, make_settings(upstream, system_prefix="Obey the house.")) as server:
        post_message(server, HELLO, system=blocks)
        with_blocks = upstream.requests[-1].json["system"]
        post_message(server, HELLO, system="Be brief.")
        with_text = upstream.requests[-1].json["system"]
        post_message(server, HELLO)
        alone = upstream.requests[-1].json["system"]

    assert with_blocks == [{"type": "text", "text": "Obey the house."}, *blocks]
    assert with_text == "Obey the house.\n\nBe brief."
    assert alone == "Obey the house."


def test_the_token_count_of_anthropic_is_forwarded(server: Server, upstream: FakeProvider):
    response = post_message(server, HELLO, path=COUNT, max_tokens=None, novel_field=1)

    assert response.json == {"input_tokens": len(upstream.requests[-1].body), "novel": True}
    assert response.notices == []
    assert upstream.requests[-1].path == COUNT
    assert upstream.requests[-1].json == {
        "model": SONNET,
        "messages": [{"role": "user", "content": "Hello."}],
        "novel_field": 1,
    }


def test_bedrock_counts_tokens_with_the_model(server: Server, upstream: FakeProvider):
    response = post_message(server, HELLO, path=COUNT, model=MODELS["bedrock"], system="Be brief.")

    request = upstream.requests[-1]
    assert request.path == f"/model/{PROFILE.removeprefix('us.')}/count-tokens"
    assert response.json == {"input_tokens": len(request.body)}
    assert request.json == {
        "input": {
            "converse": {
                "messages": [{"role": "user", "content": [{"text": "Hello."}]}],
                "system": [{"text": "Be brief."}],
            }
        }
    }


def test_tokens_are_estimated_with_a_notice_if_the_provider_cannot_count(
    server: Server, upstream: FakeProvider
):
    plain = post_message(server, HELLO, path=COUNT, model=MODELS["openai"])
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    more = post_message(server, HELLO, path=COUNT, model=MODELS["openai"], tools=tools)
    upstream.queue_error(400, "The provided model doesn't support counting tokens.")
    bedrock = post_message(server, HELLO, path=COUNT, model=MODELS["bedrock"])

    assert list_notice_codes(plain) == list_notice_codes(bedrock) == ["tokens_estimated"]
    assert 1 < plain.json["input_tokens"] < 20
    assert more.json["input_tokens"] > plain.json["input_tokens"]


def test_a_rejected_token_count_is_an_error(server: Server, upstream: FakeProvider):
    upstream.queue_error(400, "messages: roles must alternate")
    response = post_message(server, HELLO, path=COUNT)

    assert (response.status, response.error["type"]) == (400, "invalid_request_error")

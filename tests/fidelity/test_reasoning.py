"""Past reasoning is sent to the provider that wrote it, in the field that the provider accepts.

Requests go through the whole server; the fake provider records the bodies.
"""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.fake_provider import FakeProvider, Request
from tests.fidelity.answers import openai_call, openai_stream, openai_whole
from tests.server_app import ServerApp, open_server_app

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
NAMES = (
    *("cerebras", "deepseek", "fireworks", "groq", "llama-server", "lmstudio", "mistral"),
    *("moonshot", "nvidia", "ollama", "openrouter", "perplexity", "together", "vllm", "xai"),
)
CUSTOM = ("mine", "openai")
"""Servers that cllm knows nothing about; `openai` is one at another address than OpenAI's."""
REFUSAL = "The `reasoning_content` in the thinking mode must be passed back to the API."
THOUGHT = "The user wants the weather.\n\n I look it up. 🌦"
DETAILS: list[dict[str, Any]] = [
    {
        "type": "reasoning.text",
        "text": THOUGHT,
        "signature": "c2lnbmVk",
        "id": "reasoning-text-1",
        "format": "anthropic-claude-v1",
        "index": 0,
    },
    {
        "type": "reasoning.encrypted",
        "data": "c2VhbGVk",
        "format": "anthropic-claude-v1",
        "index": 1,
    },
]
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'},
}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "4 °C, rain"}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
CLAUDES_TOOL = {"name": "get_weather", "input_schema": {"type": "object"}}
QUESTION = {"role": "user", "content": "How is the weather in Oslo?"}
USE = {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Oslo"}}
USED = {"type": "tool_result", "tool_use_id": "call_1", "content": "4 °C, rain"}
SIGNED = {"type": "thinking", "thinking": THOUGHT, "signature": "c2lnbmVk"}
UNSIGNED = {"type": "thinking", "thinking": THOUGHT, "signature": ""}
REDACTED = {"type": "redacted_thinking", "data": "c2VhbGVk"}

MISTRALS = {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}
CONTENT: dict[str, Any] = {"reasoning_content": THOUGHT}
PLAIN: dict[str, Any] = {"reasoning": THOUGHT}
ROUTED: dict[str, Any] = {"reasoning": THOUGHT, "reasoning_details": DETAILS}
OWN: list[tuple[str, dict[str, Any]]] = [
    *(("deepseek", CONTENT), ("moonshot", CONTENT), ("fireworks", CONTENT)),
    *(("llama-server", CONTENT), ("groq", PLAIN), ("cerebras", PLAIN), ("ollama", PLAIN)),
    *(("vllm", PLAIN), ("vllm", CONTENT), ("together", PLAIN), ("together", CONTENT)),
    *(("lmstudio", CONTENT), ("lmstudio", PLAIN), ("nvidia", CONTENT), ("perplexity", CONTENT)),
    *(("openrouter", ROUTED), ("openrouter", CONTENT), ("openrouter", CONTENT | ROUTED)),
    *((name, fields) for name in CUSTOM for fields in (CONTENT, PLAIN, ROUTED, CONTENT | ROUTED)),
]
own_fields = pytest.mark.parametrize(
    ("name", "fields"), OWN, ids=[f"{name}-{'+'.join(fields)}" for name, fields in OWN]
)
both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
all_stores = pytest.mark.parametrize("store", ["memory:", "json:{}/kept", "sqlite:{}/kept.db"])

Open = Callable[..., Any]


@pytest.fixture
async def gateway(server: FakeProvider, tmp_path: Path) -> AsyncIterator[Open]:
    """A server of ours before the fake provider, which stands for all of them."""
    running: list[Any] = []

    async def open_gateway(store: str = "memory:") -> ServerApp:
        here = {"api_base": server.url, "api_key": "key-of-tests"}
        providers = dict.fromkeys((*NAMES, *CUSTOM), here)
        providers["anthropic"] = here | {"api_base": server.root}
        values = {"model": "mine/m", "num_retries": 0, "providers": providers}
        context = open_server_app(tmp_path, yaml.safe_dump(values), store=store.format(tmp_path))
        running.append(context)
        made: ServerApp = await context.__aenter__()
        return made

    yield open_gateway
    for context in running:
        await context.__aexit__(None, None, None)


def assistant(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "It rains.", **fields}


def calling(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, **fields, "tool_calls": [CALL]}


def notices(answer: httpx.Response) -> list[tuple[str, str]]:
    notices_found = json.loads(answer.headers.get("x-cllm-notice", "[]"))
    return [(notice["code"], notice["path"]) for notice in notices_found]


async def post(made: ServerApp, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await made("POST", path, content=json.dumps(body), headers=named)
    assert answer.status_code == 200, answer.text
    return answer


async def chat(
    made: ServerApp, name: str, *messages: Any, stream: bool = False, **options: Any
) -> httpx.Response:
    headers = {key: options.pop(key) for key in list(options) if key.startswith("X_")}
    model = name if "/" in name else f"{name}/m"
    body = {"model": model, "messages": messages, "stream": stream, **options}
    return await post(made, CHAT, body, **headers)


async def messages(
    made: ServerApp, name: str, *message: Any, stream: bool = False, **options: Any
) -> httpx.Response:
    headers = {key: options.pop(key) for key in list(options) if key.startswith("X_")}
    body = {"model": f"{name}/m", "max_tokens": 9, "messages": message, "stream": stream, **options}
    return await post(made, MESSAGES, body, **headers)


class TestClientReasoning:
    """Stateless requests: the client sends the whole history."""

    @own_fields
    @both_ways
    async def test_reasoning_is_sent_to_its_provider_byte_for_byte(
        self, gateway, server, name, fields, stream
    ):
        made = await gateway()
        message = assistant(**fields)
        answer = await chat(made, name, QUESTION, message, QUESTION, stream=stream)
        assert json.dumps(message).encode() in server.requests[-1].body
        assert notices(answer) == []

    @own_fields
    @both_ways
    async def test_reasoning_is_sent_in_a_tool_loop(self, gateway, server, name, fields, stream):
        made = await gateway()
        message = calling(**fields)
        history = (QUESTION, message, RESULT)
        await chat(made, name, *history, stream=stream, tools=[TOOL], X_CLLM_Strict="true")
        assert json.dumps(message).encode() in server.requests[-1].body

    @own_fields
    async def test_reasoning_is_sent_in_a_repaired_history(self, gateway, server, name, fields):
        """A call without a result: the request cannot be the client's own bytes."""
        made = await gateway()
        message = calling(**fields)
        answer = await chat(made, name, QUESTION, message, QUESTION, tools=[TOOL])
        assert server.requests[-1].messages[1] == message
        assert notices(answer) == [("interrupted_call_answered", "messages[1]")]

    @own_fields
    async def test_reasoning_is_sent_with_an_aliased_call(self, gateway, server, name, fields):
        """An id that is too long is replaced, and so the message is written anew."""
        made = await gateway()
        message = calling(**fields)
        long = "call_" + 70 * "x"
        message["tool_calls"] = [CALL | {"id": long}, CALL | {"id": long}]
        results = [RESULT | {"tool_call_id": long}] * 2
        await chat(made, name, QUESTION, message, *results, tools=[TOOL])
        sent = server.requests[-1].messages[1]
        assert {key: sent[key] for key in sent if "reasoning" in key} == fields
        assert sent["tool_calls"][0]["id"] != sent["tool_calls"][1]["id"]

    @own_fields
    async def test_reasoning_is_sent_with_a_system_prefix(self, gateway, server, name, fields):
        """A system message by the developer's role is rewritten for these models."""
        made = await gateway()
        system = {"role": "developer", "content": "Be brief."}
        await chat(made, name, system, QUESTION, assistant(**fields), QUESTION)
        assert server.requests[-1].messages[0]["role"] == "system"
        assert server.requests[-1].messages[2] == assistant(**fields)

    @pytest.mark.parametrize(
        ("name", "fields", "sent"),
        [
            ("groq", CONTENT, PLAIN),
            ("cerebras", CONTENT, PLAIN),
            ("ollama", CONTENT, PLAIN),
            ("deepseek", PLAIN, CONTENT),
            ("moonshot", PLAIN, CONTENT),
            ("deepseek", CONTENT | PLAIN, CONTENT),
            ("groq", CONTENT | PLAIN, PLAIN),
            ("deepseek", {"reasoning_details": [DETAILS[0] | {"signature": None}]}, CONTENT),
        ],
    )
    @both_ways
    async def test_reasoning_moves_to_the_field_that_the_provider_accepts(
        self, gateway, server, name, fields, sent, stream
    ):
        """A client can send reasoning back in a field of another provider."""
        made = await gateway()
        answer = await chat(made, name, QUESTION, calling(**fields), RESULT, stream=stream)
        assert server.requests[-1].messages[1] == calling(**sent)
        assert notices(answer) == []

    async def test_reasoning_is_a_thinking_block_for_mistral(self, gateway, server):
        made = await gateway()
        answer = await chat(made, "mistral", QUESTION, assistant(**CONTENT), QUESTION)
        sent = {"role": "assistant", "content": [MISTRALS, {"type": "text", "text": "It rains."}]}
        assert server.requests[-1].messages[1] == sent
        assert notices(answer) == []

    async def test_thinking_blocks_of_mistral_are_reasoning_for_other_providers(
        self, gateway, server
    ):
        made = await gateway()
        message = {
            "role": "assistant",
            "content": [MISTRALS, {"type": "text", "text": "It rains."}],
        }
        await chat(made, "mistral", QUESTION, message, QUESTION)
        assert json.dumps(message).encode() in server.requests[-1].body
        answer = await chat(made, "deepseek", QUESTION, message, QUESTION)
        assert server.requests[-1].messages[1] == assistant(**CONTENT)
        assert notices(answer) == []

    @pytest.mark.parametrize("name", ["deepseek", "groq", "vllm", "mistral"])
    @both_ways
    async def test_encrypted_reasoning_is_dropped_with_a_notice_for_other_providers(
        self, gateway, server, name, stream
    ):
        made = await gateway()
        message = assistant(**ROUTED)
        history = (QUESTION, message, QUESTION, message, QUESTION)
        answer = await chat(made, name, *history, stream=stream)
        body = server.requests[-1].body
        assert b"c2lnbmVk" not in body
        assert b"c2VhbGVk" not in body
        assert body.count(json.dumps(THOUGHT, ensure_ascii=False)[1:-1].encode()) == 2 or (
            body.count(json.dumps(THOUGHT)[1:-1].encode()) == 2
        )
        assert notices(answer) == [("thinking_left_out", "messages[1].reasoning_details")]

    async def test_reasoning_is_dropped_for_a_provider_that_accepts_none(self, gateway, server):
        made = await gateway()
        history = (QUESTION, assistant(**CONTENT), QUESTION, assistant(**PLAIN), QUESTION)
        answer = await chat(made, "xai", *history)
        assert [m for m in server.requests[-1].messages if set(m) != {"role", "content"}] == []
        assert notices(answer) == [("thinking_left_out", "messages[1].reasoning_content")]

    async def test_dropped_reasoning_is_an_error_in_strict_mode(self, gateway, server):
        made = await gateway()
        body = {"model": "xai/m", "messages": [QUESTION, assistant(**CONTENT), QUESTION]}
        answer = await made("POST", CHAT, json=body, headers={"X-CLLM-Strict": "true"})
        assert answer.status_code == 400
        assert "reasoning" in answer.text
        assert server.requests == []


def deepseek(request: Request) -> str | None:
    """Refuses what DeepSeek refuses in its thinking mode: a tool call without its reasoning."""
    for message in request.json["messages"]:
        if message.get("tool_calls") and not isinstance(message.get("reasoning_content"), str):
            return REFUSAL
    return None


def deepseek_turn(server: FakeProvider, *, stream: bool, thought: str = THOUGHT) -> None:
    """The model thinks, asks for a tool, thinks again, and answers."""
    call = {"role": "assistant", "content": "", "reasoning_content": thought, "tool_calls": [CALL]}
    message = {"content": "It rains.", "reasoning_content": "So it rains."}
    if not stream:
        server.queue_steps(*openai_whole(call, "tool_calls"))
        server.queue_steps(*openai_whole(message))
        return
    pieces = [{"role": "assistant", "content": None, "reasoning_content": ""}]
    pieces += [
        {"content": None, "reasoning_content": thought[at : at + 9]}
        for at in range(0, len(thought), 9)
    ]
    options = openai_call(0, '{"city":"Oslo"}', id="call_1", name="get_weather")
    server.queue_steps(*openai_stream(*pieces, options, finish="tool_calls"))
    server.queue_steps(
        *openai_stream({"reasoning_content": "So it rains."}, {"content": "It rains."})
    )


class TestDeepSeek:
    """A fake DeepSeek that refuses tool loops without their reasoning, in its own words."""

    @pytest.fixture(autouse=True)
    def refusing(self, server):
        server.refuse = deepseek

    async def test_a_tool_loop_without_reasoning_is_refused(self, gateway):
        made = await gateway()
        body = {"model": "deepseek/m", "messages": [QUESTION, calling(), RESULT], "tools": [TOOL]}
        answer = await made("POST", CHAT, json=body)
        assert answer.status_code == 400
        assert REFUSAL in answer.json()["error"]["message"]

    @both_ways
    @all_stores
    @pytest.mark.parametrize("thought", [THOUGHT, ""], ids=["thought", "nothing thought"])
    async def test_a_stored_tool_loop_of_chat_completions_works(
        self, gateway, server, store, stream, thought
    ):
        made = await gateway(store)
        deepseek_turn(server, stream=stream, thought=thought)
        options = {"stream": stream, "tools": [TOOL]}
        first = await chat(made, "deepseek", QUESTION, X_Conversation_ID="", **options)
        conversation_id = first.headers["x-conversation-id"]
        await chat(made, "deepseek", RESULT, X_Conversation_ID=conversation_id, **options)
        await chat(made, "deepseek", QUESTION, X_Conversation_ID=conversation_id, **options)
        _, called, _, answered, _ = server.requests[-1].messages
        assert called["reasoning_content"] == thought
        assert answered == {
            "role": "assistant",
            "content": "It rains.",
            "reasoning_content": "So it rains.",
        }

    @both_ways
    async def test_a_stateless_tool_loop_of_messages_works(self, gateway, server, stream):
        made = await gateway()
        deepseek_turn(server, stream=stream)
        options = {"stream": stream, "tools": [CLAUDES_TOOL]}
        first = await messages(made, "deepseek", QUESTION, **options)
        content = blocks_of(first)
        assert [block["type"] for block in content] == ["thinking", "tool_use"]
        message = (QUESTION, {"role": "assistant", "content": content})
        answer = await messages(
            made, "deepseek", *message, {"role": "user", "content": [USED]}, **options
        )
        assert server.requests[-1].messages[1]["reasoning_content"] == THOUGHT
        assert notices(answer) == []

    @both_ways
    @all_stores
    async def test_a_stored_tool_loop_of_messages_works(self, gateway, server, store, stream):
        made = await gateway(store)
        deepseek_turn(server, stream=stream)
        options = {"stream": stream, "tools": [CLAUDES_TOOL]}
        first = await messages(made, "deepseek", QUESTION, X_Conversation_ID="", **options)
        conversation_id = first.headers["x-conversation-id"]
        used = {"role": "user", "content": [USED]}
        await messages(made, "deepseek", used, X_Conversation_ID=conversation_id, **options)
        await messages(made, "deepseek", QUESTION, X_Conversation_ID=conversation_id, **options)
        _, called, _, answered, _ = server.requests[-1].messages
        assert called["reasoning_content"] == THOUGHT
        assert answered["reasoning_content"] == "So it rains."

    @both_ways
    async def test_a_tool_loop_of_another_model_continues_at_deepseek(
        self, gateway, server, stream
    ):
        """Claude called a tool without thinking: the call gets a blank, and a notice says so."""
        made = await gateway()
        history = (
            QUESTION,
            {"role": "assistant", "content": [USE]},
            {"role": "user", "content": [USED]},
        )
        answer = await messages(made, "deepseek", *history, stream=stream, tools=[CLAUDES_TOOL])
        assert server.requests[-1].messages[1]["reasoning_content"] == " "
        assert notices(answer) == [("reasoning_filled", "messages[1]")]

    async def test_every_request_of_a_tool_loop_gets_blank_reasoning(self, gateway, server):
        """Long histories are remembered as they were sent; elsewhere that is without a blank."""
        made = await gateway()
        call = {"role": "assistant", "content": [USE]}
        used = {"role": "user", "content": [USED]}
        history: list[dict[str, Any]] = [{"role": "user", "content": "x" * 9000}]
        for name in ("mine", "deepseek", "deepseek", "moonshot"):
            server.refuse = None if name == "mine" else deepseek
            history += [call, used]
            await messages(made, name, *history, tools=[CLAUDES_TOOL])
        assert len(server.requests) == 4

    async def test_strict_mode_gets_no_blank_reasoning(self, gateway, server):
        made = await gateway()
        message = [
            QUESTION,
            {"role": "assistant", "content": [USE]},
            {"role": "user", "content": [USED]},
        ]
        body = {
            "model": "deepseek/m",
            "max_tokens": 9,
            "messages": message,
            "tools": [CLAUDES_TOOL],
        }
        answer = await made("POST", MESSAGES, json=body, headers={"X-CLLM-Strict": "true"})
        assert REFUSAL in answer.text
        assert "reasoning_content" not in server.requests[-1].messages[1]


def blocks_of(answer: httpx.Response) -> list[dict[str, Any]]:
    """The content that a client of Anthropic's has after this answer."""
    if "event-stream" not in answer.headers["content-type"]:
        content: list[dict[str, Any]] = answer.json()["content"]
        return content
    lines = [line for line in answer.text.split("\n") if line.startswith("data: ")]
    blocks: list[dict[str, Any]] = []
    for event in (json.loads(line.removeprefix("data: ")) for line in lines):
        if event["type"] == "content_block_start":
            blocks.append(event["content_block"] | {"json": ""})
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            blocks[-1]["json"] += delta.get("partial_json", "")
            for name in ("thinking", "text", "signature"):
                if name in delta:
                    blocks[-1][name] += delta[name]
    for block in blocks:
        arguments = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(arguments)
    return blocks


class TestStoredReasoning:
    """Continued conversations: cllm sends the history."""

    @own_fields
    @both_ways
    async def test_stored_reasoning_is_sent_unchanged(self, gateway, server, name, fields, stream):
        made = await gateway()
        reply = {"role": "assistant", "content": "It rains.", **fields}
        server.queue_steps(*(openai_stream(reply) if stream else openai_whole(reply)))
        first = await chat(made, name, QUESTION, stream=stream, X_Conversation_ID="")
        conversation_id = first.headers["x-conversation-id"]
        again = await chat(made, name, QUESTION, stream=stream, X_Conversation_ID=conversation_id)
        assert server.requests[-1].messages[1] == reply
        assert notices(again) == []

    @both_ways
    @all_stores
    async def test_streamed_details_are_joined_by_their_index(self, gateway, server, store, stream):
        """A streamed conversation with OpenRouter sends back what a whole answer would have had."""
        made = await gateway(store)
        text, sealed = DETAILS
        start = text | {"text": THOUGHT[:9], "signature": None}
        more = {"type": "reasoning.text", "text": THOUGHT[9:], "index": 0}
        end = {"type": "reasoning.text", "signature": "c2lnbmVk", "index": 0}
        server.queue_steps(
            *openai_stream(
                {"role": "assistant", "reasoning": THOUGHT[:9], "reasoning_details": [start]},
                {"reasoning": THOUGHT[9:], "reasoning_details": [more]},
                {"reasoning_details": [end, sealed]},
                openai_call(0, '{"city":"Oslo"}', id="call_1", name="get_weather"),
                finish="tool_calls",
            )
        )
        first = await chat(
            made, "openrouter", QUESTION, stream=True, tools=[TOOL], X_Conversation_ID=""
        )
        conversation_id = first.headers["x-conversation-id"]
        await chat(made, "openrouter", RESULT, stream=stream, X_Conversation_ID=conversation_id)
        assert server.requests[-1].messages[1] == calling(**ROUTED)

    @both_ways
    @all_stores
    async def test_stored_thinking_blocks_are_sent_unchanged(self, gateway, server, store, stream):
        made = await gateway(store)

        def thinking(text: str, **more: Any) -> dict[str, Any]:
            return {"type": "thinking", "thinking": [{"type": "text", "text": text}], **more}

        block = thinking(THOUGHT, signature="c2lnbmVk")
        content = [block, {"type": "text", "text": "It rains."}]
        if stream:
            pieces = [[thinking(THOUGHT[:9])], [thinking(THOUGHT[9:], signature="c2lnbmVk")]]
            deltas = [{"content": piece} for piece in (*pieces, "It ", "rains.")]
            server.queue_steps(*openai_stream(*deltas))
        else:
            server.queue_steps(*openai_whole({"content": content}))
        first = await chat(made, "mistral", QUESTION, stream=stream, X_Conversation_ID="")
        conversation_id = first.headers["x-conversation-id"]
        await chat(made, "mistral", QUESTION, stream=stream, X_Conversation_ID=conversation_id)
        assert server.requests[-1].messages[1] == {"role": "assistant", "content": content}

    @pytest.mark.parametrize("name", ["openrouter", "mine"])
    async def test_encrypted_reasoning_is_not_sent_to_another_model_of_the_provider(
        self, gateway, server, name
    ):
        made = await gateway()
        server.queue_steps(*openai_whole({"content": "It rains.", **ROUTED}))
        first = await chat(made, f"{name}/claude", QUESTION, X_Conversation_ID="")
        conversation_id = first.headers["x-conversation-id"]
        again = await chat(made, f"{name}/gemini", QUESTION, X_Conversation_ID=conversation_id)
        assert server.requests[-1].messages[1] == assistant(**PLAIN)
        assert notices(again) == [("thinking_left_out", "messages[1].reasoning_details")]

    @both_ways
    async def test_stored_calls_without_reasoning_get_a_blank_for_deepseek(
        self, gateway, server, stream
    ):
        """The client cannot add to a stored message what DeepSeek wants in it."""
        made = await gateway()
        server.refuse = lambda request: deepseek(request) if request.json["model"] == "v4" else None
        server.queue_steps(*openai_whole({"content": None, "tool_calls": [CALL]}, "tool_calls"))
        first = await chat(made, "groq/llama", QUESTION, tools=[TOOL], X_Conversation_ID="")
        conversation_id = first.headers["x-conversation-id"]
        again = await chat(
            made, "deepseek/v4", RESULT, stream=stream, X_Conversation_ID=conversation_id
        )
        assert server.requests[-1].messages[1] == calling(reasoning_content=" ")
        assert notices(again) == [("reasoning_filled", "messages[1]")]

    @both_ways
    async def test_stored_reasoning_is_sent_to_another_provider_without_encrypted_data(
        self, gateway, server, stream
    ):
        made = await gateway()
        reply = {"content": "It rains.", **ROUTED}
        server.queue_steps(*openai_whole(reply))
        first = await chat(made, "openrouter", QUESTION, X_Conversation_ID="")
        conversation_id = first.headers["x-conversation-id"]
        again = await chat(
            made, "deepseek", QUESTION, stream=stream, X_Conversation_ID=conversation_id
        )
        assert server.requests[-1].messages[1] == assistant(**CONTENT)
        assert notices(again) == [("thinking_left_out", "messages[1].reasoning_details")]


class TestThinkingBlocks:
    """`/v1/messages`: thinking of past assistant messages, for providers of the other protocol."""

    @pytest.mark.parametrize(
        ("name", "fields"),
        [
            *(("deepseek", CONTENT), ("moonshot", CONTENT), ("fireworks", CONTENT)),
            *(("llama-server", CONTENT), ("mine", CONTENT), ("openai", CONTENT)),
            *(("groq", PLAIN), ("cerebras", PLAIN), ("ollama", PLAIN)),
            *(("vllm", PLAIN), ("openrouter", PLAIN)),
        ],
    )
    @pytest.mark.parametrize("block", [SIGNED, UNSIGNED], ids=["signed", "unsigned"])
    @both_ways
    async def test_thinking_blocks_become_the_providers_reasoning(
        self, gateway, server, name, fields, block, stream
    ):
        made = await gateway()
        message = {"role": "assistant", "content": [block, {"type": "text", "text": "It rains."}]}
        history = (QUESTION, message, QUESTION, message, QUESTION)
        answer = await messages(made, name, *history, stream=stream)
        assert server.requests[-1].messages[1] == assistant(**fields)
        assert b"c2lnbmVk" not in server.requests[-1].body
        notices_found = (
            [("signature_left_out", "messages[1].content[0]")] if block is SIGNED else []
        )
        assert notices(answer) == notices_found

    @pytest.mark.parametrize(("name", "block"), [("xai", UNSIGNED), ("deepseek", REDACTED)])
    async def test_thinking_blocks_that_cannot_be_sent_are_one_notice(
        self, gateway, server, name, block
    ):
        made = await gateway()
        message = {"role": "assistant", "content": [block, {"type": "text", "text": "It rains."}]}
        answer = await messages(made, name, QUESTION, message, QUESTION, message, QUESTION)
        assert server.requests[-1].messages[1] == assistant()
        assert notices(answer) == [("thinking_left_out", "messages[1].content[0]")]

    async def test_thinking_blocks_of_a_long_history_are_sent_with_every_request(
        self, gateway, server
    ):
        """An agent sends its history again, longer each time; nothing remembered leaves it out."""
        made = await gateway()
        call = {"role": "assistant", "content": [UNSIGNED, USE]}
        used = {"role": "user", "content": [USED]}
        history: list[dict[str, Any]] = [{"role": "user", "content": "x" * 9000}]
        for name in ("deepseek", "groq", "deepseek", "xai", "moonshot"):
            history += [call, used]
            await messages(made, name, *history, tools=[CLAUDES_TOOL])
            field = {"groq": "reasoning", "xai": None}.get(name, "reasoning_content")
            sent = [m for m in server.requests[-1].messages if m["role"] == "assistant"]
            assert len(sent) == len(history) // 2
            for message in sent:
                found = [key for key in message if key.startswith("reasoning")]
                assert found == ([] if field is None else [field])

    async def test_stored_thinking_blocks_of_mistral_are_dropped_in_a_long_request(
        self, gateway, server
    ):
        """A request by the other protocol, long enough to be remembered as it was sent."""
        made = await gateway()
        server.queue_steps(
            *openai_whole({"content": [MISTRALS, {"type": "text", "text": "It rains."}]})
        )
        first = await messages(made, "mistral", QUESTION, X_Conversation_ID="")
        conversation_id = first.headers["x-conversation-id"]
        long = {"role": "user", "content": "x" * 9000}
        await messages(made, "deepseek", long, X_Conversation_ID=conversation_id)
        assert server.requests[-1].messages[1] == assistant(**CONTENT)

    @both_ways
    async def test_stored_thinking_of_claude_is_sent_to_another_provider(
        self, gateway, server, stream
    ):
        made = await gateway()
        server.queue_reply("It rains.", reasoning=(THOUGHT,), signature="c2lnbmVk")
        first = await chat(
            made, "anthropic", QUESTION, stream=stream, X_Conversation_ID="", max_tokens=9
        )
        conversation_id = first.headers["x-conversation-id"]
        again = await chat(
            made, "deepseek", QUESTION, stream=stream, X_Conversation_ID=conversation_id
        )
        assert server.requests[-1].messages[1] == assistant(**CONTENT)
        assert notices(again) == [("signature_left_out", "messages[1].content[0]")]


@pytest.mark.parametrize(
    "fields",
    [
        *(CONTENT, PLAIN, ROUTED),
        {"content": [MISTRALS, {"type": "text", "text": "It rains."}]},
    ],
)
@both_ways
async def test_reasoning_in_any_field_is_a_thinking_block_for_anthropic_clients(
    gateway, server, fields, stream
):
    made = await gateway()
    reply = assistant() | fields
    server.queue_steps(*(openai_stream(reply) if stream else openai_whole(reply)))
    thought, text = blocks_of(await messages(made, "mine", QUESTION, stream=stream))
    assert (thought["type"], thought["thinking"]) == ("thinking", THOUGHT)
    assert text["text"] == "It rains."


@pytest.mark.parametrize("fields", [PLAIN, ROUTED, {"reasoning_details": DETAILS}])
async def test_reasoning_in_any_field_is_reported_as_dropped_for_claude(gateway, server, fields):
    made = await gateway()
    answer = await chat(made, "anthropic", QUESTION, assistant(**fields), QUESTION, max_tokens=9)
    assert "rains" in json.dumps(server.requests[-1].messages[1])
    assert b"look it up" not in server.requests[-1].body
    assert ("thinking_left_out", "messages[1]") in notices(answer)

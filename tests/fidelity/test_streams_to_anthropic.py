"""Streams of every provider, read by Anthropic's SDK."""

import json
from itertools import pairwise
from typing import Any

import anthropic
import pytest
from tests.fake_provider import Send, ToolCall
from tests.fidelity.answers import (
    anthropic_block,
    anthropic_stream,
    converse_block,
    converse_stream,
    converse_tool,
    in_packets,
    openai_call,
    openai_stream,
    openai_whole,
    text_block,
    thinking_block,
    tool_block,
)
from tests.fidelity.clients import (
    final_message_of,
    read_by_anthropic,
    stream_for_anthropic,
    to_anthropic_client,
    to_openai_client,
    whole_for_anthropic,
)

from cllm.core.notice import Notice
from cllm.core.reply import Noticed, TextDelta
from cllm.wire.anthropic.response_encoder import PING, AnthropicStreamEncoder

CALL = ToolCall(id="a", name="f", arguments='{"a": 1}')
THOUGHT = {"reasoning_content": "A"}
SAID = {"content": "B"}
EMPTY_STREAMS = {
    "openai": openai_stream({"role": "assistant", "content": ""}),
    "openai-null": openai_stream({"role": "assistant", "content": None}),
    "openai-nothing": openai_stream(),
    "anthropic": anthropic_stream(),
    "anthropic-empty-text": anthropic_stream(anthropic_block(0, {"type": "text", "text": ""})),
    "bedrock": converse_stream(),
    "bedrock-empty-text": converse_stream(converse_block(0, {"text": ""})),
}
THREE_CALLS = {
    "openai": openai_stream(
        openai_call(0, id="a", name="f"),
        openai_call(0, '{"n":'),
        openai_call(0, "1}"),
        openai_call(1, '{"n":2}', id="b", name="f"),
        openai_call(2, id="c", name="f"),
        openai_call(2, '{"n": 3}'),
        finish="tool_calls",
    ),
    "anthropic": anthropic_stream(
        tool_block(0, "", '{"n":', "1}", call="a"),
        tool_block(1, '{"n":2}', call="b"),
        tool_block(2, '{"n": 3}', call="c"),
        stop="tool_use",
    ),
    "bedrock": converse_stream(
        converse_tool(0, '{"n":', "1}", call="a"),
        converse_tool(1, '{"n":2}', call="b"),
        converse_tool(2, '{"n": 3}', call="c"),
        stop="tool_use",
    ),
}


@pytest.mark.parametrize(
    ("deltas", "blocks"),
    [
        pytest.param([THOUGHT, SAID], "thinking text", id="then text"),
        pytest.param([{"reasoning": "A"}, SAID], "thinking text", id="under its other name"),
        pytest.param([{**THOUGHT, "content": ""}, SAID], "thinking text", id="beside empty text"),
        pytest.param([{**THOUGHT, **SAID}], "thinking text", id="in one chunk"),
        pytest.param([SAID, THOUGHT], "text thinking", id="after text"),
        pytest.param([THOUGHT, SAID, THOUGHT, SAID], "thinking text thinking text", id="again"),
        pytest.param(
            [THOUGHT, openai_call(0, "{}", id="a", name="f")], "thinking tool_use", id="then call"
        ),
    ],
)
async def test_reasoning_is_a_separate_thinking_block(ask, deltas, blocks):
    exchange = await ask("openai", answer=openai_stream({"role": "assistant"}, *deltas))
    read = to_anthropic_client(exchange.events)
    assert [block["type"] for block in read.content] == blocks.split()
    assert all(block.get("thinking", "A") == "A" for block in read.content)
    assert all(block.get("text", "B") == "B" for block in read.content)


async def test_events_of_reasoning_and_text_are_in_the_order_of_the_sdk(ask):
    exchange = await ask("openai", answer=openai_stream(THOUGHT, SAID))
    assert to_anthropic_client(exchange.events).event_summary == [
        "message_start",
        "start 0 thinking",
        "thinking_delta 0 A",
        "stop 0",
        "start 1 text",
        "text_delta 1 B",
        "stop 1",
        "message_delta",
        "message_stop",
    ]


ARGUMENTS = '{"city": "Zürich 🐈", "deep": {"a": [1, 2.50, null]}}'


@pytest.mark.parametrize(
    "cuts",
    [
        pytest.param([len(ARGUMENTS)], id="all with the name"),
        pytest.param([1, len(ARGUMENTS)], id="first byte with the name"),
        pytest.param([0, 18, len(ARGUMENTS)], id="none with the name"),
        pytest.param(range(len(ARGUMENTS) + 1), id="one by one"),
    ],
)
async def test_arguments_in_the_first_chunk_of_a_call_are_sent(ask, cuts):
    cuts = list(cuts)
    first = openai_call(0, ARGUMENTS[: cuts[0]], id="call_1", name="f")
    rest = [openai_call(0, ARGUMENTS[a:b]) for a, b in pairwise(cuts) if b > a]
    answer = openai_stream({"content": "Let me see."}, first, *rest, finish="tool_calls")
    read = to_anthropic_client((await ask("openai", answer=answer)).events)
    pieces = [
        line.split(" ", 2)[2] for line in read.event_summary if line.startswith("input_json_delta")
    ]
    assert "".join(pieces) == ARGUMENTS
    assert read.content == [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "call_1", "name": "f", "input": json.loads(ARGUMENTS)},
    ]


@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
async def test_three_calls_are_three_blocks_with_their_own_arguments(ask, kind):
    read = to_anthropic_client((await ask(kind, answer=THREE_CALLS[kind])).events)
    assert [(block["id"], block["input"]) for block in read.content] == [
        ("a", {"n": 1}),
        ("b", {"n": 2}),
        ("c", {"n": 3}),
    ]
    assert read.message.stop_reason == "tool_use"


async def test_interleaved_pieces_of_three_calls_are_separated(ask):
    answer = openai_stream(
        *(openai_call(i, id=f"c{i}", name=f"f{i}") for i in range(3)),
        *(openai_call(i, f'{{"n": {i}') for i in (2, 0, 1)),
        {"content": "between"},
        *(openai_call(i, "}") for i in (1, 2, 0)),
        finish="tool_calls",
    )
    read = to_anthropic_client((await ask("openai", answer=answer)).events)
    calls = [block for block in read.content if block["type"] == "tool_use"]
    assert [(c["id"], c["name"], c["input"]) for c in calls] == [
        (f"c{i}", f"f{i}", {"n": i}) for i in range(3)
    ]
    assert [block["text"] for block in read.content if block["type"] == "text"] == ["between"]


async def test_calls_in_one_chunk_are_two_blocks(ask):
    both = [openai_call(i, "{}", id=f"c{i}", name="f")["tool_calls"][0] for i in range(2)]
    answer = openai_stream({"tool_calls": both}, finish="tool_calls")
    read = to_anthropic_client((await ask("openai", answer=answer)).events)
    assert [block["id"] for block in read.content] == ["c0", "c1"]


async def test_pieces_without_an_index_continue_the_call_of_their_id(ask):
    pieces = ('{"a":', '"x"', "}")
    calls = [openai_call(0, piece, id="c0", name="f")["tool_calls"][0] for piece in pieces]
    for call in calls:
        del call["index"]
    answer = openai_stream(*({"tool_calls": [call]} for call in calls), finish="tool_calls")
    read = to_anthropic_client((await ask("openai", answer=answer)).events)
    assert [(block["id"], block["input"]) for block in read.content] == [("c0", {"a": "x"})]


@pytest.mark.parametrize(
    "again",
    [{"id": "c0", "name": "f"}, {"id": "", "name": ""}, {"id": None, "name": None}],
    ids=["repeated", "empty", "null"],
)
async def test_a_repeated_id_and_name_are_sent_once(ask, again):
    later = [openai_call(0, piece, **again) for piece in ("1", "}")]
    answer = openai_stream(openai_call(0, '{"a":', id="c0", name="f"), *later, finish="tool_calls")
    exchange = await ask("openai", answer=answer)
    assert to_anthropic_client(exchange.events).content == [
        {"type": "tool_use", "id": "c0", "name": "f", "input": {"a": 1}}
    ]
    assert to_openai_client(exchange.events).calls == [("c0", "f", '{"a":1}')]


async def test_reasoning_in_both_fields_is_sent_once(ask):
    """Some servers fill the old field and the new one."""
    both = {"reasoning_content": "A", "reasoning": "A"}
    read = to_anthropic_client((await ask("openai", answer=openai_stream(both, SAID))).events)
    assert read.content[0]["thinking"] == "A"


async def test_chunks_without_choices_or_delta_are_skipped(ask):
    """Azure begins with the results of its filter, and no choice."""
    steps = openai_stream(SAID)
    odd = [
        b'data: {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}\n\n',
        b'data: {"choices": [{"index": 0, "finish_reason": null}]}\n\n',
        b'data: {"choices": [{"index": 0, "delta": null, "finish_reason": null}]}\n\n',
        b'data: {"id": "x", "choices": null}\n\n',
    ]
    answer = (steps[0], *map(Send, odd), *steps[1:])
    read = to_anthropic_client((await ask("openai", answer=answer)).events)
    assert read.content == [{"type": "text", "text": "B"}]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_content_parts_are_text_and_thinking(ask, stream):
    """Mistral's reasoners answer in parts where others have a text."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "A"}]}
    value = {"content": [thought, {"type": "text", "text": "B"}]}
    answer = openai_stream(value) if stream else openai_whole(value)
    read = to_anthropic_client((await ask("openai", answer=answer, stream=stream)).events)
    assert [block["text"] for block in read.content if block["type"] == "text"] == ["B"]
    assert [b["thinking"] for b in read.content if b["type"] == "thinking"] in (["A"], [])


async def test_calls_without_an_index_are_separated_by_their_ids(ask):
    """Gemini's compatible endpoint sends whole calls and no index."""
    calls = [openai_call(0, "{}", id=f"c{i}", name="f")["tool_calls"][0] for i in range(2)]
    for call in calls:
        del call["index"]
    answer = openai_stream(*({"tool_calls": [call]} for call in calls), finish="tool_calls")
    read = to_anthropic_client((await ask("openai", answer=answer)).events)
    assert [block["id"] for block in read.content] == ["c0", "c1"]


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("openai", openai_stream(openai_call(0, id="toolu_1", name="f"), finish="tool_calls")),
        ("anthropic", anthropic_stream(tool_block(0), stop="tool_use")),
        ("anthropic", anthropic_stream(tool_block(0, ""), stop="tool_use")),
        ("bedrock", converse_stream(converse_tool(0, call="toolu_1"), stop="tool_use")),
        ("bedrock", converse_stream(converse_tool(0, "", call="toolu_1"), stop="tool_use")),
    ],
)
async def test_a_call_without_arguments_has_an_empty_input(ask, kind, answer):
    read = to_anthropic_client((await ask(kind, answer=answer)).events)
    assert read.content == [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]


@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
async def test_characters_split_between_packets_are_joined(ask, kind, size):
    value = "ä🐈\u2028naïve\r\n漢字"
    answer = {
        "openai": openai_stream({"content": value[:3]}, {"content": value[3:]}),
        "anthropic": anthropic_stream(text_block(0, value)),
        "bedrock": converse_stream(converse_block(0, {"text": value})),
    }[kind]
    read = to_anthropic_client((await ask(kind, answer=in_packets(answer, size))).events)
    assert read.content == [{"type": "text", "text": value}]


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_a_surrogate_pair_split_by_the_provider_is_joined(ask, kind):
    """Servers that cut strings by UTF-16 units send the halves of a pair in two events."""
    steps = {
        "openai": openai_stream({"content": "a😀b"}),
        "anthropic": anthropic_stream(text_block(0, "a😀b")),
    }[kind]
    halves: list[Any] = []
    for step in steps:
        data = step.data if isinstance(step, Send) else b""
        escaped = data.decode().replace("😀", "\\ud83d\\ude00").encode()
        if b"\\ud83d\\ude00" in escaped:
            halves += [
                Send(escaped.replace(b"\\ude00b", b"")),
                Send(escaped.replace(b"a\\ud83d", b"")),
            ]
        else:
            halves.append(step)
    assert len(halves) == len(steps) + 1
    exchange = await ask(kind, answer=tuple(halves))
    assert to_anthropic_client(exchange.events).content == [{"type": "text", "text": "a😀b"}]


@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
async def test_a_stream_starts_once(ask, server, kind):
    server.queue_reply("a", "b", "c", reasoning=("x", "y"))
    read = to_anthropic_client((await ask(kind)).events)
    assert read.event_summary.count("message_start") == 1
    assert read.event_summary[0] == "message_start"


async def test_an_explicit_start_and_the_first_event_start_once(ask):
    exchange = await ask("openai", answer=openai_stream(SAID))
    encoder = AnthropicStreamEncoder(message_id="m", model="x")
    sent = encoder.start() + encoder.start() + b"".join(map(encoder.encode, exchange.events))
    assert sent.count(b"event: message_start") == 1
    assert sent.startswith(b"event: message_start")


SIGNED = [
    pytest.param(
        "bedrock",
        converse_stream(
            converse_block(0, {"reasoningContent": {"text": "t", "signature": "s"}}),
            converse_block(1, {"text": "B"}),
        ),
        "t",
        id="bedrock together",
    ),
    pytest.param(
        "bedrock",
        converse_stream(
            converse_block(
                0, {"reasoningContent": {"text": "t"}}, {"reasoningContent": {"signature": "s"}}
            ),
            converse_block(1, {"text": "B"}),
        ),
        "t",
        id="bedrock apart",
    ),
    pytest.param(
        "bedrock",
        converse_stream(
            converse_block(0, {"reasoningContent": {"signature": "s"}}),
            converse_block(1, {"text": "B"}),
        ),
        "",
        id="bedrock signature only",
    ),
    pytest.param(
        "anthropic",
        anthropic_stream(thinking_block(0, "t", signature="s"), text_block(1, "B")),
        "t",
        id="anthropic apart",
    ),
    pytest.param(
        "anthropic",
        anthropic_stream(thinking_block(0, signature="s"), text_block(1, "B")),
        "",
        id="anthropic signature only",
    ),
    pytest.param(
        "anthropic",
        anthropic_stream(
            anthropic_block(0, {"type": "thinking", "thinking": "t", "signature": "s"}),
            text_block(1, "B"),
        ),
        "t",
        id="anthropic in the start",
    ),
]


@pytest.mark.parametrize(("kind", "answer", "thought"), SIGNED)
async def test_a_signature_is_a_separate_delta_in_its_thinking_block(ask, kind, answer, thought):
    read = to_anthropic_client((await ask(kind, answer=answer)).events)
    assert read.content == [
        {"type": "thinking", "thinking": thought, "signature": "s"},
        {"type": "text", "text": "B"},
    ]
    value = [f"thinking_delta 0 {thought}"] if thought else []
    expected = ["start 0 thinking", *value, "signature_delta 0 s", "stop 0"]
    assert read.event_summary[1 : 1 + len(expected)] == expected


async def test_a_streamed_signature_is_joined(ask):
    """Converse sends long signatures in parts."""
    answer = converse_stream(
        converse_block(
            0,
            {"reasoningContent": {"text": "t"}},
            {"reasoningContent": {"signature": "ab"}},
            {"reasoningContent": {"signature": "cd"}},
        ),
        converse_block(1, {"text": "B"}),
    )
    exchange = await ask("bedrock", answer=answer)
    assert whole_for_anthropic(exchange.events).content[0].signature == "abcd"
    assert to_anthropic_client(exchange.events).content[0]["signature"] == "abcd"


async def test_adjacent_thinking_blocks_keep_their_signatures(ask):
    blocks = thinking_block(0, "a", signature="sa"), thinking_block(1, "b", signature="sb")
    exchange = await ask("anthropic", answer=anthropic_stream(*blocks, text_block(2, "B")))
    read = to_anthropic_client(exchange.events)
    assert [(b["thinking"], b["signature"]) for b in read.content[:2]] == [("a", "sa"), ("b", "sb")]


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (
            "openai",
            openai_stream(SAID, openai_call(0, "{}", id="t", name="f"), finish="tool_calls"),
        ),
        (
            "openai",
            openai_stream(SAID, openai_call(0, "{}", id="t", name="f"), finish="function_call"),
        ),
        ("anthropic", anthropic_stream(text_block(0, "B"), tool_block(1, "{}"), stop="tool_use")),
        (
            "bedrock",
            converse_stream(
                converse_block(0, {"text": "B"}), converse_tool(1, "{}"), stop="tool_use"
            ),
        ),
    ],
)
async def test_text_before_calls_stops_for_tool_use(ask, kind, answer):
    read = to_anthropic_client((await ask(kind, answer=answer)).events)
    assert read.message.stop_reason == "tool_use"
    assert [block["type"] for block in read.content] == ["text", "tool_use"]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_a_forced_call_that_openai_ends_with_stop_is_a_tool_use(ask, server, stream):
    """OpenAI says `stop` when the tool was forced; a client that sees `end_turn` never runs it."""
    server.queue_reply(tool_calls=(CALL,), finish="stop")
    exchange = await ask("openai", stream=stream)
    if stream:
        assert to_anthropic_client(exchange.events).message.stop_reason == "tool_use"
    assert whole_for_anthropic(exchange.events).stop_reason == "tool_use"


@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
async def test_the_last_event_is_message_stop_and_nothing_follows_it(ask, kind):
    sent = stream_for_anthropic((await ask(kind)).events)
    assert sent.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
    assert b"[DONE]" not in sent
    assert b"event: done" not in sent


@pytest.mark.parametrize("name", EMPTY_STREAMS)
async def test_an_empty_completion_is_one_empty_text(ask, name):
    exchange = await ask(name.partition("-")[0], answer=EMPTY_STREAMS[name])
    read = to_anthropic_client(exchange.events)
    assert read.content == [{"type": "text", "text": ""}]
    assert read.message.stop_reason == "end_turn"
    assert [b.text for b in whole_for_anthropic(exchange.events).content] in ([""], [])


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {
            "type": "web_search_result",
            "url": "https://example.com/a",
            "title": "A",
            "encrypted_content": "x",
            "page_age": None,
        }
    ],
}
CITATION = {
    "type": "web_search_result_location",
    "url": "https://example.com/a",
    "title": "A",
    "encrypted_index": "y",
    "cited_text": "z",
}


def searched(*places: int) -> list[list[dict[str, Any]]]:
    one, two, three, four = places
    query = [
        {"type": "input_json_delta", "partial_json": piece} for piece in ("", '{"query":', ' "q"}')
    ]
    cited: list[dict[str, Any]] = [
        {"type": "citations_delta", "citation": CITATION},
        {"type": "text_delta", "text": "B"},
    ]
    return [
        text_block(one, "A"),
        anthropic_block(two, SEARCH, *query),
        anthropic_block(three, FOUND),
        anthropic_block(four, {"type": "text", "text": "", "citations": []}, *cited),
    ]


@pytest.mark.parametrize("places", [(0, 1, 2, 3), (0, 2, 5, 9)])
async def test_blocks_of_server_tools_are_numbered_without_gaps(ask, places):
    exchange = await ask("anthropic", answer=anthropic_stream(*searched(*places)))
    read = to_anthropic_client(exchange.events)
    kinds = [block["type"] for block in read.content]
    assert kinds == ["text", "server_tool_use", "web_search_tool_result", "text"]
    assert read.content[1]["input"] == {"query": "q"}
    assert read.content[2]["content"][0]["encrypted_content"] == "x"
    assert read.content[3]["text"] == "B"
    assert read.content[3]["citations"][0]["cited_text"] == "z"


async def test_an_unknown_block_is_sent(ask):
    odd = {"type": "hologram", "beam": 3}
    answer = anthropic_stream(text_block(0, "A"), anthropic_block(1, odd), text_block(2, "B"))
    sent = stream_for_anthropic((await ask("anthropic", answer=answer)).events)
    assert b'{"type":"hologram","beam":3}' in sent.replace(b" ", b"")


async def test_redacted_thinking_in_a_stream_is_a_block_with_its_data(ask):
    redacted = anthropic_block(0, {"type": "redacted_thinking", "data": "RVRY"})
    exchange = await ask("anthropic", answer=anthropic_stream(redacted, text_block(1, "B")))
    assert to_anthropic_client(exchange.events).content[0] == {
        "type": "redacted_thinking",
        "data": "RVRY",
    }


async def test_redacted_reasoning_of_bedrock_is_a_block_with_its_data(ask):
    redacted = converse_block(0, {"reasoningContent": {"redactedContent": "RVRY"}})
    answer = converse_stream(redacted, converse_block(1, {"text": "B"}))
    assert to_anthropic_client((await ask("bedrock", answer=answer)).events).content == [
        {"type": "redacted_thinking", "data": "RVRY"},
        {"type": "text", "text": "B"},
    ]


async def test_an_error_in_the_stream_is_raised_by_the_sdk(break_off, server):
    server.queue_reply("Hel", "lo", stop_after=1, error=("overloaded_error", "Overloaded"))
    events, error = await break_off("anthropic")
    assert error.status == 529
    encoder = AnthropicStreamEncoder(message_id="m", model="x")
    sent = b"".join(map(encoder.encode, events)) + encoder.error("overloaded_error", "Overloaded")
    assert b"Hel" in sent
    assert b"message_delta" not in sent
    assert b"message_stop" not in sent
    with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
        read_by_anthropic(sent)


async def test_pings_between_events_are_skipped(ask):
    exchange = await ask("openai", answer=openai_stream(THOUGHT, SAID))
    encoder = AnthropicStreamEncoder(message_id="m", model="x")
    sent = encoder.start() + b"".join(PING + encoder.encode(e) for e in exchange.events)
    assert [block.type for block in final_message_of(sent).content] == ["thinking", "text"]


def test_a_notice_is_not_sent_in_a_stream():
    encoder = AnthropicStreamEncoder(message_id="m", model="x")
    assert encoder.encode(Noticed(notice=Notice(code="c", message="m"))) == b""
    assert encoder.encode(TextDelta(text="a")).startswith(b"event: message_start\n")

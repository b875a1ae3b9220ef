"""Every call and field of an answer reaches the client, whole and streamed."""

import json
from typing import Any

import pytest
from tests.fidelity.answers import (
    anthropic_stream,
    converse_block,
    converse_stream,
    converse_tool,
    converse_whole,
    openai_call,
    openai_stream,
    openai_whole,
    tool_block,
)
from tests.fidelity.clients import (
    last,
    stream_for_openai,
    to_anthropic_client,
    to_openai_client,
    whole_for_anthropic,
    whole_for_openai,
)

from cllm.core.message import ToolCall
from cllm.wire.convert import parts_of

Json = dict[str, Any]
TWO = [("a", "f", '{"x":1}'), ("b", "f", '{"x":2}')]
CUT = '{"x":"a'


def saved_message(events: Any) -> Json:
    return last(events).message.json()


def saved_calls(events: Any) -> list[tuple[str, str, str]]:
    calls = saved_message(events)["tool_calls"]
    return [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in calls]


def deltas(events: Any) -> list[Json]:
    """The deltas of a stream for an OpenAI client, without those that say nothing."""
    lines = stream_for_openai(events).decode().split("\n\n")
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    found_deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    return [delta for delta in found_deltas if delta]


CHUNK_FORMS: dict[str, list[Json]] = {
    "each whole": [
        openai_call(0, '{"x":1}', id="a", name="f"),
        openai_call(0, '{"x":2}', id="b", name="f"),
    ],
    "in one chunk": [
        {
            "tool_calls": [
                *openai_call(0, '{"x":1}', id="a", name="f")["tool_calls"],
                *openai_call(0, '{"x":2}', id="b", name="f")["tool_calls"],
            ]
        }
    ],
    "in pieces": [
        openai_call(0, id="a", name="f"),
        openai_call(0, '{"x":'),
        openai_call(0, "1}"),
        openai_call(0, id="b", name="f"),
        openai_call(0, '{"x":'),
        openai_call(0, "2}"),
    ],
    "with text between them": [
        openai_call(0, '{"x":1}', id="a", name="f"),
        {"content": "and"},
        openai_call(0, '{"x":2}', id="b", name="f"),
    ],
}


@pytest.mark.parametrize("chunks", CHUNK_FORMS.values(), ids=CHUNK_FORMS)
async def test_calls_with_the_same_index_are_two_calls(ask, chunks):
    events = (await ask("openai", answer=openai_stream(*chunks, finish="tool_calls"))).events
    assert saved_calls(events) == TWO
    assert to_openai_client(events).calls == TWO
    blocks = [b for b in to_anthropic_client(events).content if b["type"] == "tool_use"]
    assert [(b["id"], b["input"]) for b in blocks] == [("a", {"x": 1}), ("b", {"x": 2})]


async def test_calls_with_the_same_index_and_no_ids_are_separated_by_name(ask):
    chunks = [openai_call(0, '{"x":1}', name="f"), openai_call(0, '{"x":2}', name="g")]
    events = (await ask("openai", answer=openai_stream(*chunks, finish="tool_calls"))).events
    calls = saved_calls(events)
    assert [call[1:] for call in calls] == [("f", '{"x":1}'), ("g", '{"x":2}')]
    assert len({call_id for call_id, *_ in calls}) == 2
    assert to_openai_client(events).calls == saved_calls(events)


async def test_an_index_used_by_another_call_is_a_separate_call(ask):
    chunks = [
        openai_call(0, '{"x":1}', id="a", name="f"),
        openai_call(0, '{"x":2}', id="b", name="f"),
        openai_call(1, '{"x":3}', id="c", name="f"),
    ]
    events = (await ask("openai", answer=openai_stream(*chunks, finish="tool_calls"))).events
    assert [call[0] for call in saved_calls(events)] == ["a", "b", "c"]
    assert to_openai_client(events).calls == saved_calls(events)


@pytest.mark.parametrize("ending", ["", " "])
async def test_an_id_that_changes_with_every_piece_starts_no_call(ask, ending):
    chunks = [
        openai_call(0, '{"x":', id="r1", name="f"),
        openai_call(0, "1}", id="r2"),
        openai_call(0, ending, id="r3"),
    ]
    events = (await ask("openai", answer=openai_stream(*chunks, finish="tool_calls"))).events
    assert saved_calls(events) == [("r1", "f", '{"x":1}' + ending)]


async def test_a_name_in_every_piece_starts_no_call(ask):
    chunks = [openai_call(0, piece, id="a", name="f") for piece in ('{"x":', "1}", "")]
    events = (await ask("openai", answer=openai_stream(*chunks, finish="tool_calls"))).events
    assert saved_calls(events) == TWO[:1]


CUSTOM = {"id": "a", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}


async def test_a_custom_call_is_streamed_to_an_openai_client(ask):
    pieces = [
        {"index": 0, "id": "a", "type": "custom", "custom": {"name": "shell", "input": ""}},
        {"index": 0, "custom": {"input": "ls"}},
        {"index": 0, "custom": {"input": " -l"}},
    ]
    chunks = [{"tool_calls": [piece]} for piece in pieces]
    events = (await ask("openai", answer=openai_stream(*chunks, finish="tool_calls"))).events
    pieces_sent = [delta["tool_calls"] for delta in deltas(events)]
    assert pieces_sent == [[piece] for piece in pieces]
    assert saved_message(events)["tool_calls"] == [CUSTOM]
    assert json.loads(last(events).raw or b"")["choices"][0]["message"]["tool_calls"] == [CUSTOM]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_a_custom_call_keeps_its_position_among_function_calls(ask, stream):
    function = {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    chunks = [CUSTOM, function]
    numbered = [{"index": index, **call} for index, call in enumerate(chunks)]
    answer = openai_stream({"tool_calls": numbered}, finish="tool_calls")
    if not stream:
        answer = openai_whole({"content": None, "tool_calls": chunks}, "tool_calls")
    events = (await ask("openai", answer=answer, stream=stream)).events
    assert saved_message(events)["tool_calls"] == chunks
    pieces_sent = [piece for delta in deltas(events) for piece in delta["tool_calls"]]
    assert pieces_sent == numbered


async def test_a_legacy_function_call_is_streamed_to_an_openai_client(ask):
    chunks: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}},
        {"function_call": {"arguments": '{"x"'}},
        {"function_call": {"arguments": ":1}"}},
    ]
    events = (await ask("openai", answer=openai_stream(*chunks, finish="function_call"))).events
    read = to_openai_client(events)
    assert [delta["function_call"] for delta in deltas(events)] == [
        delta["function_call"] for delta in chunks
    ]
    assert read.finish_reason == "function_call"
    assert saved_message(events) == {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "f", "arguments": '{"x":1}'},
    }


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
ODD_FIELDS: dict[str, Any] = {
    "images": [PICTURE],
    "reasoning_details": [{"type": "reasoning.text", "text": "R", "signature": "s"}],
    "vendor": {"b": [1], "a": "é"},
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("field", ODD_FIELDS)
async def test_an_unknown_field_is_streamed_to_an_openai_client_and_saved(ask, field, stream):
    found_deltas = {field: ODD_FIELDS[field]}
    answer = (
        openai_stream({"content": "x"}, found_deltas)
        if stream
        else openai_whole({"content": "x"} | found_deltas)
    )
    events = (await ask("openai", answer=answer, stream=stream)).events
    assert [delta[field] for delta in deltas(events) if field in delta] == [ODD_FIELDS[field]]
    assert to_openai_client(events).message.content == "x"
    assert whole_for_openai(events).choices[0].message.to_dict()[field] == ODD_FIELDS[field]
    assert saved_message(events)[field] == ODD_FIELDS[field]
    assert [block["text"] for block in to_anthropic_client(events).content] == ["x"]


async def test_known_fields_next_to_an_unknown_field_are_decoded(ask):
    chunks: list[dict[str, Any]] = [
        {"reasoning_content": "R", "vendor": "a"},
        {"content": "x", "vendor": "b", "other": None},
        {"vendor": "c", **openai_call(0, "{}", id="a", name="f")},
    ]
    events = (await ask("openai", answer=openai_stream(*chunks, finish="tool_calls"))).events
    read = to_openai_client(events)
    assert (read.message.content, read.message.reasoning_content) == ("x", "R")
    assert read.calls == [("a", "f", "{}")]
    assert saved_message(events)["vendor"] == "abc"
    assert "other" not in saved_message(events)


CUT_OFF = {
    "openai": openai_stream(openai_call(0, CUT, id="toolu_1", name="f"), finish="length"),
    "anthropic": anthropic_stream(tool_block(0, CUT), stop="max_tokens"),
    "bedrock": converse_stream(converse_tool(0, CUT, call="toolu_1"), stop="max_tokens"),
}


@pytest.mark.parametrize("kind", CUT_OFF)
async def test_the_arguments_of_a_truncated_call_are_unchanged(ask, kind):
    events = (await ask(kind, answer=CUT_OFF[kind])).events
    read = to_openai_client(events)
    (call,) = read.calls
    assert call[2] == CUT
    assert read.finish_reason == "length"
    (whole,) = whole_for_openai(events).choices[0].message.tool_calls
    assert (whole.id, whole.function.name, whole.function.arguments) == call
    (part,) = parts_of(last(events).message)
    assert isinstance(part, ToolCall)
    assert (part.id, part.name, part.arguments) == call


@pytest.mark.parametrize("kind", CUT_OFF)
async def test_a_truncated_call_is_sent_to_an_anthropic_client(ask, kind):
    """The text of the model in both: as pieces in a stream, under one key where an object is."""
    events = (await ask(kind, answer=CUT_OFF[kind])).events
    streamed = to_anthropic_client(events)
    assert f"input_json_delta 0 {CUT}" in streamed.event_summary
    whole = whole_for_anthropic(events)
    (block,) = whole.content
    assert block.input == {"INVALID_JSON": CUT}
    assert (block.id, block.name) == (streamed.content[0]["id"], streamed.content[0]["name"])
    assert whole.stop_reason == streamed.message.stop_reason == "max_tokens"


@pytest.mark.parametrize("kind", ["anthropic", "bedrock"])
async def test_a_truncated_call_is_sent_back_under_one_key(ask, kind):
    function = {"name": "f", "arguments": CUT}
    messages = [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "cut off"},
    ]
    sent = (await ask(kind, {"messages": messages})).sent
    (block,) = sent["messages"][1]["content"]
    assert (block.get("toolUse") or block)["input"] == {"INVALID_JSON": CUT}


CITATIONS: dict[str, tuple[Json, Json]] = {
    "documentChar": (
        {"documentIndex": 1, "start": 2, "end": 5},
        {"type": "char_location", "document_index": 1, "start_char_index": 2, "end_char_index": 5},
    ),
    "documentPage": (
        {"documentIndex": 0, "start": 1, "end": 2},
        {
            "type": "page_location",
            "document_index": 0,
            "start_page_number": 1,
            "end_page_number": 2,
        },
    ),
    "documentChunk": (
        {"documentIndex": 0, "start": 3, "end": 4},
        {
            "type": "content_block_location",
            "document_index": 0,
            "start_block_index": 3,
            "end_block_index": 4,
        },
    ),
    "searchResultLocation": (
        {"searchResultIndex": 7, "start": 0, "end": 1},
        {
            "type": "search_result_location",
            "search_result_index": 7,
            "source": "u",
            "start_block_index": 0,
            "end_block_index": 1,
        },
    ),
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("place", CITATIONS)
async def test_a_citation_of_bedrock_is_a_citation_for_an_anthropic_client(ask, place, stream):
    where, chunks = CITATIONS[place]
    cited = {
        "title": "t",
        "source": "u",
        "sourceContent": [{"text": "s"}],
        "location": {place: where},
    }
    block = {"citationsContent": {"content": [{"text": "x"}], "citations": [cited]}}
    answer = converse_stream(converse_block(0, {"text": "x"}, {"citation": cited}))
    if not stream:
        answer = converse_whole(block)
    events = (await ask("bedrock", answer=answer, stream=stream)).events
    titled = "title" if place == "searchResultLocation" else "document_title"
    text = {"type": "text", "text": "x", "citations": [chunks | {"cited_text": "s", titled: "t"}]}
    assert to_anthropic_client(events).content == [text]
    (pieces_sent,) = whole_for_anthropic(events).content
    assert pieces_sent.to_dict() == text
    assert saved_message(events)["content"] == [block]
    assert to_openai_client(events).message.content == "x"


@pytest.mark.parametrize("cited", [{"title": "t"}, {"location": {"web": {"url": "u"}}}, {}])
async def test_a_citation_with_an_unknown_location_is_saved_and_not_sent(ask, cited):
    answer = converse_stream(converse_block(0, {"text": "x"}, {"citation": cited}))
    events = (await ask("bedrock", answer=answer)).events
    assert to_anthropic_client(events).content == [{"type": "text", "text": "x"}]
    assert whole_for_anthropic(events).content[0].to_dict() == {"type": "text", "text": "x"}
    assert saved_message(events)["content"][0]["citationsContent"]["citations"] == [cited]

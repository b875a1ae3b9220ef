"""System prompts, content and parameters: nothing is flattened, relabelled or taken for nothing."""

import base64
import json
from typing import Any

import pytest
from tests.fidelity.conftest import MODELS, prompt_of

from cllm.core.errors import InvalidRequestError
from cllm.core.reply import Noticed
from cllm.wire.anthropic import request as anthropic_request
from cllm.wire.openai import request as openai_request

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
PDF = base64.b64encode(b"%PDF-1.7").decode()
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
POINT = {"cachePoint": {"type": "default"}}
CLAUDES = ["anthropic", "bedrock"]
on_claude = pytest.mark.parametrize("kind", CLAUDES)
TOOL = {"name": "f", "input_schema": {"type": "object"}}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def user(*content: Any) -> dict[str, Any]:
    """A request with one message of the user's."""
    return {"messages": [{"role": "user", "content": list(content)}]}


def image_url(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def data_url(media_type: str, data: str = PNG) -> dict[str, Any]:
    return image_url(f"data:{media_type};base64,{data}")


def only_content(sent: Any) -> Any:
    (message,) = sent["messages"]
    return message["content"]


async def test_a_system_prompt_of_blocks_keeps_blocks_and_marks_for_anthropic(ask):
    system = [text("You are a pirate.", cache_control=HOUR), text("Arr.", cache_control=MARK)]
    asked = await ask("anthropic", {"system": system}, client="anthropic")
    assert asked.sent["system"] == system
    assert not asked.notices


async def test_a_system_prompt_of_blocks_keeps_blocks_and_marks_for_bedrock(ask):
    system = [text("You are a pirate.", cache_control=MARK), text("Arr.")]
    asked = await ask("bedrock", {"system": system}, client="anthropic")
    assert asked.sent["system"] == [{"text": "You are a pirate."}, POINT, {"text": "Arr."}]


async def test_a_system_prompt_of_blocks_loses_no_words_for_openai(ask):
    system = [text("You are a pirate.", cache_control=MARK), text("Arr.")]
    asked = await ask("openai", {"system": system}, client="anthropic")
    first = asked.sent["messages"][0]
    assert first["role"] in ("system", "developer")
    assert [part["text"] for part in first["content"]] == ["You are a pirate.", "Arr."]
    assert "cache_control" not in asked.request.body.decode()
    assert asked.noticed("cache", "system")


@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
async def test_a_system_prompt_of_one_text_arrives(ask, kind):
    asked = await ask(kind, {"system": "You are a pirate."}, client="anthropic")
    assert asked.request.body.count(b"You are a pirate.") == 1


@on_claude
async def test_a_system_message_of_parts_keeps_parts_and_marks(ask, kind):
    """OpenAI's clients of Claude write cache marks on the parts of their messages."""
    system = {"role": "system", "content": [text("One.", cache_control=MARK), text("Two.")]}
    body = {"messages": [system, {"role": "user", "content": "Hello"}]}
    sent = (await ask(kind, body)).sent["system"]
    if kind == "anthropic":
        assert sent == [text("One.", cache_control=MARK), text("Two.")]
    else:
        assert sent == [{"text": "One."}, POINT, {"text": "Two."}]


@pytest.mark.parametrize("said", ["", "  ", []], ids=["empty", "blank", "list"])
@pytest.mark.parametrize("kind", ["anthropic", "bedrock"])
async def test_an_empty_system_prompt_is_none(ask, kind, said):
    asked = await ask(kind, {"system": said}, client="anthropic")
    assert not asked.sent.get("system")


def marked_everywhere() -> dict[str, Any]:
    return {
        "system": [text("S", cache_control=MARK)],
        "tools": [TOOL | {"cache_control": MARK}],
        "messages": [
            {"role": "user", "content": "Hello"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t",
                        "content": "ok",
                        "cache_control": MARK,
                    },
                    text("And?", cache_control=MARK),
                ],
            },
        ],
    }


async def test_every_mark_is_a_cache_point_behind_its_block_on_bedrock(ask):
    asked = await ask("bedrock", marked_everywhere(), client="anthropic")
    assert asked.sent["system"] == [{"text": "S"}, POINT]
    assert asked.sent["toolConfig"]["tools"][1] == POINT
    content = asked.sent["messages"][2]["content"]
    assert [next(iter(block)) for block in content] == [
        "toolResult",
        "cachePoint",
        "text",
        "cachePoint",
    ]


@pytest.mark.parametrize(
    "content",
    [
        [text("A", cache_control=MARK)],
        [{"type": "tool_use", "id": "t", "name": "f", "input": {}, "cache_control": MARK}],
    ],
    ids=["text", "call"],
)
async def test_a_mark_of_the_assistants_is_a_cache_point_on_bedrock(ask, content):
    last = [text("And?")]
    if content[0]["type"] == "tool_use":
        last = [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]
    messages = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": last},
    ]
    asked = await ask("bedrock", {"messages": messages, "tools": [TOOL]}, client="anthropic")
    assert asked.sent["messages"][1]["content"][1] == POINT


async def test_a_mark_inside_a_result_is_a_cache_point_behind_it_on_bedrock(ask):
    body = marked_everywhere()
    body["messages"][2]["content"] = [
        {"type": "tool_result", "tool_use_id": "t", "content": [text("ok", cache_control=MARK)]}
    ]
    asked = await ask("bedrock", body, client="anthropic")
    assert [next(iter(b)) for b in asked.sent["messages"][2]["content"]] == [
        "toolResult",
        "cachePoint",
    ]


async def test_a_mark_on_an_image_is_a_cache_point_behind_it_on_bedrock(ask):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    asked = await ask(
        "bedrock", user(image | {"cache_control": MARK}, text("?")), client="anthropic"
    )
    assert [next(iter(block)) for block in only_content(asked.sent)] == [
        "image",
        "cachePoint",
        "text",
    ]


async def test_an_hours_mark_is_an_hours_cache_point(ask):
    body = {"system": [text("S", cache_control=HOUR)]}
    model = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    asked = await ask("bedrock", body, client="anthropic", model=model)
    assert asked.sent["system"][1] == {"cachePoint": {"type": "default", "ttl": "1h"}}


async def test_an_hours_mark_on_a_model_without_it_is_a_plain_one_with_a_notice(ask):
    body = {"system": [text("S", cache_control=HOUR)]}
    asked = await ask("bedrock", body, client="anthropic")
    assert asked.sent["system"][1] == POINT
    assert asked.noticed("cache")


async def test_marks_on_every_place_go_to_anthropic_as_they_are(ask):
    body = marked_everywhere()
    asked = await ask("anthropic", body, client="anthropic")
    assert asked.sent["system"] == body["system"]
    assert asked.sent["tools"] == body["tools"]
    assert asked.sent["messages"][2] == body["messages"][2]
    assert not asked.notices


async def test_marks_of_an_openai_client_go_to_anthropic(ask):
    tool = {"type": "function", "function": {"name": "f"}, "cache_control": MARK}
    body = user(text("Hello", cache_control=MARK), text("?")) | {"tools": [tool]}
    asked = await ask("anthropic", body)
    assert only_content(asked.sent)[0] == text("Hello", cache_control=MARK)
    assert asked.sent["tools"][0]["cache_control"] == MARK


@pytest.mark.parametrize(
    "model", ["meta.llama3-3-70b-instruct-v1:0", "mistral.mistral-large-2402-v1:0"]
)
async def test_a_mark_to_a_model_without_a_cache_is_left_out_with_a_notice(ask, model):
    body = {"system": [text("S", cache_control=MARK)]} | user(text("Hello", cache_control=MARK))
    asked = await ask("bedrock", body, client="anthropic", model=model)
    assert "cachePoint" not in asked.request.body.decode()
    assert asked.noticed("cache")


async def test_a_mark_to_openai_is_left_out_with_a_notice(ask):
    asked = await ask("openai", marked_everywhere(), client="anthropic")
    assert "cache_control" not in asked.request.body.decode()
    assert asked.noticed("cache")


@pytest.mark.parametrize("count", [5, 9, 40])
@on_claude
async def test_there_are_never_more_than_four_marks(ask, kind, count):
    body = marked_everywhere()
    body["messages"] = [
        {"role": ("user", "assistant")[at % 2], "content": [text(f"{at}", cache_control=MARK)]}
        for at in range(count - 2 + count % 2 + 1)
    ]
    asked = await ask(kind, body, client="anthropic")
    sent = asked.request.body.decode()
    assert sent.count("cachePoint") + sent.count("cache_control") == 4
    assert asked.noticed("cache")
    assert "cache" in json.dumps(asked.sent["messages"][-1])


@on_claude
async def test_no_mark_is_added_by_itself_where_the_client_set_one(ask, kind):
    body = {"system": [text("S", cache_control=MARK)]} | user(text("Hello"))
    sent = (await ask(kind, body, client="anthropic")).request.body.decode()
    assert sent.count("cachePoint") + sent.count("cache_control") == 1


async def test_a_cache_point_is_never_directly_behind_a_document(ask):
    document = {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
        "cache_control": MARK,
    }
    asked = await ask("bedrock", user(document), client="anthropic")
    kinds = [next(iter(block)) for block in only_content(asked.sent)]
    assert "cachePoint" in kinds
    assert kinds[kinds.index("cachePoint") - 1] == "text"


@pytest.mark.parametrize("client", ["openai", "anthropic"])
@pytest.mark.parametrize(("name", "value"), [("temperature", 0), ("top_p", 0)])
@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
async def test_zero_is_sent_as_zero(ask, kind, client, name, value):
    sent = (await ask(kind, {name: value}, client=client)).sent
    if kind == "bedrock":
        name, sent = {"top_p": "topP"}.get(name, name), sent["inferenceConfig"]
    assert sent[name] == 0
    assert not isinstance(sent[name], bool)


@on_claude
async def test_what_is_not_said_is_not_sent(ask, kind):
    asked = await ask(kind, {"temperature": None, "top_p": None, "stop": None, "tools": None})
    sent = asked.request.body.decode()
    for name in ("temperature", "top_p", "topP", "stop_sequences", "stopSequences", "tools"):
        assert f'"{name}":' not in sent


@pytest.mark.parametrize(
    ("stop", "sent"),
    [(["X"], ["X"]), ("X", ["X"]), (["X", "Y"], ["X", "Y"])],
    ids=["list", "text", "two"],
)
async def test_stop_is_stop_sequences_of_claude(ask, stop, sent):
    assert (await ask("anthropic", {"stop": stop})).sent["stop_sequences"] == sent
    bedrock = (await ask("bedrock", {"stop": stop})).sent
    assert bedrock["inferenceConfig"]["stopSequences"] == sent
    assert '"stop":' not in json.dumps(bedrock)


async def test_stop_sequences_are_stop_for_openai(ask):
    body = {"stop_sequences": ["X", "Y"]}
    asked = await ask("openai", body, client="anthropic", model="gpt-4o")
    assert asked.sent["stop"] == ["X", "Y"]
    assert "stop_sequences" not in asked.sent


async def test_more_stop_sequences_than_openai_takes_are_cut_with_a_notice(ask):
    body = {"stop_sequences": list("ABCDEF")}
    asked = await ask("openai", body, client="anthropic", model="gpt-4o")
    assert asked.sent["stop"] == list("ABCD")
    assert asked.noticed("stop")


async def test_a_reasoner_that_takes_no_stop_is_sent_none_and_it_is_said(ask):
    asked = await ask("openai", {"stop_sequences": ["X"]}, client="anthropic", model="o3")
    assert "stop" not in asked.sent
    assert asked.noticed("stop")


@on_claude
async def test_an_empty_list_of_stops_is_not_refused(ask, kind):
    asked = await ask(kind, {"stop": []})
    sent = asked.sent if kind == "anthropic" else asked.sent.get("inferenceConfig", {})
    assert not sent.get("stop_sequences")
    assert not sent.get("stopSequences")


async def test_a_blank_stop_sequence_is_left_out_with_a_notice(ask):
    asked = await ask("anthropic", {"stop": ["\n", "X"]})
    assert asked.sent["stop_sequences"] == ["X"]
    assert asked.noticed("stop")


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_either_word_for_the_limit_is_the_limit(ask, name):
    assert (await ask("anthropic", {name: 77})).sent["max_tokens"] == 77
    assert (await ask("bedrock", {name: 77})).sent["inferenceConfig"]["maxTokens"] == 77


@pytest.mark.parametrize(
    ("name", "value"), [("seed", 3), ("logit_bias", {"1": 2}), ("frequency_penalty", 1)]
)
@on_claude
async def test_a_parameter_that_claude_has_not_is_named_in_a_notice(ask, kind, name, value):
    asked = await ask(kind, {name: value})
    assert asked.noticed(name)
    assert name not in asked.request.body.decode()


@on_claude
async def test_a_temperature_above_claudes_highest_is_lowered_with_a_notice(ask, kind):
    """OpenAI's goes up to 2, Claude's to 1."""
    asked = await ask(kind, {"temperature": 1.5})
    sent = asked.sent if kind == "anthropic" else asked.sent["inferenceConfig"]
    assert sent["temperature"] == 1
    assert asked.noticed("temperature")


@on_claude
@pytest.mark.parametrize(
    "body",
    [
        {"stream_options": {"include_usage": True}},
        {"n": 1},
        {"response_format": {"type": "text"}},
        {"logprobs": False},
        {"store": False},
        {"frequency_penalty": 0, "presence_penalty": 0},
    ],
    ids=",".join,
)
async def test_what_asks_for_nothing_special_is_nothing_to_tell_of(ask, kind, body):
    """A default that is said aloud changes nothing: a notice would be an error in strict mode."""
    asked = await ask(kind, body)
    assert not asked.notices


@on_claude
@pytest.mark.parametrize(
    "body",
    [
        {"n": 2},
        {"response_format": {"type": "json_object"}},
        {"logprobs": True, "top_logprobs": 3},
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}},
    ],
    ids=lambda body: next(iter(body)),
)
async def test_what_claude_cannot_be_asked_for_is_told(ask, kind, body):
    assert (await ask(kind, body)).notices


async def test_a_schema_for_the_answer_is_one_for_claude_too(ask):
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    schema |= {"required": ["a"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    asked = await ask("anthropic", {"response_format": form})
    assert asked.sent["output_config"]["format"] == {"type": "json_schema", "schema": schema}
    own = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    asked = await ask("openai", own, client="anthropic")
    assert asked.sent["response_format"]["json_schema"]["schema"] == schema


@on_claude
async def test_the_name_of_a_speaker_is_not_lost_in_silence(ask, kind):
    body = {"messages": [{"role": "user", "name": "alice", "content": "Hello"}]}
    assert (await ask(kind, body)).notices


async def test_top_k_is_named_in_a_notice_for_openai(ask):
    assert (await ask("openai", {"top_k": 3}, client="anthropic")).noticed("top_k")


@pytest.mark.parametrize(
    ("said", "form"),
    [
        ("image/jpg", "jpeg"),
        ("image/jpeg", "jpeg"),
        ("image/JPEG", "jpeg"),
        ("image/JPG", "jpeg"),
        ("IMAGE/Jpg", "jpeg"),
        ("image/png", "png"),
        ("image/gif", "gif"),
        ("image/webp", "webp"),
        ("image/png;charset=utf-8", "png"),
    ],
)
async def test_an_image_in_a_data_url_is_its_format_and_its_bytes(ask, said, form):
    asked = await ask("bedrock", user(text("?"), data_url(said)))
    (image,) = [block["image"] for block in only_content(asked.sent) if "image" in block]
    assert image == {"format": form, "source": {"bytes": PNG}}
    asked = await ask("anthropic", user(text("?"), data_url(said)))
    assert only_content(asked.sent)[1]["source"] == {
        "type": "base64",
        "media_type": f"image/{form}",
        "data": PNG,
    }


@pytest.mark.parametrize("said", ["image/jpg", "image/JPEG", "image/png"])
async def test_an_image_of_an_anthropic_client_is_its_format_and_its_bytes(ask, said):
    image = {"type": "image", "source": {"type": "base64", "media_type": said, "data": PNG}}
    asked = await ask("bedrock", user(image, text("?")), client="anthropic")
    form = "png" if said == "image/png" else "jpeg"
    assert only_content(asked.sent)[0] == {"image": {"format": form, "source": {"bytes": PNG}}}
    asked = await ask("openai", user(image, text("?")), client="anthropic")
    sent = only_content(asked.sent)[0]["image_url"]["url"]
    assert sent.lower() == f"data:{said};base64,{PNG}".lower()


@pytest.mark.parametrize("said", ["image/bmp", "image/tiff", "image/svg+xml", "text/plain"])
async def test_an_image_of_a_format_that_claude_has_not_is_refused_and_not_relabelled(
    break_off, server, said
):
    for kind in CLAUDES:
        _, error = await break_off(kind, user(text("?"), data_url(said)))
        assert isinstance(error, InvalidRequestError)
        assert said in str(error)
    assert not server.requests


@pytest.mark.parametrize("data", ["", "not base64!", "abc"])
@on_claude
async def test_an_image_that_is_no_base64_is_refused_here(break_off, server, kind, data):
    _, error = await break_off(kind, user(text("?"), data_url("image/png", data)))
    assert isinstance(error, InvalidRequestError)
    assert not server.requests


async def test_an_image_by_its_address_is_a_clear_error_for_bedrock(break_off, server):
    _, error = await break_off("bedrock", user(text("?"), image_url("https://example.com/a.png")))
    assert isinstance(error, InvalidRequestError)
    assert "URL" in str(error)
    assert not server.requests


async def test_an_image_by_its_address_is_an_address_for_anthropic_and_openai(ask):
    url = "https://example.com/a.png?b=1&c=2"
    asked = await ask("anthropic", user(text("?"), image_url(url)))
    assert only_content(asked.sent)[1]["source"] == {"type": "url", "url": url}
    image = {"type": "image", "source": {"type": "url", "url": url}}
    asked = await ask("openai", user(text("?"), image), client="anthropic")
    assert only_content(asked.sent)[1]["image_url"]["url"] == url


@on_claude
async def test_the_detail_of_an_image_is_named_in_a_notice(ask, kind):
    detailed = image_url(f"data:image/png;base64,{PNG}", detail="low")
    asked = await ask(kind, user(text("?"), detailed))
    assert "detail" not in asked.request.body.decode()
    assert asked.notices


@on_claude
async def test_text_and_images_keep_their_order(ask, kind):
    parts = [text("A"), data_url("image/png"), text("B"), data_url("image/png"), text("C")]
    sent = only_content((await ask(kind, user(*parts))).sent)
    kinds = [block.get("type") or next(iter(block)) for block in sent]
    assert kinds == ["text", "image", "text", "image", "text"]


@pytest.mark.parametrize("client", ["openai", "anthropic"])
async def test_a_document_alone_is_given_a_text_beside_it_on_bedrock(ask, client):
    own = {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
        "title": "q3 report.pdf",
    }
    file = {"filename": "q3 report.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
    block = own if client == "anthropic" else {"type": "file", "file": file}
    asked = await ask("bedrock", user(block), client=client)
    document, words = only_content(asked.sent)
    assert document["document"]["format"] == "pdf"
    assert document["document"]["source"] == {"bytes": PDF}
    assert words["text"].strip()


async def test_a_document_beside_text_is_given_no_other(ask):
    file = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
    asked = await ask("bedrock", user(text("What is it?"), {"type": "file", "file": file}))
    assert [block["text"] for block in only_content(asked.sent) if "text" in block] == [
        "What is it?"
    ]


async def test_a_file_of_an_openai_client_is_a_document_for_anthropic(ask):
    file = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
    asked = await ask("anthropic", user({"type": "file", "file": file}, text("?")))
    document = only_content(asked.sent)[0]
    assert document["source"] == {"type": "base64", "media_type": "application/pdf", "data": PDF}
    assert document["title"] == "a.pdf"


async def test_a_document_of_an_anthropic_client_is_a_file_for_openai(ask):
    source = {"type": "base64", "media_type": "application/pdf", "data": PDF}
    document = {"type": "document", "source": source, "title": "a.pdf"}
    asked = await ask("openai", user(document, text("?")), client="anthropic")
    assert only_content(asked.sent)[0]["file"] == {
        "filename": "a.pdf",
        "file_data": f"data:application/pdf;base64,{PDF}",
    }


@on_claude
async def test_a_document_of_a_kind_that_claude_has_not_is_refused(break_off, server, kind):
    file = {"filename": "a.zip", "file_data": f"data:application/zip;base64,{PDF}"}
    _, error = await break_off(kind, user({"type": "file", "file": file}, text("?")))
    assert isinstance(error, InvalidRequestError)
    assert not server.requests


async def test_a_file_by_an_id_of_openais_is_not_silently_dropped_for_claude(ask, break_off):
    body = user({"type": "file", "file": {"file_id": "file-1"}}, text("?"))
    _, error = await break_off("bedrock", body)
    assert "file-1" in str(error)


async def test_a_document_of_text_is_text_for_openai_and_loses_no_words(ask):
    plain = {"type": "text", "media_type": "text/plain", "data": "All of it."}
    blocks = {"type": "content", "content": [text("One."), text("Two.")]}
    for source, words in ((plain, ["All of it."]), (blocks, ["One.", "Two."])):
        document = {"type": "document", "source": source, "title": "t"}
        asked = await ask("openai", user(document, text("?")), client="anthropic")
        assert all(word in asked.request.body.decode() for word in words)
        asked = await ask("bedrock", user(document, text("?")), client="anthropic")
        assert all(word in asked.request.body.decode() for word in words)


async def test_that_a_document_is_to_be_cited_is_kept_for_bedrock_and_told_for_openai(ask):
    source = {"type": "base64", "media_type": "application/pdf", "data": PDF}
    document = {"type": "document", "source": source, "citations": {"enabled": True}}
    asked = await ask("bedrock", user(document, text("?")), client="anthropic")
    assert only_content(asked.sent)[0]["document"]["citations"] == {"enabled": True}
    asked = await ask("openai", user(document, text("?")), client="anthropic")
    assert asked.noticed("citations")


@pytest.mark.parametrize("kind", ["openai", "bedrock"])
@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
        {"type": "container_upload", "file_id": "file_1"},
        {"type": "search_result", "source": "s", "title": "t", "content": [text("found")]},
    ],
    ids=["image file", "document file", "document url", "container", "search result"],
)
async def test_a_block_that_only_anthropic_has_is_never_lost_in_silence(
    ask, make, server, kind, block
):
    asked = prompt_of(user(block, text("?")), "anthropic", MODELS[kind], stream=True)
    try:
        events = [event async for event in make(kind).ask(asked)]
    except InvalidRequestError:
        assert not server.requests
    else:
        assert any(isinstance(event, Noticed) for event in events)


async def test_documents_of_one_name_stay_two_on_bedrock(ask):
    file = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
    block = {"type": "file", "file": file}
    asked = await ask("bedrock", user(block, block, text("?")))
    names = [b["document"]["name"] for b in only_content(asked.sent) if "document" in b]
    assert len(set(names)) == 2


async def test_audio_is_not_silently_dropped(ask):
    audio = {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}}
    for kind in CLAUDES:
        assert (await ask(kind, user(text("?"), audio))).notices


@on_claude
async def test_a_developer_is_the_system(ask, kind):
    body = {
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
        ]
    }
    asked = await ask(kind, body)
    assert "Be brief." in json.dumps(asked.sent["system"])
    assert [message["role"] for message in asked.sent["messages"]] == ["user"]
    assert "developer" not in asked.request.body.decode()


@on_claude
async def test_a_developer_in_the_middle_is_system_too_and_said_to_be_moved(ask, kind):
    body = {
        "messages": [
            {"role": "system", "content": "One."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi."},
            {"role": "developer", "content": "Two."},
            {"role": "user", "content": "And?"},
        ]
    }
    asked = await ask(kind, body)
    system = json.dumps(asked.sent["system"])
    assert system.index("One.") < system.index("Two.")
    assert [m["role"] for m in asked.sent["messages"]] == ["user", "assistant", "user"]
    assert asked.noticed("messages[3]")


@on_claude
async def test_system_messages_at_the_beginning_are_nothing_to_tell_of(ask, kind):
    """They mean what they meant: a notice here would be an error in strict mode."""
    body = {
        "messages": [
            {"role": "system", "content": "One."},
            {"role": "developer", "content": "Two."},
            {"role": "user", "content": "Hello"},
        ]
    }
    assert not (await ask(kind, body)).notices


async def test_several_system_messages_keep_their_order(ask):
    messages = [{"role": "system", "content": str(n)} for n in range(3)]
    body = {"messages": [*messages, {"role": "user", "content": "Hello"}]}
    assert [b["text"] for b in (await ask("bedrock", body)).sent["system"]] == ["0", "1", "2"]
    assert [b["text"] for b in (await ask("anthropic", body)).sent["system"]] == ["0", "1", "2"]


async def test_a_developer_goes_to_openai_as_it_is(ask):
    body = {"messages": [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}]}
    assert (await ask("openai", body)).sent["messages"][0]["role"] == "developer"


@pytest.mark.parametrize("model", ["qwen3-32b", "llama-3.3-70b", "mistral-small"])
async def test_a_developer_is_the_system_for_servers_that_know_no_developer(ask, model):
    """vLLM and its like refuse the role; only OpenAI's own models have it."""
    body = {"messages": [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}]}
    asked = await ask("openai", body, model=model)
    assert asked.sent["messages"][0] == {"role": "system", "content": "a"}


async def test_a_beta_flag_that_bedrock_has_not_is_left_out_with_a_notice(ask):
    body = {"betas": ["interleaved-thinking-2025-05-14", "made-up-2031-01-01"]}
    asked = await ask("bedrock", body, client="anthropic")
    fields = asked.sent["additionalModelRequestFields"]
    assert fields == {"anthropic_beta": ["interleaved-thinking-2025-05-14"]}
    assert asked.noticed("made-up-2031-01-01")


async def test_beta_flags_are_not_sent_to_models_that_are_not_claude(ask):
    body = {"betas": ["interleaved-thinking-2025-05-14"]}
    asked = await ask("bedrock", body, client="anthropic", model="us.amazon.nova-pro-v1:0")
    assert "anthropic_beta" not in asked.request.body.decode()
    assert asked.notices


@pytest.mark.parametrize("field", ["betas", "anthropic_beta"])
async def test_beta_flags_are_not_sent_to_openai(ask, field):
    asked = await ask("openai", {field: ["context-1m-2025-08-07"]}, client="anthropic")
    assert field not in asked.sent
    assert asked.noticed(field)


async def test_beta_flags_go_to_anthropic_in_their_header(ask):
    body = {"betas": ["interleaved-thinking-2025-05-14"]}
    asked = await ask("anthropic", body, client="anthropic")
    assert "betas" not in asked.sent
    assert "interleaved-thinking-2025-05-14" in asked.request.headers["anthropic-beta"]


async def test_what_needs_no_change_goes_through_with_fields_nobody_knows(make, server, prompt):
    """The same protocol on both sides: also what we have no name for."""
    body = {
        "messages": [{"role": "user", "content": [text("Hello", odd={"a": 1})], "more": 2}],
        "field_of_tomorrow": {"b": [None, 1.0]},
    }
    for kind in ("openai", "anthropic"):
        asked = prompt_of(body, kind, "m", stream=False)
        assert [event async for event in make(kind).ask(asked)]
        sent = server.requests[-1].json
        assert sent["messages"] == body["messages"]
        assert sent["field_of_tomorrow"] == body["field_of_tomorrow"]


@pytest.mark.parametrize("stream", [b"true", b"false"], ids=["stream", "whole"])
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_a_body_in_the_providers_own_words_is_sent_to_the_byte(make, server, kind, stream):
    body = (
        b'{ "stream" : %b, "stream_options":{"include_usage":true} ,\n "max_tokens": 1e2,'
        b'"temperature":0.70, "model":"m", "odd":{"b":1,"a":[]},'
        b'"messages":[ {"content":"H\\u00e4", "role":"user"} ]}' % stream
    )
    decode = openai_request if kind == "openai" else anthropic_request
    body = body if kind == "openai" else body.replace(b'"stream_options"', b'"more_options"')
    assert [event async for event in make(kind).ask(decode.decode_request(body))]
    assert server.requests[-1].body == body


@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
@pytest.mark.parametrize("client", ["openai", "anthropic"])
async def test_the_same_request_twice_is_the_same_bytes(ask, kind, client):
    body = {"messages": [{"role": "user", "content": [text("Hello"), text("ä")]}], "top_p": 0.5}
    first = await ask(kind, body, client=client)
    again = await ask(kind, body, client=client)
    assert first.request.body == again.request.body


@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
async def test_odd_characters_arrive_as_they_are(ask, kind):
    said = 'ä🐈\u2028 "quoted" \\ </s> \u0000 \r\n end'
    asked = await ask(kind, {"messages": [{"role": "user", "content": said}]})
    content = only_content(asked.sent)
    assert (content if isinstance(content, str) else content[0]["text"]) == said


@on_claude
async def test_messages_of_one_role_side_by_side_lose_no_words(ask, kind):
    body = {"messages": [{"role": "user", "content": said} for said in ("A", "B", "C")]}
    sent = only_content((await ask(kind, body)).sent)
    assert [block["text"] for block in sent] == ["A", "B", "C"]


@on_claude
async def test_an_empty_message_does_not_spoil_the_request(ask, kind):
    body = {
        "messages": [
            {"role": "user", "content": "A"},
            {"role": "assistant", "content": ""},
            {"role": "user", "content": "B"},
        ]
    }
    sent = (await ask(kind, body)).request.body.decode()
    assert '"A"' in sent
    assert '"B"' in sent

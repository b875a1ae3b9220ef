"""System prompts, content and parameters of every client, as every provider receives them."""

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


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


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


async def test_system_blocks_and_cache_control_are_sent_to_anthropic(ask):
    system = [text("You are a pirate.", cache_control=HOUR), text("Arr.", cache_control=MARK)]
    exchange = await ask("anthropic", {"system": system}, client="anthropic")
    assert exchange.sent["system"] == system
    assert not exchange.notices


async def test_system_blocks_and_cache_points_are_sent_to_bedrock(ask):
    system = [text("You are a pirate.", cache_control=MARK), text("Arr.")]
    exchange = await ask("bedrock", {"system": system}, client="anthropic")
    assert exchange.sent["system"] == [{"text": "You are a pirate."}, POINT, {"text": "Arr."}]


async def test_system_blocks_keep_their_text_for_openai(ask):
    system = [text("You are a pirate.", cache_control=MARK), text("Arr.")]
    exchange = await ask("openai", {"system": system}, client="anthropic")
    first = exchange.sent["messages"][0]
    assert first["role"] in ("system", "developer")
    assert [part["text"] for part in first["content"]] == ["You are a pirate.", "Arr."]
    assert "cache_control" not in exchange.request.body.decode()
    assert exchange.has_notice("cache", "system")


@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
async def test_a_system_prompt_of_one_text_is_sent(ask, kind):
    exchange = await ask(kind, {"system": "You are a pirate."}, client="anthropic")
    assert exchange.request.body.count(b"You are a pirate.") == 1


@on_claude
async def test_a_system_message_keeps_its_parts_and_cache_control(ask, kind):
    """OpenAI's clients of Claude write cache marks on the parts of their messages."""
    system = {"role": "system", "content": [text("One.", cache_control=MARK), text("Two.")]}
    body = {"messages": [system, {"role": "user", "content": "Hello"}]}
    sent = (await ask(kind, body)).sent["system"]
    if kind == "anthropic":
        assert sent == [text("One.", cache_control=MARK), text("Two.")]
    else:
        assert sent == [{"text": "One."}, POINT, {"text": "Two."}]


@pytest.mark.parametrize("prompt", ["", "  ", []], ids=["empty", "blank", "list"])
@pytest.mark.parametrize("kind", ["anthropic", "bedrock"])
async def test_an_empty_system_prompt_is_not_sent(ask, kind, prompt):
    exchange = await ask(kind, {"system": prompt}, client="anthropic")
    assert not exchange.sent.get("system")


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


async def test_every_cache_control_is_a_cache_point_on_bedrock(ask):
    exchange = await ask("bedrock", marked_everywhere(), client="anthropic")
    assert exchange.sent["system"] == [{"text": "S"}, POINT]
    assert exchange.sent["toolConfig"]["tools"][1] == POINT
    content = exchange.sent["messages"][2]["content"]
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
async def test_cache_control_of_the_assistant_is_a_cache_point_on_bedrock(ask, content):
    last = [text("And?")]
    if content[0]["type"] == "tool_use":
        last = [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]
    messages = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": last},
    ]
    exchange = await ask("bedrock", {"messages": messages, "tools": [TOOL]}, client="anthropic")
    assert exchange.sent["messages"][1]["content"][1] == POINT


async def test_cache_control_in_a_result_is_a_cache_point_after_it_on_bedrock(ask):
    body = marked_everywhere()
    body["messages"][2]["content"] = [
        {"type": "tool_result", "tool_use_id": "t", "content": [text("ok", cache_control=MARK)]}
    ]
    exchange = await ask("bedrock", body, client="anthropic")
    assert [next(iter(b)) for b in exchange.sent["messages"][2]["content"]] == [
        "toolResult",
        "cachePoint",
    ]


async def test_cache_control_of_an_image_is_a_cache_point_after_it_on_bedrock(ask):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    exchange = await ask(
        "bedrock", user(image | {"cache_control": MARK}, text("?")), client="anthropic"
    )
    assert [next(iter(block)) for block in only_content(exchange.sent)] == [
        "image",
        "cachePoint",
        "text",
    ]


async def test_one_hour_cache_control_is_a_one_hour_cache_point(ask):
    body = {"system": [text("S", cache_control=HOUR)]}
    model = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    exchange = await ask("bedrock", body, client="anthropic", model=model)
    assert exchange.sent["system"][1] == {"cachePoint": {"type": "default", "ttl": "1h"}}


async def test_unsupported_one_hour_cache_control_is_the_default_with_a_notice(ask):
    body = {"system": [text("S", cache_control=HOUR)]}
    exchange = await ask("bedrock", body, client="anthropic")
    assert exchange.sent["system"][1] == POINT
    assert exchange.has_notice("cache")


async def test_cache_control_is_sent_unchanged_to_anthropic(ask):
    body = marked_everywhere()
    exchange = await ask("anthropic", body, client="anthropic")
    assert exchange.sent["system"] == body["system"]
    assert exchange.sent["tools"] == body["tools"]
    assert exchange.sent["messages"][2] == body["messages"][2]
    assert not exchange.notices


async def test_cache_control_of_an_openai_client_is_sent_to_anthropic(ask):
    tool = {"type": "function", "function": {"name": "f"}, "cache_control": MARK}
    body = user(text("Hello", cache_control=MARK), text("?")) | {"tools": [tool]}
    exchange = await ask("anthropic", body)
    assert only_content(exchange.sent)[0] == text("Hello", cache_control=MARK)
    assert exchange.sent["tools"][0]["cache_control"] == MARK


@pytest.mark.parametrize(
    "model", ["meta.llama3-3-70b-instruct-v1:0", "mistral.mistral-large-2402-v1:0"]
)
async def test_cache_control_is_dropped_with_a_notice_for_a_model_without_a_cache(ask, model):
    body = {"system": [text("S", cache_control=MARK)]} | user(text("Hello", cache_control=MARK))
    exchange = await ask("bedrock", body, client="anthropic", model=model)
    assert "cachePoint" not in exchange.request.body.decode()
    assert exchange.has_notice("cache")


async def test_cache_control_is_dropped_with_a_notice_for_openai(ask):
    exchange = await ask("openai", marked_everywhere(), client="anthropic")
    assert "cache_control" not in exchange.request.body.decode()
    assert exchange.has_notice("cache")


@pytest.mark.parametrize("count", [5, 9, 40])
@on_claude
async def test_there_are_at_most_four_cache_breakpoints(ask, kind, count):
    body = marked_everywhere()
    body["messages"] = [
        {"role": ("user", "assistant")[at % 2], "content": [text(f"{at}", cache_control=MARK)]}
        for at in range(count - 2 + count % 2 + 1)
    ]
    exchange = await ask(kind, body, client="anthropic")
    sent = exchange.request.body.decode()
    assert sent.count("cachePoint") + sent.count("cache_control") == 4
    assert exchange.has_notice("cache")
    assert "cache" in json.dumps(exchange.sent["messages"][-1])


@on_claude
async def test_no_cache_breakpoint_is_added_if_the_client_set_one(ask, kind):
    body = {"system": [text("S", cache_control=MARK)]} | user(text("Hello"))
    sent = (await ask(kind, body, client="anthropic")).request.body.decode()
    assert sent.count("cachePoint") + sent.count("cache_control") == 1


async def test_a_cache_point_never_follows_a_document_directly(ask):
    document = {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
        "cache_control": MARK,
    }
    exchange = await ask("bedrock", user(document), client="anthropic")
    kinds = [next(iter(block)) for block in only_content(exchange.sent)]
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
async def test_absent_parameters_are_not_sent(ask, kind):
    exchange = await ask(kind, {"temperature": None, "top_p": None, "stop": None, "tools": None})
    sent = exchange.request.body.decode()
    for name in ("temperature", "top_p", "topP", "stop_sequences", "stopSequences", "tools"):
        assert f'"{name}":' not in sent


@pytest.mark.parametrize(
    ("stop", "sent"),
    [(["X"], ["X"]), ("X", ["X"]), (["X", "Y"], ["X", "Y"])],
    ids=["list", "text", "two"],
)
async def test_stop_becomes_stop_sequences_for_claude(ask, stop, sent):
    assert (await ask("anthropic", {"stop": stop})).sent["stop_sequences"] == sent
    bedrock = (await ask("bedrock", {"stop": stop})).sent
    assert bedrock["inferenceConfig"]["stopSequences"] == sent
    assert '"stop":' not in json.dumps(bedrock)


async def test_stop_sequences_become_stop_for_openai(ask):
    body = {"stop_sequences": ["X", "Y"]}
    exchange = await ask("openai", body, client="anthropic", model="gpt-4o")
    assert exchange.sent["stop"] == ["X", "Y"]
    assert "stop_sequences" not in exchange.sent


async def test_too_many_stop_sequences_are_dropped_with_a_notice_for_openai(ask):
    body = {"stop_sequences": list("ABCDEF")}
    exchange = await ask("openai", body, client="anthropic", model="gpt-4o")
    assert exchange.sent["stop"] == list("ABCD")
    assert exchange.has_notice("stop")


async def test_stop_is_dropped_with_a_notice_for_reasoning_models(ask):
    exchange = await ask("openai", {"stop_sequences": ["X"]}, client="anthropic", model="o3")
    assert "stop" not in exchange.sent
    assert exchange.has_notice("stop")


@on_claude
async def test_an_empty_stop_list_is_accepted(ask, kind):
    exchange = await ask(kind, {"stop": []})
    sent = exchange.sent if kind == "anthropic" else exchange.sent.get("inferenceConfig", {})
    assert not sent.get("stop_sequences")
    assert not sent.get("stopSequences")


async def test_a_blank_stop_sequence_is_dropped_with_a_notice(ask):
    exchange = await ask("anthropic", {"stop": ["\n", "X"]})
    assert exchange.sent["stop_sequences"] == ["X"]
    assert exchange.has_notice("stop")


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_max_tokens_and_max_completion_tokens_are_the_limit(ask, name):
    assert (await ask("anthropic", {name: 77})).sent["max_tokens"] == 77
    assert (await ask("bedrock", {name: 77})).sent["inferenceConfig"]["maxTokens"] == 77


@pytest.mark.parametrize(
    ("name", "value"), [("seed", 3), ("logit_bias", {"1": 2}), ("frequency_penalty", 1)]
)
@on_claude
async def test_a_parameter_that_claude_does_not_have_is_reported(ask, kind, name, value):
    exchange = await ask(kind, {name: value})
    assert exchange.has_notice(name)
    assert name not in exchange.request.body.decode()


@on_claude
async def test_a_temperature_above_claudes_maximum_is_lowered_with_a_notice(ask, kind):
    """OpenAI's goes up to 2, Claude's to 1."""
    exchange = await ask(kind, {"temperature": 1.5})
    sent = exchange.sent if kind == "anthropic" else exchange.sent["inferenceConfig"]
    assert sent["temperature"] == 1
    assert exchange.has_notice("temperature")


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
async def test_default_values_need_no_notice(ask, kind, body):
    """A default that is said aloud changes nothing: a notice would be an error in strict mode."""
    exchange = await ask(kind, body)
    assert not exchange.notices


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
async def test_options_that_claude_does_not_have_are_reported(ask, kind, body):
    assert (await ask(kind, body)).notices


async def test_a_json_schema_is_sent_to_claude(ask):
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    schema |= {"required": ["a"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    exchange = await ask("anthropic", {"response_format": form})
    assert exchange.sent["output_config"]["format"] == {"type": "json_schema", "schema": schema}
    own = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    exchange = await ask("openai", own, client="anthropic")
    assert exchange.sent["response_format"]["json_schema"]["schema"] == schema


@on_claude
async def test_the_loss_of_a_message_name_is_reported(ask, kind):
    body = {"messages": [{"role": "user", "name": "alice", "content": "Hello"}]}
    assert (await ask(kind, body)).notices


async def test_top_k_is_reported_for_openai(ask):
    assert (await ask("openai", {"top_k": 3}, client="anthropic")).has_notice("top_k")


@pytest.mark.parametrize(
    ("media_type", "form"),
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
async def test_an_image_in_a_data_url_keeps_its_format_and_bytes(ask, media_type, form):
    exchange = await ask("bedrock", user(text("?"), data_url(media_type)))
    (image,) = [block["image"] for block in only_content(exchange.sent) if "image" in block]
    assert image == {"format": form, "source": {"bytes": PNG}}
    exchange = await ask("anthropic", user(text("?"), data_url(media_type)))
    assert only_content(exchange.sent)[1]["source"] == {
        "type": "base64",
        "media_type": f"image/{form}",
        "data": PNG,
    }


@pytest.mark.parametrize("media_type", ["image/jpg", "image/JPEG", "image/png"])
async def test_an_image_of_an_anthropic_client_keeps_its_format_and_bytes(ask, media_type):
    image = {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": PNG}}
    exchange = await ask("bedrock", user(image, text("?")), client="anthropic")
    form = "png" if media_type == "image/png" else "jpeg"
    assert only_content(exchange.sent)[0] == {"image": {"format": form, "source": {"bytes": PNG}}}
    exchange = await ask("openai", user(image, text("?")), client="anthropic")
    sent = only_content(exchange.sent)[0]["image_url"]["url"]
    assert sent == f"data:image/{form};base64,{PNG}"


@pytest.mark.parametrize("media_type", ["image/bmp", "image/tiff", "image/svg+xml", "text/plain"])
async def test_an_image_of_an_unsupported_format_is_refused(break_off, server, media_type):
    for kind in CLAUDES:
        _, error = await break_off(kind, user(text("?"), data_url(media_type)))
        assert isinstance(error, InvalidRequestError)
        assert media_type in str(error)
    assert not server.requests


@pytest.mark.parametrize("data", ["", "not base64!", "abc"])
@on_claude
async def test_an_image_with_invalid_base64_is_refused(break_off, server, kind, data):
    _, error = await break_off(kind, user(text("?"), data_url("image/png", data)))
    assert isinstance(error, InvalidRequestError)
    assert not server.requests


async def test_an_image_by_url_is_an_error_for_bedrock(break_off, server):
    _, error = await break_off("bedrock", user(text("?"), image_url("https://example.com/a.png")))
    assert isinstance(error, InvalidRequestError)
    assert "URL" in str(error)
    assert not server.requests


async def test_an_image_by_url_is_sent_to_anthropic_and_openai(ask):
    url = "https://example.com/a.png?b=1&c=2"
    exchange = await ask("anthropic", user(text("?"), image_url(url)))
    assert only_content(exchange.sent)[1]["source"] == {"type": "url", "url": url}
    image = {"type": "image", "source": {"type": "url", "url": url}}
    exchange = await ask("openai", user(text("?"), image), client="anthropic")
    assert only_content(exchange.sent)[1]["image_url"]["url"] == url


@on_claude
async def test_the_loss_of_the_image_detail_is_reported(ask, kind):
    detailed = image_url(f"data:image/png;base64,{PNG}", detail="low")
    exchange = await ask(kind, user(text("?"), detailed))
    assert "detail" not in exchange.request.body.decode()
    assert exchange.notices


@on_claude
async def test_text_and_images_keep_their_order(ask, kind):
    parts = [text("A"), data_url("image/png"), text("B"), data_url("image/png"), text("C")]
    sent = only_content((await ask(kind, user(*parts))).sent)
    kinds = [block.get("type") or next(iter(block)) for block in sent]
    assert kinds == ["text", "image", "text", "image", "text"]


@pytest.mark.parametrize("client", ["openai", "anthropic"])
async def test_a_document_without_text_gets_a_text_on_bedrock(ask, client):
    own = {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
        "title": "q3 report.pdf",
    }
    file = {"filename": "q3 report.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
    block = own if client == "anthropic" else {"type": "file", "file": file}
    exchange = await ask("bedrock", user(block), client=client)
    document, words = only_content(exchange.sent)
    assert document["document"]["format"] == "pdf"
    assert document["document"]["source"] == {"bytes": PDF}
    assert words["text"].strip()


async def test_a_document_with_text_gets_no_other_text(ask):
    file = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
    exchange = await ask("bedrock", user(text("What is it?"), {"type": "file", "file": file}))
    assert [block["text"] for block in only_content(exchange.sent) if "text" in block] == [
        "What is it?"
    ]


async def test_a_file_of_an_openai_client_is_a_document_for_anthropic(ask):
    file = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
    exchange = await ask("anthropic", user({"type": "file", "file": file}, text("?")))
    document = only_content(exchange.sent)[0]
    assert document["source"] == {"type": "base64", "media_type": "application/pdf", "data": PDF}
    assert document["title"] == "a.pdf"


async def test_a_document_of_an_anthropic_client_is_a_file_for_openai(ask):
    source = {"type": "base64", "media_type": "application/pdf", "data": PDF}
    document = {"type": "document", "source": source, "title": "a.pdf"}
    exchange = await ask("openai", user(document, text("?")), client="anthropic")
    assert only_content(exchange.sent)[0]["file"] == {
        "filename": "a.pdf",
        "file_data": f"data:application/pdf;base64,{PDF}",
    }


@on_claude
async def test_a_document_of_an_unsupported_type_is_refused(break_off, server, kind):
    file = {"filename": "a.zip", "file_data": f"data:application/zip;base64,{PDF}"}
    _, error = await break_off(kind, user({"type": "file", "file": file}, text("?")))
    assert isinstance(error, InvalidRequestError)
    assert not server.requests


async def test_the_loss_of_an_openai_file_id_is_reported_for_claude(ask, break_off):
    body = user({"type": "file", "file": {"file_id": "file-1"}}, text("?"))
    _, error = await break_off("bedrock", body)
    assert "file-1" in str(error)


async def test_a_text_document_is_sent_as_text_to_openai(ask):
    plain = {"type": "text", "media_type": "text/plain", "data": "All of it."}
    blocks = {"type": "content", "content": [text("One."), text("Two.")]}
    for source, words in ((plain, ["All of it."]), (blocks, ["One.", "Two."])):
        document = {"type": "document", "source": source, "title": "t"}
        exchange = await ask("openai", user(document, text("?")), client="anthropic")
        assert all(word in exchange.request.body.decode() for word in words)
        exchange = await ask("bedrock", user(document, text("?")), client="anthropic")
        assert all(word in exchange.request.body.decode() for word in words)


async def test_citations_are_sent_to_bedrock_and_reported_for_openai(ask):
    source = {"type": "base64", "media_type": "application/pdf", "data": PDF}
    document = {"type": "document", "source": source, "citations": {"enabled": True}}
    exchange = await ask("bedrock", user(document, text("?")), client="anthropic")
    assert only_content(exchange.sent)[0]["document"]["citations"] == {"enabled": True}
    exchange = await ask("openai", user(document, text("?")), client="anthropic")
    assert exchange.has_notice("citations")


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
async def test_the_loss_of_an_anthropic_block_is_reported(ask, make, server, kind, block):
    exchange = prompt_of(user(block, text("?")), "anthropic", MODELS[kind], stream=True)
    try:
        events = [event async for event in make(kind).ask(exchange)]
    except InvalidRequestError:
        assert not server.requests
    else:
        assert any(isinstance(event, Noticed) for event in events)


async def test_documents_with_the_same_name_get_unique_names_on_bedrock(ask):
    file = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
    block = {"type": "file", "file": file}
    exchange = await ask("bedrock", user(block, block, text("?")))
    names = [b["document"]["name"] for b in only_content(exchange.sent) if "document" in b]
    assert len(set(names)) == 2


AUDIO = {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}}
ATTACHMENTS = {
    "bmp": data_url("image/bmp"),
    "svg": data_url("image/svg+xml"),
    "audio": AUDIO,
    "video": {"type": "video_url", "video_url": {"url": "https://x.example/a.mp4"}},
    "file ID": {"type": "file", "file": {"file_id": "file-1"}},
}


@pytest.mark.parametrize("attachment", ATTACHMENTS.values(), ids=ATTACHMENTS.keys())
@on_claude
async def test_an_attachment_that_cannot_be_sent_is_refused_in_the_newest_message(
    break_off, server, kind, attachment
):
    _, error = await break_off(kind, user(text("?"), attachment))
    assert isinstance(error, InvalidRequestError)
    assert "messages[0].content[1]" in str(error)
    assert error.report().status == 400
    assert not server.requests


@pytest.mark.parametrize("attachment", ATTACHMENTS.values(), ids=ATTACHMENTS.keys())
@on_claude
async def test_an_attachment_that_cannot_be_sent_is_a_placeholder_in_the_history(
    ask, kind, attachment
):
    past = {"role": "user", "content": [attachment]}
    reply = {"role": "assistant", "content": "I see."}
    newest = {"role": "user", "content": "And now?"}
    exchange = await ask(kind, {"messages": [past, reply, newest]})
    assert "which this model cannot see" in json.dumps(exchange.sent["messages"][0])
    assert exchange.has_notice("part_left_out", "messages[0].content[0]")


@on_claude
async def test_a_developer_message_is_the_system_prompt(ask, kind):
    body = {
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
        ]
    }
    exchange = await ask(kind, body)
    assert "Be brief." in json.dumps(exchange.sent["system"])
    assert [message["role"] for message in exchange.sent["messages"]] == ["user"]
    assert "developer" not in exchange.request.body.decode()


@on_claude
async def test_a_later_developer_message_moves_to_the_system_prompt_with_a_notice(ask, kind):
    body = {
        "messages": [
            {"role": "system", "content": "One."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi."},
            {"role": "developer", "content": "Two."},
            {"role": "user", "content": "And?"},
        ]
    }
    exchange = await ask(kind, body)
    system = json.dumps(exchange.sent["system"])
    assert system.index("One.") < system.index("Two.")
    assert [m["role"] for m in exchange.sent["messages"]] == ["user", "assistant", "user"]
    assert exchange.has_notice("messages[3]")


@on_claude
async def test_system_messages_at_the_start_need_no_notice(ask, kind):
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


async def test_a_developer_message_is_sent_unchanged_to_openai(ask):
    body = {"messages": [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}]}
    assert (await ask("openai", body)).sent["messages"][0]["role"] == "developer"


@pytest.mark.parametrize("model", ["qwen3-32b", "llama-3.3-70b", "mistral-small"])
async def test_a_developer_message_becomes_a_system_message_for_other_servers(ask, model):
    """vLLM and its like refuse the role; only OpenAI's own models have it."""
    body = {"messages": [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}]}
    exchange = await ask("openai", body, model=model)
    assert exchange.sent["messages"][0] == {"role": "system", "content": "a"}


async def test_an_unsupported_beta_flag_is_dropped_with_a_notice_for_bedrock(ask):
    body = {"betas": ["interleaved-thinking-2025-05-14", "made-up-2031-01-01"]}
    exchange = await ask("bedrock", body, client="anthropic")
    fields = exchange.sent["additionalModelRequestFields"]
    assert fields == {"anthropic_beta": ["interleaved-thinking-2025-05-14"]}
    assert exchange.has_notice("made-up-2031-01-01")


async def test_beta_flags_are_sent_only_to_claude_models(ask):
    body = {"betas": ["interleaved-thinking-2025-05-14"]}
    exchange = await ask("bedrock", body, client="anthropic", model="us.amazon.nova-pro-v1:0")
    assert "anthropic_beta" not in exchange.request.body.decode()
    assert exchange.notices


@pytest.mark.parametrize("field", ["betas", "anthropic_beta"])
async def test_beta_flags_are_not_sent_to_openai(ask, field):
    exchange = await ask("openai", {field: ["context-1m-2025-08-07"]}, client="anthropic")
    assert field not in exchange.sent
    assert exchange.has_notice(field)


async def test_beta_flags_are_sent_to_anthropic_in_the_header(ask):
    body = {"betas": ["interleaved-thinking-2025-05-14"]}
    exchange = await ask("anthropic", body, client="anthropic")
    assert "betas" not in exchange.sent
    assert "interleaved-thinking-2025-05-14" in exchange.request.headers["anthropic-beta"]


async def test_unknown_fields_are_sent_if_no_change_is_needed(make, server, prompt):
    """The same protocol on both sides: also what we have no name for."""
    body = {
        "messages": [{"role": "user", "content": [text("Hello", odd={"a": 1})], "more": 2}],
        "field_of_tomorrow": {"b": [None, 1.0]},
    }
    for kind in ("openai", "anthropic"):
        exchange = prompt_of(body, kind, "m", stream=False)
        assert [event async for event in make(kind).ask(exchange)]
        sent = server.requests[-1].json
        assert sent["messages"] == body["messages"]
        assert sent["field_of_tomorrow"] == body["field_of_tomorrow"]


@pytest.mark.parametrize("stream", [b"true", b"false"], ids=["stream", "whole"])
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_a_body_in_the_providers_protocol_is_sent_byte_for_byte(make, server, kind, stream):
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
async def test_equal_requests_are_equal_bytes(ask, kind, client):
    body = {"messages": [{"role": "user", "content": [text("Hello"), text("ä")]}], "top_p": 0.5}
    first = await ask(kind, body, client=client)
    again = await ask(kind, body, client=client)
    assert first.request.body == again.request.body


@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
async def test_unusual_characters_are_sent_unchanged(ask, kind):
    text = 'ä🐈\u2028 "quoted" \\ </s> \u0000 \r\n end'
    exchange = await ask(kind, {"messages": [{"role": "user", "content": text}]})
    content = only_content(exchange.sent)
    assert (content if isinstance(content, str) else content[0]["text"]) == text


@on_claude
async def test_adjacent_messages_of_one_role_lose_no_text(ask, kind):
    body = {"messages": [{"role": "user", "content": content} for content in ("A", "B", "C")]}
    sent = (await ask(kind, body)).sent["messages"]
    if kind == "anthropic":
        assert [message["content"] for message in sent] == ["A", "B", "C"]
    else:
        assert [block["text"] for block in sent[0]["content"]] == ["A", "B", "C"]


@on_claude
async def test_an_empty_message_is_accepted(ask, kind):
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

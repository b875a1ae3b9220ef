"""`-x` prints a code block; `--schema` is a short form of a JSON schema."""

import json

import pytest

REPLY = "Here it is:\n\n```python\nprint('hi')\n\nprint('ho')\n```\n\nAnd:\n```\nother\n```\n"


@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
def test_only_the_first_code_block_is_printed(cllm, settings, provider, home, way):
    provider.queue_reply(REPLY)
    result = cllm("Write it.", "-x", way, "--conversation", "demo").succeeded()
    assert result.out == "print('hi')\n\nprint('ho')\n"
    stored = json.loads((home.path / ".cllm/conversations/demo.json").read_text())
    assert stored["messages"][-1]["content"] == REPLY


def test_a_reply_without_a_code_block_is_an_error_and_is_shown(cllm, settings, provider):
    provider.queue_reply("No code.")
    result = cllm("Write it.", "-x")
    assert (result.code, result.out) == (1, "")
    assert result.warnings == [
        "No code.",
        "Error: The reply contains no code block; it is printed above.",
    ]


def test_a_raw_response_has_no_code_block(cllm, settings):
    cllm("Hi", "-x", "--raw").failed_with_one_sentence("-x", "--raw", code=2)


def test_the_short_form_is_sent_as_a_json_schema(cllm, settings, provider):
    provider.queue_reply('{"name": "Luna", "age": 3}')
    result = cllm("A cat.", "--schema", "name, age int").succeeded()
    assert json.loads(result.out) == {"name": "Luna", "age": 3}
    schema = provider.requests[-1].json["response_format"]["json_schema"]["schema"]
    assert schema["properties"] == {"name": {"type": "string"}, "age": {"type": "integer"}}
    assert schema["required"] == ["name", "age"]


def test_a_reply_that_does_not_match_is_an_error(cllm, settings, provider):
    provider.queue_reply('{"name": "Luna", "age": "three"}')
    assert cllm("A cat.", "--schema", "name, age int").code == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("empty",)),
        ("name, age nothing", ("nothing", "int")),
        ("name, name", ("twice",)),
        ("1a b c d", ("not a field",)),
    ],
)
def test_a_bad_short_form_is_one_sentence(cllm, settings, provider, text, words):
    cllm("A cat.", "--schema", text).failed_with_one_sentence(*words, code=2)
    assert provider.requests == []


def test_one_schema_only(cllm, settings):
    result = cllm("A cat.", "--schema", "name", "--json-schema", "{}")
    result.failed_with_one_sentence("--schema or --json-schema", code=2)
    schema = '{"type": "object", "properties": {}}'
    cllm("--validate-schema", "--schema", schema).succeeded()

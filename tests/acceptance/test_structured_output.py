"""Replies that fit a JSON schema: what is sent, what is printed, and what is kept."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fake_provider import FakeProvider
from tests.schema_server import ALICE, PERSON

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.fixture
def write(home):
    """Write a schema, or text, into the work folder; its name."""

    def write(content, name="schema.json"):
        text = content if isinstance(content, str) else json.dumps(content)
        (home.work / name).parent.mkdir(parents=True, exist_ok=True)
        (home.work / name).write_text(text, encoding="utf-8")
        return name

    return write


def sent_schema(provider: FakeProvider) -> Any:
    [request] = provider.requests
    return request.json["response_format"]["json_schema"]["schema"]


def children_of(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return False


def test_the_schema_is_sent_as_an_openai_response_format(provider, settings, cllm):
    provider.queue_reply(ALICE)

    cllm("Who?", "--json-schema", json.dumps(PERSON)).succeeded()

    assert provider.requests[0].json["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "A_person", "schema": PERSON, "strict": True},
    }


@pytest.mark.parametrize("folder", ["", ".cllm"])
@pytest.mark.parametrize("way", ["flag", "./Cllmfile.yml", "./.cllm/Cllmfile.yml"])
def test_a_schema_file_is_in_the_current_folder_or_in_its_cllm_folder(
    home, provider, settings, cllm, write, folder, way
):
    provider.queue_reply('{"city": "Oslo"}')
    write(CITY, name=f"{folder}/city.json".lstrip("/"))
    arguments: tuple[str, ...] = ()
    if way == "flag":
        arguments = ("--json-schema-file", "city.json")
    else:
        path = home.work / way
        path.parent.mkdir(exist_ok=True)
        path.write_text("json_schema_file: city.json\n", encoding="utf-8")

    cllm("Where?", *arguments).succeeded()

    assert sent_schema(provider) == CITY


def test_a_schema_that_strict_mode_refuses_is_sent_without_it(provider, settings, cllm):
    provider.queue_reply('{"city": "Oslo"}')

    cllm("Where?", "--json-schema", json.dumps(CITY)).succeeded()

    asked = provider.requests[0].json["response_format"]["json_schema"]
    assert asked == {"name": "reply", "schema": CITY}


def test_a_valid_reply_is_printed_and_stored(home, provider, settings, write, cllm):
    provider.queue_reply(ALICE)

    result = cllm("Who?", "--json-schema-file", write(PERSON), "--conversation", "demo").succeeded()

    assert json.loads(result.out) == {"name": "Alice", "age": 30}
    assert home.messages("demo") == [("user", "Who?"), ("assistant", ALICE)]


@pytest.mark.parametrize("way", ["--stream", "--no-stream", "--raw"])
@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ('{"name": "Alice", "age": "old"}', ["$.age", "must be integer", "is string"]),
        ('{"name": "Alice"}', ["at $:", "'age' is missing"]),
        ('{"name": "A", "age": 1, "x": 1}', ["'x' is not allowed"]),
        (f"```json\n{ALICE}\n```", ["fences", "JSON only"]),
        (f"Here you are: {ALICE}", ["text precedes the JSON"]),
        ("Alice is 30.", ["not JSON", "line 1, column 1"]),
    ],
)
def test_an_invalid_reply_is_neither_printed_nor_stored(
    home, provider, settings, cllm, reply, words, way
):
    middle = len(reply) // 2
    provider.queue_reply(reply[:middle], reply[middle:])

    arguments = ("--json-schema", json.dumps(PERSON), "--conversation", "demo", way)
    result = cllm("Who?", *arguments)

    result.failed_with_one_sentence("does not match the JSON schema", *words)
    assert result.out == ""
    assert not home.file("demo").exists()


def test_an_invalid_reply_does_not_change_an_existing_conversation(home, provider, settings, cllm):
    before = home.write_old_conversation("demo", ("user", "Hello"), ("assistant", "Hi."))
    provider.queue_reply("Alice is 30.")

    result = cllm("Who?", "--json-schema", json.dumps(PERSON), "--conversation", "demo")

    result.failed_with_one_sentence("not JSON")
    assert home.file("demo").read_bytes() == before


def test_a_streamed_reply_is_printed_only_after_it_is_checked(provider, settings, cllm):
    gate = provider.queue_held_reply('{"name": "Alice", ', '"age": 30}')
    running = cllm.start("Who?", "--json-schema", json.dumps(PERSON))
    gate.wait_reached()

    assert provider.requests[0].json["stream"] is True
    assert running.out == ""
    gate.open()
    assert json.loads(running.finish().succeeded().out)["age"] == 30


def test_ctrl_c_saves_no_partial_document(home, provider, settings, cllm):
    gate = provider.queue_held_reply('{"name": "Alice", ', '"age": 30}')
    schema = json.dumps(PERSON)
    running = cllm.start("Who?", "--json-schema", schema, "--conversation", "demo")
    gate.wait_reached()

    running.signal(2)
    result = running.finish()

    assert result.code == 130, result.report()
    assert result.out == ""
    assert not home.file("demo").exists()


def test_a_truncated_reply_is_reported_with_max_tokens(provider, settings, cllm):
    provider.queue_reply('{"name": "Al', finish="length")

    result = cllm("Who?", "--json-schema", json.dumps(PERSON))

    result.failed_with_one_sentence("token limit", "--max-tokens")


def test_raw_prints_the_providers_json_after_the_reply_is_checked(provider, settings, cllm):
    provider.queue_reply(ALICE)

    result = cllm("Who?", "--json-schema", json.dumps(PERSON), "--raw").succeeded()

    assert json.loads(result.out)["choices"][0]["message"]["content"] == ALICE


@pytest.mark.parametrize("model", ["anthropic/claude-sonnet-4-5", "bedrock/claude-sonnet-4-5"])
def test_the_schema_is_sent_in_the_format_of_each_protocol(provider, settings, secret, cllm, model):
    row = {"api_base": provider.root, "api_key": secret}
    settings(model=model, api_base=..., api_key=..., providers={"anthropic": row, "bedrock": row})
    provider.queue_reply(ALICE)

    result = cllm("Who?", "--json-schema", json.dumps(PERSON)).succeeded()

    sent = provider.requests[0].json
    if model.startswith("anthropic"):
        assert sent["output_config"]["format"] == {"type": "json_schema", "schema": PERSON}
    else:
        text = sent["outputConfig"]["textFormat"]["structure"]["jsonSchema"]["schema"]
        assert json.loads(text) == PERSON
    assert json.loads(result.out)["name"] == "Alice"


def test_a_schema_in_the_cllmfile_as_a_mapping(provider, settings, cllm):
    settings(json_schema=PERSON)
    provider.queue_reply(ALICE)

    cllm("Who?").succeeded()

    assert sent_schema(provider) == PERSON
    assert "json_schema" not in provider.requests[0].json


def test_a_schema_in_the_cllmfile_as_text(provider, settings, cllm):
    settings(json_schema=json.dumps(PERSON))
    provider.queue_reply(ALICE)

    cllm("Who?").succeeded()

    assert sent_schema(provider) == PERSON


def test_a_schema_file_is_relative_to_its_cllmfile(home, provider, settings, cllm):
    settings(json_schema_file="schemas/person.json")
    folder = home.path / ".cllm/schemas"
    folder.mkdir()
    (folder / "person.json").write_text(json.dumps(PERSON), encoding="utf-8")
    provider.queue_reply(ALICE)

    cllm("Who?").succeeded()

    assert sent_schema(provider) == PERSON
    assert "json_schema_file" not in provider.requests[0].json


@pytest.mark.parametrize("file_key", ["json_schema", "json_schema_file"])
@pytest.mark.parametrize("flag", ["--json-schema", "--json-schema-file"])
def test_the_command_line_takes_precedence_over_both_keys_of_a_file(
    provider, settings, write, cllm, file_key, flag
):
    settings(**{file_key: PERSON if file_key == "json_schema" else "missing.json"})
    provider.queue_reply('{"city": "Oslo"}')
    given = json.dumps(CITY) if flag == "--json-schema" else write(CITY)

    cllm("Where?", flag, given).succeeded()

    assert sent_schema(provider) == CITY


def test_a_file_of_higher_precedence_replaces_the_schema(home, provider, settings, cllm):
    settings(json_schema=PERSON)
    text = yaml.safe_dump({"json_schema": CITY})
    (home.work / "Cllmfile.yml").write_text(text, encoding="utf-8")
    provider.queue_reply('{"city": "Oslo"}')

    cllm("Where?").succeeded()

    assert sent_schema(provider) == CITY


def test_a_schema_takes_precedence_over_response_format(provider, settings, cllm):
    settings(response_format={"type": "json_object"})
    provider.queue_reply(ALICE)

    cllm("Who?", "--json-schema", json.dumps(PERSON)).succeeded()

    assert sent_schema(provider) == PERSON


def test_the_checker_process_ends_with_its_parent(provider, settings, until, cllm):
    gate = provider.queue_held_reply('{"name": "Alice", ', '"age": 30}')
    running = cllm.start("Who?", "--json-schema", json.dumps(PERSON))
    gate.wait_reached()
    checkers = children_of(running.process.pid)

    running.signal(9)

    assert len(checkers) == 1
    assert until(lambda: not any(map(is_running, checkers)))


def test_both_flags_are_refused(provider, settings, write, cllm):
    result = cllm("Who?", "--json-schema", "{}", "--json-schema-file", write({}))

    result.failed_with_one_sentence("either --json-schema or --json-schema-file", code=2)
    assert provider.requests == []


def test_both_keys_in_one_file_are_refused(provider, settings, cllm):
    settings(json_schema=PERSON, json_schema_file="x.json")

    cllm("Who?").failed_with_one_sentence(
        "not both", "Cllmfile.yml", prefix="Configuration error: "
    )


def test_validate_schema_describes_a_valid_schema(provider, settings, write, cllm):
    result = cllm("--validate-schema", "--json-schema-file", write(PERSON)).succeeded()

    assert result.out.splitlines() == [
        "Schema is valid",
        "Source: schema.json",
        "Draft: 2020-12",
        "Expects: object with name (required), age (required)",
    ]
    assert provider.requests == []


def test_the_draft_is_read_from_the_schema(write, cllm):
    old = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "array"}

    result = cllm("--validate-schema", "--json-schema-file", write(old)).succeeded()

    assert "Draft: 04" in result.out


def test_validate_schema_checks_the_schema_of_the_settings(provider, settings, cllm):
    settings(json_schema=PERSON)

    result = cllm("--validate-schema").succeeded()

    assert "Source: Cllmfile.yml: json_schema" in result.out
    assert provider.requests == []


def test_validate_schema_without_a_schema_is_an_error(settings, cllm):
    cllm("--validate-schema").failed_with_one_sentence("no schema", "--json-schema", code=2)


def test_validate_schema_creates_no_files(home, cllm):
    cllm("--validate-schema", "--json-schema", "{}").succeeded()

    assert home.entries() == []


@pytest.fixture
def fetched_model(home, local_model):
    models = home.cache / "cllm/models"
    models.mkdir(parents=True)
    (models / "smollm2-135m.gguf").symlink_to(local_model)


@pytest.mark.usefixtures("fetched_model")
def test_a_schema_that_the_small_model_cannot_follow_names_a_larger_model(home, cllm):
    text = {"type": "string"}
    schema = {
        "type": "object",
        "properties": {"a": text, "b": {"type": "array", "items": text}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    arguments = ("Tell me a long story.", "-m", "local/smollm2-135m", "--max-tokens", "30")

    result = cllm(*arguments, "--json-schema", json.dumps(schema), "--conversation", "demo")

    line = result.failed_with_one_sentence("too small for this schema", "-m openai/gpt-4o")
    assert "Try again" not in line
    assert not home.snapshot(home.conversations)


@pytest.mark.usefixtures("fetched_model")
@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
def test_the_local_model_follows_the_schema(home, cllm, way):
    schema = {
        "type": "object",
        "properties": {
            "colour": {"enum": ["red", "green", "blue"]},
            "count": {"type": "integer"},
        },
        "required": ["colour", "count"],
        "additionalProperties": False,
    }
    said = "Tell me a long story about a cat called Luna."

    result = cllm(
        said,
        "-m",
        "local/smollm2-135m",
        "--json-schema",
        json.dumps(schema),
        way,
        "--conversation",
        "demo",
    ).succeeded()

    reply = json.loads(result.out)
    assert reply.keys() == {"colour", "count"}
    assert reply["colour"] in ("red", "green", "blue")
    assert isinstance(reply["count"], int)
    assert json.loads(home.messages("demo")[1][1]) == reply

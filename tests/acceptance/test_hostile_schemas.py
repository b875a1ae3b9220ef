"""Schemas that are wrong, or try to take, read or fetch what they must not."""

import json
import os
from pathlib import Path

import pytest
import yaml
from tests.schema_server import ALICE, HTTP, PERSON, SchemaServer, body

TRUST = "Configuration error: "


@pytest.fixture
def schemas():
    with SchemaServer() as running:
        yield running


@pytest.fixture
def write(home):
    """Write a schema, or text, into the work folder; its name."""

    def write(content, name="schema.json"):
        text = content if isinstance(content, str) else json.dumps(content)
        (home.work / name).parent.mkdir(parents=True, exist_ok=True)
        (home.work / name).write_text(text, encoding="utf-8")
        return name

    return write


@pytest.fixture(params=["--validate-schema", "Who?"])
def refused(request, home, provider, settings, cllm):
    """Gives the schema, asking or only validating; nothing must have been sent or kept."""

    def run(flag, value, *words, env=None):
        arguments = (request.param, "--conversation", "demo", flag, str(value))
        result = cllm(*arguments, env=env)
        line = result.failed_with_one_sentence("JSON schema", *words)
        assert result.out == ""
        assert provider.requests == []
        assert not home.file("demo").exists()
        return line

    return run


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ('{"type": 12}', ["--json-schema", "$.type", "12"]),
        ('{"properties": {"a": {"type": "strin"}}}', ["$.properties.a.type", "'strin'"]),
        ('{"type": object}', ["not JSON", "line 1, column 10"]),
        ("", ["empty"]),
        ("true", ["JSON object"]),
        ("[]", ["JSON object"]),
        ('{"minimum": NaN}', ["number"]),
        ('{"$schema": "https://example.com/mine"}', ["$.$schema", "draft"]),
        ('{"pattern": "("}', ["pattern", "'('"]),
        ('{"$ref": "#/$defs/nothing"}', ["$ref", "#/$defs/nothing"]),
    ],
)
def test_an_invalid_schema_is_refused_with_its_path(refused, schema, words):
    refused("--json-schema", schema, *words)


def test_a_remote_reference_is_never_fetched(refused, schemas):
    address = schemas.put("/other.json", body(b"{}"))

    refused("--json-schema", json.dumps({"$ref": address}), "never fetched", env=HTTP)
    nested = {"properties": {"a": {"items": {"$ref": f"{address}#/x"}}}}
    refused("--json-schema", json.dumps(nested), "never fetched", env=HTTP)

    assert schemas.asked == []


def test_a_reference_to_a_file_is_never_read(refused, write):
    write({}, "other.json")

    refused("--json-schema", '{"$ref": "other.json"}', "never fetched")
    refused("--json-schema", '{"$ref": "file:///etc/passwd"}', "never fetched")


def test_a_schema_of_a_hundred_megabytes_is_refused_by_its_size(refused, home):
    path = home.work / "huge.json"
    with path.open("wb") as file:
        file.truncate(100 * 1024 * 1024)

    refused("--json-schema-file", path, "larger than 1048576 bytes")


def test_the_size_limit_can_be_set(refused, write):
    refused(
        "--json-schema-file",
        write(PERSON),
        "larger than 20",
        env={"CLLM_MAX_SCHEMA_SIZE": "20"},
    )


def test_a_pipe_is_refused_without_waiting_for_it(refused, home):
    os.mkfifo(home.work / "pipe")

    refused("--json-schema-file", "pipe", "not a regular file")


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/stdin"])
def test_a_device_is_refused(refused, path):
    refused("--json-schema-file", path, "regular file")


def test_a_folder_is_refused(refused):
    refused("--json-schema-file", ".", "is a directory")


def test_a_missing_file_is_reported(refused):
    refused("--json-schema-file", "missing.json", "missing.json", "no such file")


def test_a_very_deeply_nested_schema_is_refused(refused, write):
    deep = '{"not":' * 100_000 + "{}" + "}" * 100_000

    refused("--json-schema-file", write(deep), "nested")


def test_a_schema_nested_more_than_the_limit_is_refused(refused, write):
    refused("--json-schema-file", write('{"not":' * 80 + "{}" + "}" * 80), "nested")


def test_a_very_long_pattern_is_refused(refused):
    refused("--json-schema", json.dumps({"pattern": "a?" * 5000}), "pattern", "1000")


def test_a_pattern_that_never_ends_is_stopped(home, provider, settings, cllm):
    provider.queue_reply(json.dumps("a" * 60 + "!"))
    schema = json.dumps({"type": "string", "pattern": "^(a+)+$"})

    result = cllm("Who?", "--json-schema", schema, "--conversation", "demo")

    result.failed_with_one_sentence("took more than", "patterns")
    assert result.out == ""
    assert not home.file("demo").exists()


def test_references_that_multiply_are_stopped(home, provider, settings, cllm):
    parts = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    schema = {"$defs": parts | {"a40": {"type": "string"}}, "$ref": "#/$defs/a0"}
    provider.queue_reply('"hello"')

    result = cllm("Who?", "--json-schema", json.dumps(schema), "--conversation", "demo")

    result.failed_with_one_sentence("took more than")
    assert not home.file("demo").exists()


def test_a_schema_that_refers_to_itself_is_refused(provider, settings, cllm):
    provider.queue_reply("1")

    result = cllm("Who?", "--json-schema", '{"$ref": "#"}')

    result.failed_with_one_sentence("refers to itself without end")


def test_a_very_deeply_nested_reply_is_refused(provider, settings, cllm):
    provider.queue_reply("[" * 100_000 + "]" * 100_000)

    result = cllm("Who?", "--json-schema", '{"type": "array"}')

    result.failed_with_one_sentence("nested too deeply")


def test_a_module_in_the_current_folder_is_not_run(home, provider, settings, cllm):
    mark = home.work / "ran"
    for name in ("jsonschema.py", "referencing.py", "json.py"):
        (home.work / name).write_text(f"open({str(mark)!r}, 'w')\n", encoding="utf-8")
    cllm.command = (str(Path(cllm.command[0]).with_name("cllm")),)
    provider.queue_reply(ALICE)

    cllm("Who?", "--json-schema", json.dumps(PERSON)).succeeded()

    assert not mark.exists()


@pytest.fixture
def elsewhere(home, settings):
    def write(**keys):
        path = home.work / "Cllmfile.yml"
        path.write_text(yaml.safe_dump(keys), encoding="utf-8")

    return write


@pytest.mark.parametrize(
    "file",
    ["/etc/passwd", "~/.ssh/id_rsa", "../secret.json", "a/../../secret.json", "${HOME}/x"],
)
@pytest.mark.parametrize("words", [["Who?"], ["--validate-schema"]])
def test_a_file_outside_the_folder_requires_trust(home, provider, elsewhere, cllm, file, words):
    elsewhere(json_schema_file=file)

    result = cllm(*words)

    result.failed_with_one_sentence("cllm trust", "json_schema_file", prefix=TRUST)
    assert provider.requests == []


def test_a_url_requires_trust(provider, schemas, elsewhere, cllm):
    elsewhere(json_schema_file=schemas.put("/x", body(json.dumps(PERSON).encode())))
    provider.queue_reply(ALICE)

    cllm("Who?", env=HTTP).failed_with_one_sentence("cllm trust", prefix=TRUST)
    assert schemas.asked == []
    cllm("trust").succeeded()
    cllm("Who?", env=HTTP).succeeded()
    assert schemas.asked == ["/x"]


def test_a_file_in_the_same_folder_requires_no_trust(provider, elsewhere, write, cllm):
    elsewhere(json_schema_file=write(PERSON, "schemas/person.json"))
    provider.queue_reply(ALICE)

    cllm("Who?").succeeded()

    assert provider.requests[0].json["response_format"]["json_schema"]["schema"] == PERSON


def test_a_link_out_of_the_folder_is_not_followed(home, provider, elsewhere, cllm):
    secret = home.path / "config.json"
    secret.write_text('{"title": "hunter2"}', encoding="utf-8")
    (home.work / "schema.json").symlink_to(secret)
    elsewhere(json_schema_file="schema.json")

    line = cllm("Who?").failed_with_one_sentence("link", "schema.json")

    assert "hunter2" not in line
    assert provider.requests == []


def test_an_error_does_not_show_the_contents_of_a_file(home, settings, cllm):
    secret = home.path / "id_rsa"
    secret.write_text("-----BEGIN hunter2-----", encoding="utf-8")

    line = cllm("Who?", "--json-schema-file", str(secret)).failed_with_one_sentence("not JSON")

    assert "hunter2" not in line

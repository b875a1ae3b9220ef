"""Lists of models in the formats of OpenAI and Anthropic, and hostile ones."""

import json

import pytest

from cllm.wire.errors import MalformedError
from cllm.wire.remote_models import RemoteModel, decode_remote_models


def decode(*entries) -> list[str]:
    return [model.name for model in decode_remote_models(json.dumps({"data": entries}).encode())]


def test_models_are_sorted_and_listed_once():
    assert decode({"id": "b"}, {"id": "a", "object": "model"}, {"id": "b"}) == ["a", "b"]


def test_a_list_without_an_object_is_accepted():
    assert decode_remote_models(b'[{"id": "a"}]') == (RemoteModel("a"),)


@pytest.mark.parametrize(
    ("fields", "context"),
    [
        ({"context_length": 8192}, 8192),
        ({"context_window": 131072}, 131072),
        ({"max_context_length": 32768}, 32768),
        ({"max_model_len": 4096}, 4096),
        ({"max_input_tokens": 200000, "max_tokens": 64000}, 200000),
        ({"context_length": None, "context_window": 10}, 10),
        ({}, None),
        *(({"context_length": value}, None) for value in (0, -1, True, 1.5, "8192", [1], 10**30)),
    ],
)
def test_the_context_window_is_a_plausible_whole_number(fields, context):
    body = json.dumps({"data": [{"id": "a", **fields}]}).encode()

    assert decode_remote_models(body) == (RemoteModel("a", context),)


def test_entries_without_a_printable_name_are_skipped():
    names = ["", " a", "a\n", "\x1b[31mred", "a\u202eb", "\u200b", "x" * 257, 1, None, ["a"], {}]

    assert decode({"id": "ok"}, *({"id": name} for name in names)) == ["ok"]
    assert decode({"id": "ok"}, {}, [], "text", 1, 1.5, True, None) == ["ok"]


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"<html>", b"{}", b"null", b"1", b'"a"', b'{"data": null}', b'{"data": {"id": 1}}'),
        *(b'{"data": "abc"}', b"\xff", b'[{"id": "\xff"}]', b'{"data": [{"id": "a"}'),
        b'{"data": [{"id": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
    ],
)
def test_other_data_is_refused(body):
    with pytest.raises(MalformedError, match="not a list of models"):
        decode_remote_models(body)

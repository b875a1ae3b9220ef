"""Texts and fields of errors."""

from typing import Any

import pytest

from cllm.core import errors


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({}, "Configuration error: Wrong."),
        ({"path": "Cllmfile.yml"}, "Configuration error: Cllmfile.yml: Wrong."),
        ({"path": "Cllmfile.yml", "line": 3}, "Configuration error: Cllmfile.yml, line 3: Wrong."),
    ],
)
def test_a_settings_error_contains_path_and_line(where, expected):
    error = errors.SettingsError("Wrong.", **where)

    assert str(error) == expected
    assert {"path": error.path, "line": error.line} == {"path": None, "line": None} | where


def test_an_untrusted_file_error_names_the_keys_and_the_command():
    error = errors.UntrustedFileError(path="x/Cllmfile.yml", keys=("api_base", "store"))

    assert error.keys == ("api_base", "store")
    assert "api_base, store" in str(error)
    assert "cllm trust x/Cllmfile.yml" in str(error)


@pytest.mark.parametrize(
    ("error", "fields", "word"),
    [
        (errors.InvalidIdError("../x"), {"ref": "../x"}, "'../x'"),
        (
            errors.MissingExtraError(feature="The local model", extra="local"),
            {"extra": "local"},
            "to add it, run: ",
        ),
        (errors.ModelNotFoundError("Unknown.", model="x"), {"model": "x"}, "Unknown."),
        (
            errors.MissingKeyError(provider="openai", variable="OPENAI_API_KEY"),
            {"provider": "openai", "variable": "OPENAI_API_KEY"},
            "OPENAI_API_KEY",
        ),
        (
            errors.RateLimitedError("Wait.", provider="p", status=429, retry_after=2.0, code="c"),
            {"provider": "p", "status": 429, "retry_after": 2.0, "code": "c"},
            "Wait.",
        ),
        (errors.ConversationNotFoundError("demo"), {"ref": "demo"}, "'demo'"),
        (errors.ConversationExistsError("demo"), {"ref": "demo"}, "'demo'"),
        (
            errors.ConversationBusyError("demo", turn_id="t"),
            {"ref": "demo", "turn_id": "t"},
            "'demo'",
        ),
        (errors.SequenceNotFoundError("demo", 7), {"ref": "demo", "sequence": 7}, "7"),
        (errors.TurnNotFoundError("demo", "t"), {"ref": "demo", "turn_id": "t"}, "'t'"),
        (errors.StaleLeaseError("demo"), {"ref": "demo"}, "'demo'"),
        (
            errors.BrokenConversationError("/x.json", reason="not JSON"),
            {"path": "/x.json", "reason": "not JSON"},
            "(not JSON)",
        ),
        (errors.StoreUnavailableError("Full.", path="/x"), {"path": "/x"}, "Full."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_has_its_facts_as_fields_and_in_its_text(
    error: errors.CllmError, fields: dict[str, Any], word: str
):
    assert {name: getattr(error, name) for name in fields} == fields
    assert word in str(error)
    assert "\n" not in str(error)

"""The response object of the Responses API without its output."""

import pytest

from cllm.core.reply import Usage
from cllm.wire.responses.response_fields import (
    ECHOED_PARAMETERS,
    ResponseFields,
    encode_usage,
    error_code,
    response_status,
)

FIELDS = ResponseFields(
    id="resp_1", model="m", created=7, parameters={"store": True, "metadata": None, "top_p": 1}
)


@pytest.mark.parametrize(
    ("stop_reason", "refused", "status", "reason"),
    [
        ("end", False, "completed", None),
        ("tool_calls", False, "completed", None),
        ("refusal", True, "completed", None),
        ("refusal", False, "incomplete", "content_filter"),
        ("length", False, "incomplete", "max_output_tokens"),
        ("unknown", False, "incomplete", "max_output_tokens"),
    ],
)
def test_a_stop_reason_has_a_status(stop_reason, refused, status, reason):
    details = None if reason is None else {"reason": reason}

    assert response_status(stop_reason, refused=refused) == (status, details)


def test_usage_includes_its_details():
    assert encode_usage(None) is None
    usage = encode_usage(Usage(input=1, cache_read=2, output=3, reasoning=4))
    assert usage is not None
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (3, 7, 10)


def test_a_response_repeats_the_parameters_of_its_request():
    response = FIELDS.response("in_progress")

    assert (response["top_p"], response["store"]) == (1, True)
    defaults = {**ECHOED_PARAMETERS, "top_p": 1, "store": True}
    assert {name: response[name] for name in ECHOED_PARAMETERS} == defaults


def test_the_own_fields_replace_those_of_a_provider():
    assert FIELDS.own_fields() == {
        "background": False,
        "conversation": None,
        "id": "resp_1",
        "instructions": None,
        "metadata": {},
        "previous_response_id": None,
        "store": True,
    }


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("rate_limited", "rate_limit_exceeded"),
        ("invalid_prompt", "invalid_prompt"),
        ("unexpected", "server_error"),
        (None, "server_error"),
    ],
)
def test_an_error_has_a_code_of_the_api(code, expected):
    assert error_code(code) == expected
    assert FIELDS.failed_response("Wait.", code=code)["error"]["code"] == expected

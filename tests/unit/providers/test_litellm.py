"""LiteLLM's streams and errors: invented finish reasons, web pages, and the cause of an error."""

from types import SimpleNamespace

import pytest

from cllm.core.errors import UnreachableError
from cllm.providers.litellm import (
    LitellmModule,
    LitellmProvider,
    _has_finish_reason,
    _is_web_page,
    _list_causes,
)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"received_finish_reason": None, "intermittent_finish_reason": None}, False),
        ({"received_finish_reason": "stop", "intermittent_finish_reason": None}, True),
        ({"received_finish_reason": None, "intermittent_finish_reason": "stop"}, True),
        ({}, True),
    ],
)
def test_a_finish_reason_of_the_service_is_distinguished_from_an_invented_one(fields, expected):
    assert _has_finish_reason(SimpleNamespace(**fields)) is expected


@pytest.mark.parametrize(
    ("hidden", "expected"),
    [
        (None, False),
        ({}, False),
        ({"additional_headers": {"llm_provider-content-type": "text/event-stream"}}, False),
        ({"additional_headers": {"llm_provider-content-type": "Text/HTML; charset=utf-8"}}, True),
    ],
)
def test_a_web_page_is_recognised_by_its_content_type(hidden, expected):
    assert _is_web_page(SimpleNamespace(_hidden_params=hidden)) is expected


def test_causes_are_listed_up_to_an_error_of_cllm():
    earlier = UnreachableError("It is away.", provider="litellm")
    cause = ValueError("cause")
    cause.__context__ = earlier
    error = RuntimeError("error")
    error.__cause__ = cause

    assert _list_causes(error) == [error, cause]


def test_causes_that_refer_to_one_another_are_listed_once():
    first, second = ValueError("first"), ValueError("second")
    first.__context__, second.__context__ = second, first

    assert _list_causes(first) == [first, second]


@pytest.mark.parametrize(
    ("api_base", "text"), [(None, "through provider 'mine'"), ("http://x.test/v1", "http://x.test")]
)
def test_an_unreachable_service_is_named_by_its_address_if_one_is_set(api_base, text):
    error = LitellmProvider(name="mine", api_base=api_base)._unreachable_error()

    assert isinstance(error, UnreachableError)
    assert text in str(error)


def test_an_error_has_no_traceback():
    """LiteLLM adds one, with paths, to the message of an error that it does not expect."""
    exceptions = SimpleNamespace(ContextWindowExceededError=KeyError)
    library = LitellmModule(litellm=SimpleNamespace(exceptions=exceptions), httpx=None, errors=())
    error = ValueError('Bad value.\nTraceback (most recent call last):\n  File "/home/x.py"')

    failure = LitellmProvider(name="mine")._status_error(error, library, None)

    assert str(failure).startswith("Provider 'mine' failed: Bad value. ")
    assert "/home" not in str(failure)

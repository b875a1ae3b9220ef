"""Every error has a response in both protocols, and none reveals paths, addresses or keys."""

import inspect
import json
from typing import get_args

import pytest

from cllm.core import errors as core
from cllm.core.notice import Notice
from cllm.server.http.errors import (
    STATUS_BY_CODE,
    STATUSES,
    ApiError,
    ApiErrorCode,
    anthropic_error_response,
    openai_error_response,
    report_error,
)
from cllm.wire.errors import FieldError, MalformedError

PATH = "/home/somebody/.cllm/secret.db"
ADDRESS = "http://10.1.2.3:8080"
KEY = "sk-secret-0123456789"
PRIVATE = f"{PATH} {ADDRESS} {KEY}"


def build_example(kind: type[core.CllmError]) -> core.CllmError:
    """Return an error of this class with private data in each text."""
    values = {
        "keys": ("store",),
        "needed": 9,
        "available": 5,
        "notices": (Notice(code="x", message="changed", path="messages[0]"),),
        "sequence": 7,
        "place": "$.items",
        "status": None,
        "retry_after": 2.5,
        "provider": "openai",
        "line": 3,
        "pinned": 1,
        "code": None,
        "param": None,
        # The provider's own text is sent to the client.
        "provider_message": None,
    }
    if kind.__init__ is Exception.__init__:
        return kind(PRIVATE)
    parameters = list(inspect.signature(kind).parameters.values())
    options = {p.name: values.get(p.name, PRIVATE) for p in parameters if p.kind is p.KEYWORD_ONLY}
    arguments = [
        values.get(p.name, PRIVATE) for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    return kind(*arguments, **options)


CLASSES = [
    kind
    for _, kind in inspect.getmembers(core, inspect.isclass)
    if issubclass(kind, core.CllmError) and kind is not core.CllmError
]
# Their messages are about the request and are sent to the client.
PUBLIC = (core.InvalidRequestError, core.ModelNotFoundError)
WITH_PRIVATE_MESSAGE = [
    kind for kind in CLASSES if not issubclass(kind, PUBLIC) and kind is not core.UsageError
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_has_a_response_in_both_protocols(kind):
    error = build_example(kind)

    status, headers, body = openai_error_response(error)
    content = json.loads(body)
    assert 400 <= status < 600
    assert headers["Content-Type"] == "application/json"
    assert content["error"].keys() >= {"message", "type", "code", "param"}
    assert STATUS_BY_CODE[content["error"]["code"]] == status or kind is core.InvalidRequestError

    status, _, body = anthropic_error_response(error)
    content = json.loads(body)
    assert status != 422
    assert content["type"] == "error"
    assert content["error"].keys() == {"type", "message"} | (
        content["error"].keys() & {"turn_id", "details"}
    )


@pytest.mark.parametrize("kind", WITH_PRIVATE_MESSAGE, ids=lambda kind: kind.__name__)
def test_no_response_contains_a_path_an_address_or_a_key(kind):
    error = build_example(kind)
    bodies = (openai_error_response(error)[2], anthropic_error_response(error)[2])
    text = "".join(map(str, bodies))
    turn = getattr(error, "turn_id", None)

    for secret in (PATH, "10.1.2.3", KEY):
        assert secret not in text.replace(str(turn), "")


def test_an_address_in_a_providers_error_is_removed():
    error = core.InvalidRequestError(f"at {ADDRESS} there is no model x", provider="openai")

    assert "10.1.2.3" not in openai_error_response(error)[2].decode()
    assert "there is no model x" in openai_error_response(error)[2].decode()


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (core.ConversationNotFoundError("x"), 404, "conversation_not_found"),
        (core.InvalidIdError("../x"), 400, "invalid_conversation_id"),
        (core.ConversationBusyError("x", turn_id="t1"), 409, "conversation_busy"),
        (core.SequenceNotFoundError("x", 9), 404, "sequence_not_found"),
        (core.TurnNotFoundError("x", "t"), 404, "turn_not_found"),
        (core.RequestConflictError(), 409, "idempotency_conflict"),
        (core.StoreUnavailableError("gone"), 503, "conversation_storage_unavailable"),
        (core.UnreachableError("no", provider="p"), 502, "upstream_unreachable"),
        (core.ProviderTimeoutError("no", provider="p"), 504, "upstream_timeout"),
        (core.RateLimitedError("no", provider="p", retry_after=7), 429, "rate_limited"),
        (core.ModelNotFoundError("no", model="m"), 404, "model_not_found"),
        (core.UpstreamError("no", provider="p", status=503), 503, "upstream_error"),
        (core.PromptTooLongError("no", provider="p"), 400, "context_length_exceeded"),
        (MalformedError("odd"), 422, "validation_error"),
    ],
)
def test_errors_have_the_documented_codes(error, status, code):
    actual, _, body = openai_error_response(error)

    assert (actual, json.loads(body)["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (ApiError("invalid_token", "x"), 401, "authentication_error"),
        (ApiError("origin_not_allowed", "x"), 403, "permission_error"),
        (FieldError("messages[0]", "odd"), 400, "invalid_request_error"),
        (core.ModelNotFoundError("x", model="m"), 404, "not_found_error"),
        (ApiError("request_too_large", "x"), 413, "request_too_large"),
        (core.RateLimitedError("x", provider="p"), 429, "rate_limit_error"),
        (core.UpstreamError("x", provider="p", status=529), 529, "overloaded_error"),
        (core.UpstreamError("x", provider="p", status=500), 500, "api_error"),
        (core.UnreachableError("x", provider="p"), 502, "api_error"),
    ],
)
def test_errors_have_the_types_of_anthropics_api(error, status, kind):
    actual, _, body = anthropic_error_response(error)

    assert (actual, json.loads(body)["error"]["type"]) == (status, kind)


def test_a_busy_conversation_returns_the_running_turn_and_retry_after():
    status, headers, body = openai_error_response(core.ConversationBusyError("x", turn_id="t1"))

    assert status == 409
    assert headers["Retry-After"] == "1"
    assert headers["X-Turn-ID"] == "t1"
    assert json.loads(body)["error"]["turn_id"] == "t1"


def test_retry_after_of_a_provider_is_rounded_up_to_seconds():
    _, headers, _ = anthropic_error_response(
        core.RateLimitedError("x", provider="p", retry_after=2.1)
    )

    assert headers["Retry-After"] == "3"


def test_param_is_the_path_of_the_invalid_field():
    _, _, body = openai_error_response(FieldError("messages[2].content", "must be a string"))

    assert json.loads(body)["error"]["param"] == "messages[2].content"


def test_a_new_subclass_inherits_the_code_of_its_base_class():
    class NewError(core.StoreUnavailableError):
        """An error class of another package."""

    assert report_error(NewError("x")).code == "conversation_storage_unavailable"


def test_an_api_error_has_the_status_of_its_code():
    for code, status in STATUSES.items():
        assert ApiError(code, "x").status == status


def test_every_code_of_an_api_error_has_a_status():
    """mypy checks that the server raises only these codes."""
    assert set(get_args(ApiErrorCode)) == set(STATUSES)


def test_a_code_has_the_same_status_as_the_error_class_with_that_code():
    by_class = {kind.http_code: kind.http_status for kind in CLASSES}

    for code, status in STATUSES.items():
        assert by_class.get(code, status) == status, code


def test_a_prompt_that_is_too_long_always_has_status_400():
    error = core.PromptTooLongError("Too long.", provider="p", status=413, code="string_too_long")

    report = report_error(error)

    assert (report.status, report.code) == (400, "context_length_exceeded")

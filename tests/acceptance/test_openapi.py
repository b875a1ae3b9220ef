"""Schemathesis with the OpenAPI description against the running server.

Each route gets three kinds of requests: valid ones that refer to existing data, valid ones that
refer to any data, and invalid ones. Every response must match the description, every error must be
a client error in our format, and many requests must be accepted, because a server that rejects
everything would pass otherwise.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import CheckFunction
from schemathesis.checks import load_all_checks
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from tests.fake_provider import (
    PROTOCOLS,
    FakeProvider,
    OpenAIChat,
    Reply,
    Request,
    Step,
    response_steps,
)
from tests.server_process import Server
from tests.torture import TORTURE, choose_size

from cllm.server.openapi.description import build_description

logger = logging.getLogger(__name__)

MODEL = "openai/gpt-test"
HELLO = ("user", "Hello.")
DESCRIPTION = build_description()
SCHEMA = schemathesis.openapi.from_dict(DESCRIPTION)
ENDLESS = "/v1/conversations/events"
"""A stream that ends with its client: tests/acceptance/test_conversation_feed.py."""
FOUND = [found.ok() for found in SCHEMA.get_all_operations() if isinstance(found, Ok)]
OPERATIONS = [operation for operation in FOUND if operation.path != ENDLESS]
FITTING = choose_size(12, 330)
GUESSED = choose_size(3, 70)
WRONG = choose_size(5, 200)
LEAST_SHARE = 0.3
UNREAD = {
    "/v1/chat/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/conversations/import",
    "/v1/imports/{import_id}/pieces",
}

pytestmark = [
    pytest.mark.torture,
    pytest.mark.timeout(choose_size(240, 3600)),
    pytest.mark.parametrize(
        "server",
        ["sqlite"],
        indirect=True,
    ),
]


class Embeddings(OpenAIChat):
    """Returns an embedding of one number for any input."""

    def echo(self, request: Request) -> Reply:  # noqa: ARG002
        return Reply()

    def steps(self, reply: Reply, request: Request, number: int) -> tuple[Step, ...]:  # noqa: ARG002
        vector = {"object": "embedding", "index": 0, "embedding": [0.5]}
        usage = {"prompt_tokens": number, "total_tokens": number}
        answer = {"object": "list", "data": [vector], "model": "gpt-test", "usage": usage}
        return response_steps(200, json.dumps(answer).encode())


@pytest.fixture(scope="module", autouse=True)
def embeddings() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROTOCOLS, "/v1/embeddings", Embeddings())
        yield


def takes_input(operation: Any) -> bool:
    """Whether the request has variable parts."""
    described = DESCRIPTION["paths"][operation.path][operation.method]
    return bool(described["parameters"] or "requestBody" in described)


def remove_invalid_values(value: Any) -> Any:
    """Return the value without parts that a schema cannot forbid.

    A schema accepts 8.0 as an integer, our decoder does not. No database stores NUL.
    """
    match value:
        case float() if value.is_integer():
            return int(value)
        case str():
            return value.replace("\0", "")
        case list():
            return [remove_invalid_values(item) for item in value]
        case dict():
            return {
                remove_invalid_values(name): remove_invalid_values(item)
                for name, item in value.items()
            }
    return value


def refer(case: Any, server: Server) -> None:
    """Replace generated IDs, numbers and names by existing ones."""
    begun = server.complete(HELLO, conversation="", stream=True)
    known = {
        "import_id": start_import(case, server) if "/imports" in case.path else "",
        "conversation_id": begun.conversation,
        "turn_id": begun.headers["x-turn-id"],
        "response_id": f"resp_{begun.conversation}{begun.headers['x-turn-id']}".replace("-", ""),
        "item_id": f"msg_{begun.conversation}{begun.headers['x-turn-id']}_0".replace("-", ""),
        "message": "1",
        "model": MODEL,
    }
    if str((case.path_parameters or {}).get("conversation_id")).startswith("conv_"):
        known["conversation_id"] = f"conv_{begun.conversation}".replace("-", "")
    for name in case.path_parameters or {}:
        case.path_parameters[name] = known[name]
    (case.query or {}).pop("cursor", None)
    if case.headers and case.headers.get("X-Conversation-ID") not in {None, "", "null"}:
        case.headers["X-Conversation-ID"] = begun.conversation
    fresh = {"X-Provider": "openai", "Idempotency-Key": known["turn_id"]}
    if case.headers:
        case.headers.update((name, fresh[name]) for name in fresh if name in case.headers)
        # Strictly, a field that was made up is refused where it has to be translated.
        case.headers.pop("X-CLLM-Strict", None)
    if isinstance(case.body, dict):
        case.body = remove_invalid_values(case.body)
        made = {"model": MODEL, "branch_at_sequence": 1, "size": 9}
        case.body.update((name, value) for name, value in made.items() if name in case.body)
        if case.path == "/v1/responses":
            case.body.pop("conversation", None)
            if isinstance(case.body.get("previous_response_id"), str):
                case.body["previous_response_id"] = known["response_id"]
                (case.headers or {}).pop("X-Conversation-ID", None)
        if case.path == "/v1/messages" and "tools" in case.body:
            # A kind of tool that was made up is one that the provider does not have.
            case.body["tools"] = [tool for tool in case.body["tools"] if "input_schema" in tool]
        if case.body.get("messages") == []:
            case.body["messages"] = [dict(zip(("role", "content"), HELLO, strict=True))]


def start_import(case: Any, server: Server) -> str:
    """Return a new import, complete if the case runs it, and delete the others."""
    for earlier in server("GET", "/v1/imports").json["imports"]:
        server("DELETE", f"/v1/imports/{earlier['id']}")
    import_id: str = server("POST", "/v1/imports", {"name": "a.zip", "size": 9}).json["id"]
    if case.path.endswith("/run"):
        server("POST", f"/v1/imports/{import_id}/pieces?offset=0", b"123456789")
    elif case.path.endswith("/pieces"):
        case.query, case.body = {"offset": 0}, b"12345"
    return import_id


def sweep(
    operation: Any,
    server: Server,
    *,
    count: int,
    mode: schemathesis.GenerationMode = schemathesis.GenerationMode.POSITIVE,
    change: Callable[[Any, Server], None] | None = None,
) -> Counter[str]:
    """Return how often each outcome occurred; raise the first failed check."""
    outcomes: Counter[str] = Counter()
    with requests.Session() as session:

        @settings(
            max_examples=count,
            derandomize=not TORTURE,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            if change is not None:
                change(case, server)
            response = case.call(base_url=server.address, session=session)
            outcomes[outcome(response)] += 1
            assert response.status_code < 500, case.as_curl_command()
            case.validate_response(response, excluded_checks=find_exempt_checks(operation))

        ask()
    return outcomes


def find_exempt_checks(operation: Any) -> list[CheckFunction]:
    """Return the checks that do not apply.

    Values that a schema cannot forbid are rejected too: no messages, NUL in text. Data that is
    forwarded or stored unchanged is not validated field by field.
    """
    unread = [negative_data_rejection] if operation.path in UNREAD else []
    return [positive_data_acceptance, *unread]


def outcome(response: Any) -> str:
    """`accepted`, or the code in the envelope of the protocol."""
    if response.status_code < 300:
        return "accepted"
    error = response.json()["error"]
    return str(error.get("code") or error["type"])


def test_the_served_description_is_the_built_one(server: Server):
    assert server("GET", "/openapi.json").json == DESCRIPTION
    assert len(FOUND) == sum(map(len, DESCRIPTION["paths"].values()))


def test_both_completion_routes_are_fully_described(server: Server):
    for path, body, answer in (
        ("/v1/chat/completions", "ChatRequest", "ChatCompletion"),
        ("/v1/messages", "MessagesRequest", "MessagesAnswer"),
    ):
        described = DESCRIPTION["paths"][path]["post"]
        sent = described["requestBody"]["content"]["application/json"]["schema"]
        contents = described["responses"]["200"]["content"]
        assert sent == {"$ref": f"#/components/schemas/{body}"}
        assert contents["application/json"]["schema"] == {"$ref": f"#/components/schemas/{answer}"}
        assert "text/event-stream" in contents


def test_the_full_run_has_ten_thousand_cases(server: Server):
    routes = sum(map(takes_input, OPERATIONS))
    assert routes * (FITTING + GUESSED + WRONG) >= choose_size(300, 10_000)


@pytest.mark.parametrize(
    ("address", "param"),
    [
        ("/v1/conversations?limit=5&limit=6", "limit"),
        ("/v1/conversations?cursor=null", "cursor"),
        ("/v1/usage?from=2026-11-15&from=2026-11-16", "from"),
    ],
)
def test_an_ambiguous_parameter_is_rejected(server: Server, address: str, param: str):
    refused = server("GET", address)

    assert (refused.status, refused.error["param"]) == (422, param)
    assert server("GET", "/v1/conversations/search?q=null").status == 200


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_every_response_matches_the_description_and_many_requests_are_accepted(
    server: Server,
    upstream: FakeProvider,
    operation: Any,
):
    load_all_checks()
    if not takes_input(operation):
        assert sweep(operation, server, count=1) == {"accepted": 1}
        return
    fitting = sweep(operation, server, count=FITTING, change=refer)
    guessed = sweep(operation, server, count=GUESSED)
    wrong = sweep(operation, server, count=WRONG, mode=schemathesis.GenerationMode.NEGATIVE)
    together = fitting + guessed + wrong
    logger.info("%s: fitting %s, guessed %s, wrong %s", operation.label, fitting, guessed, wrong)

    assert together.total() >= FITTING + GUESSED + WRONG
    assert together["accepted"] >= LEAST_SHARE * together.total(), (fitting, guessed, wrong)

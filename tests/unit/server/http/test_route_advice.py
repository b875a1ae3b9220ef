"""The advice for paths without a route."""

import pytest

from cllm.server.http.route_advice import REASONS, SEE_DOCS, advise


@pytest.mark.parametrize("name", REASONS)
def test_missing_parts_of_an_api_have_a_reason(name: str):
    for path in (f"/v1/{name}", f"/v1/{name}/abc/content", f"/V1/{name.upper()}/"):
        assert advise(path) == REASONS[name]


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("/v1/chat/completion", "POST /v1/chat/completions"),
        ("/v1/response", "POST /v1/responses"),
        ("/v1/message", "POST /v1/messages"),
        ("/v1/v1/responses", "POST /v1/responses"),
        ("/v1/conversation", "/v1/conversations"),
    ],
)
def test_the_nearest_route_is_named(path: str, nearest: str):
    assert nearest in advise(path)


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v1/zzzz", "/favicon.ico", "/completions"])
def test_other_paths_get_the_docs(path: str):
    assert advise(path) == f"No route has this path; {SEE_DOCS}"


def test_batches_of_anthropic():
    assert advise("/v1/messages/batches/msgbatch_1") == REASONS["batches"]

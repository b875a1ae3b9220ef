"""Sessions of Claude Code and opencode through `cllm serve` with and without recording.

The provider and the client get the same bytes, and each request is recorded where it belongs.
"""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.client_recordings import RecordedRequest
from tests.client_replay import WORD, PlannedReply, ReplayChecker, Result, plan_replies
from tests.client_sessions import SESSIONS, claude_headers, user
from tests.fake_provider import FakeProvider, Reply, ToolCall
from tests.messages_api import MODELS, make_settings, start_server
from tests.server_process import Client, Response, Server
from tests.waits import wait_until

from cllm.core.message import ToolCall as CallPart
from cllm.wire.convert import parts_of

LIST = "/v1/conversations"
PROVIDERS = {"claude-code": "anthropic", "opencode": "openai"}
# The fake provider numbers its replies; times are those of the reply.
CHANGING = re.compile(rb'"(id|created)": ?("(msg|chatcmpl)[^"]*"|\d+)')
OVERLOADED = 529
RECOGNISED, DIVERGED = "history_recognised", "history_diverged"
NOTICES = {
    "new": set(),
    "append": {RECOGNISED},
    "branch": {RECOGNISED, DIVERGED},
    "fork": {RECOGNISED, DIVERGED},
    "compaction": set(),
}


@pytest.fixture(params=["memory", "sqlite"])
def servers(
    request: pytest.FixtureRequest,
    upstream: FakeProvider,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Server, Server]]:
    """A server that records, and one that does not."""
    folder = tmp_path_factory.mktemp("recorded")
    store = "memory:" if request.param == "memory" else f"sqlite:{folder / 'served.db'}"
    recording = make_settings(upstream, record="auto")
    with (
        start_server(folder / "recording", recording, store=store) as recorded,
        start_server(folder / "stateless", make_settings(upstream)) as stateless,
    ):
        yield recorded, stateless


def make_reply(plan: PlannedReply, **options: Any) -> Reply:
    assert plan.message is not None
    calls = tuple(
        ToolCall(id=part.id, name=part.name, arguments=part.arguments)
        for part in parts_of(plan.message)
        if isinstance(part, CallPart)
    )
    finish = "tool_calls" if calls else "stop"
    pieces = tuple(WORD.findall(plan.text))
    return Reply(pieces=pieces, tool_calls=calls, finish=finish, text_first=True, **options)


def queue(upstream: FakeProvider, plan: PlannedReply) -> None:
    if plan.message is None:
        upstream.queue_error(OVERLOADED, "Overloaded.")
    else:
        upstream._answers.append(make_reply(plan))


def post(server: Client, request: RecordedRequest, model: str) -> Response:
    body = json.dumps({**(request.body or {}), "model": model}).encode()
    headers = {"content-type": "application/json", **request.headers}
    return server("POST", request.path, body, headers)


def cancel(
    server: Client, upstream: FakeProvider, request: RecordedRequest, plan: PlannedReply, model: str
) -> Response:
    """Disconnect after the part of the reply that the client shows."""
    shown = len(WORD.findall(plan.shown or ""))
    gate = upstream.gate()
    upstream._answers.append(make_reply(plan, hold={shown: gate}))
    body = json.dumps({**(request.body or {}), "model": model}).encode()
    opened = server.open("POST", request.path, body, request.headers)
    last_word = WORD.findall(plan.text)[shown - 1].encode()
    while last_word not in opened.event():
        pass
    opened.leave()
    upstream.requests[-1].wait_disconnected()
    conversation = opened.headers["x-conversation-id"]
    assert wait_until(lambda: not is_running(server, conversation))
    return Response(opened.status, opened.headers, b"")


def is_running(server: Client, conversation: str) -> bool:
    detail = server("GET", f"{LIST}/{conversation}").json
    return any(one.get("state") == "running" for one in [detail, *detail["messages"]])


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_session_is_recorded_and_its_bytes_do_not_change(
    name: str, servers: tuple[Server, Server], upstream: FakeProvider
) -> None:
    recorded, stateless = servers
    session = SESSIONS[name]
    checker = ReplayChecker(session.table.replace("cut", "append"))
    model = MODELS[PROVIDERS[name]]
    known: set[str] = set()
    for request, plan in zip(session.requests, plan_replies(session.requests), strict=True):
        if request.aborted:
            response = cancel(recorded, upstream, request, plan, model)
        else:
            queue(upstream, plan)
            response = post(recorded, request, model)
            queue(upstream, plan)
            other = post(stateless, request, model)
            assert upstream.requests[-2].body == upstream.requests[-1].body
            assert response.status == other.status
            assert CHANGING.sub(b"", response.body) == CHANGING.sub(b"", other.body)
            assert "x-conversation-id" not in other.headers
        if plan.message is None:
            assert response.status == OVERLOADED
        else:
            check_response(checker, recorded, request.seq, response, known)
    check_list(recorded, known)


def check_response(
    checker: ReplayChecker, server: Client, seq: int, response: Response, known: set[str]
) -> None:
    """Compare the conversation and the notices in the headers with the table."""
    kind = checker.expected[seq][0]
    conversation = response.headers.get("x-conversation-id")
    codes = {one["code"] for one in response.notices} & {RECOGNISED, DIVERGED}
    if conversation is None:
        checker.check(seq, Result(kind="none"))
        assert not codes
        return
    detail = server("GET", f"{LIST}/{conversation}").json
    parent = detail["parent"]
    is_new = conversation not in known
    assert is_new == (kind in ("new", "side", "branch", "fork", "compaction"))
    known.add(conversation)
    assert (
        kind in ("new", "append", "retry", "variant", "fork")
        or parent.get("kind", "branch") == kind
    )
    checker.check(
        seq,
        Result(
            kind=kind,
            conversation=conversation,
            parent=None if parent is None else parent["conversation_id"],
        ),
    )
    assert codes == NOTICES.get(kind, codes)


def check_list(server: Client, known: set[str]) -> None:
    """Side conversations are hidden; titles are nowhere."""
    everything = server("GET", f"{LIST}?side=true&limit=100").json["conversations"]
    listed = server("GET", f"{LIST}?limit=100").json["conversations"]
    assert {one["id"] for one in everything} == known
    sides = {one["id"] for one in everything if ":" in one["source"]}
    assert {one["id"] for one in listed} == known - sides
    assert sides


def test_sub_agents_in_parallel_are_recorded_apart(
    servers: tuple[Server, Server], upstream: FakeProvider
) -> None:
    recorded, _ = servers
    session = "44444444-4444-4444-8444-444444444444"
    body = {"model": MODELS["anthropic"], "max_tokens": 10, "messages": [user("count")]}
    main = recorded("POST", "/v1/messages", body, claude_headers(session))
    agents = [f"agent-{number}" for number in range(6)]
    with ThreadPoolExecutor(len(agents)) as pool:
        responses = list(
            pool.map(
                lambda agent: recorded(
                    "POST", "/v1/messages", body, claude_headers(session, agent)
                ),
                agents,
            )
        )
    assert [one.status for one in responses] == [200] * len(agents)
    assert len({one.conversation for one in responses}) == len(agents)
    for response in responses:
        detail = recorded("GET", f"{LIST}/{response.conversation}").json
        assert detail["parent"]["conversation_id"] == main.conversation
        assert detail["source"] == "claude-code:subagent"
        assert len(detail["messages"]) == 2

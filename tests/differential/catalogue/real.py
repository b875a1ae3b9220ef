"""Cases from real data beside the repository: conversations with tools, and requests of clients.

The data is read in place and not copied. Where the folder is missing these cases are left out.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.differential.catalogue.building import (
    MODES,
    as_anthropic,
    ask,
    case,
    encoded,
    plain_body,
    reply_of,
)
from tests.differential.model import Action, Answer, Call, Case, Json, Refusal
from tests.fake_provider import Reply, ToolCall

TAU = "tau_airline.jsonl"
CLIENTS = "clients"
MOST_TURNS = 5
TAU_PROVIDERS = ("openai", "anthropic", "bedrock", "deepseek", "responses", "vllm")
OVERLOADED = Refusal(status=529, message="Overloaded.")


def tau_cases(data: Path) -> Iterator[Case]:
    """Each conversation twice without memory, and once turn by turn with it."""
    lines = (data / TAU).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        messages: list[Json] = json.loads(line)["messages"]
        protocol = "anthropic" if number % 3 == 2 else "openai"
        provider = TAU_PROVIDERS[number % len(TAU_PROVIDERS)]
        mode = MODES[number // 2 % 2]
        name = f"tau-{number:03}"
        ends = [place for place, m in enumerate(messages) if m["role"] == "assistant"]
        chosen = {ends[len(ends) // 2], ends[-1]}
        whole = [
            ask(
                protocol,
                provider,
                _history(protocol, messages[:end]),
                mode=mode,
                answers=[reply_of(messages[end])],
            )
            for end in sorted(chosen)
        ]
        yield case(name, protocol, provider, mode, "stateless", whole)
        turns = list(_turns(protocol, provider, mode, messages))
        yield case(name, protocol, provider, mode, "continue", turns)


def _history(protocol: str, messages: list[Json]) -> Json:
    if protocol == "openai":
        return {"messages": messages, "tools": _tools(protocol, messages)}
    system = [m["content"] for m in messages if m["role"] == "system"]
    others = [m for m in messages if m["role"] != "system"]
    fields: Json = {"system": system[0]} if system else {}
    tools = _tools(protocol, messages)
    return plain_body(protocol, *as_anthropic(others), tools=tools, **fields)


def _tools(protocol: str, messages: list[Json]) -> list[Json]:
    """The tools that are called, in order of their names."""
    calls = [call for m in messages for call in m.get("tool_calls") or ()]
    names = sorted({call["function"]["name"] for call in calls} | {"get_user_details"})
    schema: Json = {"type": "object", "properties": {}}
    if protocol == "anthropic":
        return [{"name": name, "input_schema": schema} for name in names]
    return [
        {"type": "function", "function": {"name": name, "parameters": schema}} for name in names
    ]


def _turns(protocol: str, provider: str, mode: str, messages: list[Json]) -> Iterator[Call]:
    """One request for each reply: what is new since the reply before."""
    new: list[Json] = []
    sent = 0
    for message in messages:
        if message["role"] != "assistant":
            new.append(message)
            continue
        body = _history(protocol, new)
        conversation = "{conversation}" if sent else ""
        yield ask(
            protocol,
            provider,
            body,
            mode=mode,
            conversation=conversation,
            answers=[reply_of(message, (100 * (sent + 1), 20))],
        )
        new, sent = [], sent + 1
        if sent == MOST_TURNS:
            return


WAYS: tuple[tuple[str, str, Json], ...] = (
    ("own", "stateless", {}),
    ("own", "new", {"X-Conversation-ID": ""}),
    ("bedrock", "stateless", {}),
    ("other", "stateless", {}),
)
"""Where the recorded requests of a client are sent, and whether they are kept."""
OWN = {"/v1/chat/completions": "openai", "/v1/messages": "anthropic", "/v1/responses": "responses"}
OTHER = {"openai": "anthropic", "anthropic": "deepseek", "responses": "openai"}
RECORDED_MODELS = {
    "openai": "gpt-4o",
    "deepseek": "deepseek-chat",
    "bedrock": "claude-sonnet-4-5",
    "anthropic": "claude-sonnet-4-5",
    "responses": "gpt-5.1-codex",
}


def client_cases(data: Path) -> Iterator[Case]:
    """The requests of each client in their order, at four places."""
    for path in sorted((data / CLIENTS).glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for at, state, headers in WAYS:
            for route, protocol in OWN.items():
                found = [line for line in lines if line["path"].partition("?")[0] == route]
                if not found or (protocol == "responses" and at != "own"):
                    continue
                provider = {"own": protocol, "other": OTHER[protocol]}.get(at, at)
                modes = {_mode(line) for line in found}
                mode = modes.pop() if len(modes) == 1 else "mixed"
                steps: list[Action] = [_replayed(line, provider, headers) for line in found]
                yield case(f"client-{path.stem}", protocol, provider, mode, state, steps)


def _mode(line: Json) -> str:
    return "stream" if (line.get("body") or {}).get("stream") else "whole"


def _replayed(line: Json, provider: str, headers: Json) -> Call:
    body = line.get("body")
    if isinstance(body, dict):
        protocol = OWN[line["path"].partition("?")[0]]
        own = protocol == provider
        body = _restored(body, "input_schema" if protocol == "anthropic" else "parameters")
        if not own or not str(body.get("model", "")).startswith(("gpt", "claude")):
            body["model"] = RECORDED_MODELS[provider]
    return Call(
        method=line["method"],
        path=line["path"],
        headers={**line["headers"], "X-Provider": provider, **headers},
        body=None if body is None else encoded(body),
        answers=_answers(line),
    )


def _restored(value: Any, kind: str) -> Any:
    """Tools whose description and schema were reduced to a mark get a schema again."""
    if isinstance(value, list):
        return [_restored(item, kind) for item in value]
    if not isinstance(value, dict):
        return value
    if "rest" in value and "name" in value:
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        kept = {key: item for key, item in value.items() if key != "rest"}
        return {**kept, "description": value["rest"], kind: schema}
    return {key: _restored(item, kind) for key, item in value.items()}


def _answers(line: Json) -> tuple[Answer, ...]:
    answer = line.get("answer")
    if answer is None:
        return (OVERLOADED,)
    calls = tuple(
        ToolCall(id=f"call_{line['seq']}_{place}", name=name, arguments=json.dumps(given))
        for place, (name, given) in enumerate(answer.get("calls") or ())
    )
    text = answer.get("text") or ""
    thought = (answer["think"],) if answer.get("think") else ()
    return (
        Reply(
            pieces=tuple(filter(None, (text[:5], text[5:]))),
            tool_calls=calls,
            reasoning=thought,
            finish="tool_calls" if calls else "stop",
        ),
    )

"""Cases from the recorded data in `../shared/data`: tool conversations and client requests.

If the folder does not exist, these cases are skipped.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.differential.catalogue.builders import (
    MODES,
    convert_to_anthropic,
    encode_body,
    make_body,
    make_call,
    make_case,
    make_reply,
)
from tests.differential.model import Action, Answer, Call, Case, Json, Refusal
from tests.fake_provider import Reply, ToolCall

TAU = "tau_airline.jsonl"
CLIENTS = "clients"
MOST_TURNS = 5
TAU_PROVIDERS = ("openai", "anthropic", "bedrock", "deepseek", "responses", "vllm")
OVERLOADED = Refusal(status=529, message="Overloaded.")


def tau_cases(data: Path) -> Iterator[Case]:
    """Each conversation twice stateless, and once turn by turn in a stored conversation."""
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
            make_call(
                protocol,
                provider,
                _history(protocol, messages[:end]),
                mode=mode,
                answers=[make_reply(messages[end])],
            )
            for end in sorted(chosen)
        ]
        yield make_case(name, protocol, provider, mode, "stateless", whole)
        turns = list(_turns(protocol, provider, mode, messages))
        yield make_case(name, protocol, provider, mode, "continue", turns)


def _history(protocol: str, messages: list[Json]) -> Json:
    if protocol == "openai":
        return {"messages": messages, "tools": _tools(protocol, messages)}
    system = [m["content"] for m in messages if m["role"] == "system"]
    others = [m for m in messages if m["role"] != "system"]
    fields: Json = {"system": system[0]} if system else {}
    tools = _tools(protocol, messages)
    return make_body(protocol, *convert_to_anthropic(others), tools=tools, **fields)


def _tools(protocol: str, messages: list[Json]) -> list[Json]:
    """Return the called tools, sorted by name."""
    calls = [call for m in messages for call in m.get("tool_calls") or ()]
    names = sorted({call["function"]["name"] for call in calls} | {"get_user_details"})
    schema: Json = {"type": "object", "properties": {}}
    if protocol == "anthropic":
        return [{"name": name, "input_schema": schema} for name in names]
    return [
        {"type": "function", "function": {"name": name, "parameters": schema}} for name in names
    ]


def _turns(protocol: str, provider: str, mode: str, messages: list[Json]) -> Iterator[Call]:
    """Yield one request per reply, with the messages since the previous reply."""
    new: list[Json] = []
    sent = 0
    for message in messages:
        if message["role"] != "assistant":
            new.append(message)
            continue
        body = _history(protocol, new)
        conversation = "{conversation}" if sent else ""
        yield make_call(
            protocol,
            provider,
            body,
            mode=mode,
            conversation=conversation,
            answers=[make_reply(message, (100 * (sent + 1), 20))],
        )
        new, sent = [], sent + 1
        if sent == MOST_TURNS:
            return


TARGETS: tuple[tuple[str, str, Json], ...] = (
    ("own", "stateless", {}),
    ("own", "new", {"X-Conversation-ID": ""}),
    ("bedrock", "stateless", {}),
    ("other", "stateless", {}),
)
"""The provider of a client's recorded requests, and the state of the conversation."""
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
    """The requests of each client in order, for four targets."""
    for path in sorted((data / CLIENTS).glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for target, state, headers in TARGETS:
            for route, protocol in OWN.items():
                matches = [line for line in lines if line["path"].partition("?")[0] == route]
                if not matches or (protocol == "responses" and target != "own"):
                    continue
                provider = {"own": protocol, "other": OTHER[protocol]}.get(target, target)
                modes = {_mode(line) for line in matches}
                mode = modes.pop() if len(modes) == 1 else "mixed"
                steps: list[Action] = [_make_call(line, provider, headers) for line in matches]
                yield make_case(f"client-{path.stem}", protocol, provider, mode, state, steps)


def _mode(line: Json) -> str:
    return "stream" if (line.get("body") or {}).get("stream") else "whole"


def _make_call(line: Json, provider: str, headers: Json) -> Call:
    body = line.get("body")
    if isinstance(body, dict):
        protocol = OWN[line["path"].partition("?")[0]]
        own = protocol == provider
        body = _restore_schemas(body, "input_schema" if protocol == "anthropic" else "parameters")
        if not own or not str(body.get("model", "")).startswith(("gpt", "claude")):
            body["model"] = RECORDED_MODELS[provider]
    return Call(
        method=line["method"],
        path=line["path"],
        headers={**line["headers"], "X-Provider": provider, **headers},
        body=None if body is None else encode_body(body),
        answers=_answers(line),
    )


def _restore_schemas(value: Any, kind: str) -> Any:
    """Add a schema to tools whose recorded description and schema were replaced by `rest`."""
    if isinstance(value, list):
        return [_restore_schemas(item, kind) for item in value]
    if not isinstance(value, dict):
        return value
    if "rest" in value and "name" in value:
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        fields = {key: item for key, item in value.items() if key != "rest"}
        return {**fields, "description": value["rest"], kind: schema}
    return {key: _restore_schemas(item, kind) for key, item in value.items()}


def _answers(line: Json) -> tuple[Answer, ...]:
    answer = line.get("answer")
    if answer is None:
        return (OVERLOADED,)
    calls = tuple(
        ToolCall(id=f"call_{line['seq']}_{index}", name=name, arguments=json.dumps(arguments))
        for index, (name, arguments) in enumerate(answer.get("calls") or ())
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

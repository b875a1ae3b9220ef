"""Builders that all cases use: paths, models, request bodies and conversation turns."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tests.differential.model import Action, Answer, Call, Case, Json
from tests.fake_provider import Reply, ToolCall

PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
MODELS = {
    "openai": "gpt-4o",
    "anthropic": "claude-sonnet-4-5",
    "bedrock": "claude-3-7-sonnet-20250219",
    "responses": "gpt-5.1-codex",
    "deepseek": "deepseek-reasoner",
    "vllm": "llama-3.1-8b",
}
PROVIDERS = tuple(MODELS)
PROTOCOLS = tuple(PATHS)
MODES = ("whole", "stream")
STATES = ("stateless", "new", "continue")
SAVED = {"conversation": "header:x-conversation-id", "turn": "header:x-turn-id"}
HELLO = {"role": "user", "content": "Hello"}


def encode_body(body: Any) -> bytes:
    """Encode a body as client libraries do."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def make_body(protocol: str, *messages: Json, **fields: Any) -> Json:
    """Return a request body with these messages."""
    body: Json = {"messages": list(messages) or [HELLO]}
    return ({"max_tokens": 500} if protocol == "anthropic" else {}) | body | fields


def make_message(role: str, content: Any) -> Json:
    return {"role": role, "content": content}


def make_call(
    protocol: str,
    provider: str,
    body: Json,
    *,
    mode: str = "whole",
    conversation: str | None = None,
    answers: Sequence[Answer] = (),
    headers: Mapping[str, str] | None = None,
    save: Mapping[str, str] = SAVED,
    **options: Any,
) -> Call:
    """Return a model request. `conversation` is the header: None for none, "" for a new one."""
    request: Json = {"model": MODELS[provider]} | body
    request = {key: value for key, value in request.items() if key != "stream"}
    request |= {"stream": True} if mode == "stream" else {}
    all_headers = {"X-Provider": provider} | dict(headers or {})
    if conversation is not None:
        all_headers["X-Conversation-ID"] = conversation
    return Call(
        path=PATHS[protocol],
        headers=all_headers,
        body=encode_body(request),
        answers=tuple(answers),
        save=save if conversation == "" else {},
        **options,
    )


def make_steps(
    state: str,
    protocol: str,
    provider: str,
    body: Json,
    *,
    mode: str,
    answers: Sequence[Answer] = (),
    headers: Mapping[str, str] | None = None,
) -> tuple[Action, ...]:
    """Return the request without a conversation, as its first turn, or as its second turn."""
    if state == "stateless":
        return (make_call(protocol, provider, body, mode=mode, answers=answers, headers=headers),)
    if state == "new":
        return (
            make_call(
                protocol,
                provider,
                body,
                mode=mode,
                conversation="",
                answers=answers,
                headers=headers,
            ),
        )
    first = make_call(
        protocol,
        provider,
        make_body(protocol, make_message("user", "First.")),
        conversation="",
        mode=mode,
    )
    second = make_call(
        protocol,
        provider,
        body,
        mode=mode,
        conversation="{conversation}",
        answers=answers,
        headers=headers,
    )
    return (first, second)


def make_case(
    name: str,
    protocol: str,
    provider: str,
    mode: str,
    state: str,
    steps: Iterable[Action],
    profile: str = "plain",
) -> Case:
    return Case(
        id=f"{name}/{protocol}-{provider}-{mode}-{state}",
        protocol=protocol,
        provider=provider,
        mode=mode,
        state=state,
        steps=tuple(steps),
        profile=profile,
    )


def make_reply(message: Json, usage: tuple[int, int] = (11, 7)) -> Reply:
    """Convert an assistant message of OpenAI's protocol to a reply."""
    calls = tuple(
        ToolCall(
            id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"]
        )
        for call in message.get("tool_calls") or ()
    )
    text = message.get("content") or ""
    middle = len(text) // 2
    pieces = tuple(piece for piece in (text[:middle], text[middle:]) if piece)
    finish = "tool_calls" if calls else "stop"
    return Reply(pieces=pieces, tool_calls=calls, finish=finish, usage=usage)


def convert_to_anthropic(messages: Sequence[Json]) -> Iterator[Json]:
    """Convert OpenAI messages to Anthropic's format, one for one; system messages are skipped."""
    for message in messages:
        match message["role"]:
            case "assistant":
                blocks: list[Json] = []
                if message.get("content"):
                    blocks.append({"type": "text", "text": message["content"]})
                for call in message.get("tool_calls") or ():
                    function = call["function"]
                    arguments = json.loads(function["arguments"])
                    use = {"type": "tool_use", "id": call["id"], "name": function["name"]}
                    blocks.append({**use, "input": arguments})
                yield {"role": "assistant", "content": blocks}
            case "tool":
                result = {"type": "tool_result", "tool_use_id": message["tool_call_id"]}
                yield {"role": "user", "content": [{**result, "content": message["content"]}]}
            case "user":
                yield {"role": "user", "content": message["content"]}

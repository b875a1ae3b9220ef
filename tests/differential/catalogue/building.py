"""What the builders of cases share: paths, models, bodies and turns of a conversation."""

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


def encoded(body: Any) -> bytes:
    """A body as the clients' libraries write it."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def plain_body(protocol: str, *messages: Json, **fields: Any) -> Json:
    """A request for these messages."""
    body: Json = {"messages": list(messages) or [HELLO]}
    return ({"max_tokens": 500} if protocol == "anthropic" else {}) | body | fields


def said(role: str, content: Any) -> Json:
    return {"role": role, "content": content}


def ask(
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
    """A request for a reply. `conversation` is the header: None for none, "" for a new one."""
    sent: Json = {"model": MODELS[provider]} | body
    sent = {key: value for key, value in sent.items() if key != "stream"}
    sent |= {"stream": True} if mode == "stream" else {}
    named = {"X-Provider": provider} | dict(headers or {})
    if conversation is not None:
        named["X-Conversation-ID"] = conversation
    return Call(
        path=PATHS[protocol],
        headers=named,
        body=encoded(sent),
        answers=tuple(answers),
        save=save if conversation == "" else {},
        **options,
    )


def in_state(
    state: str,
    protocol: str,
    provider: str,
    body: Json,
    *,
    mode: str,
    answers: Sequence[Answer] = (),
    headers: Mapping[str, str] | None = None,
) -> tuple[Action, ...]:
    """The request without a conversation, as the first of one, or as the second of one."""
    if state == "stateless":
        return (ask(protocol, provider, body, mode=mode, answers=answers, headers=headers),)
    if state == "new":
        return (
            ask(
                protocol,
                provider,
                body,
                mode=mode,
                conversation="",
                answers=answers,
                headers=headers,
            ),
        )
    opening = ask(
        protocol, provider, plain_body(protocol, said("user", "First.")), conversation="", mode=mode
    )
    going_on = ask(
        protocol,
        provider,
        body,
        mode=mode,
        conversation="{conversation}",
        answers=answers,
        headers=headers,
    )
    return (opening, going_on)


def case(
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


def reply_of(message: Json, usage: tuple[int, int] = (11, 7)) -> Reply:
    """The reply that is this assistant message of OpenAI's."""
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


def as_anthropic(messages: Sequence[Json]) -> Iterator[Json]:
    """OpenAI's messages without system messages in Anthropic's words, one for each."""
    for message in messages:
        match message["role"]:
            case "assistant":
                blocks: list[Json] = []
                if message.get("content"):
                    blocks.append({"type": "text", "text": message["content"]})
                for call in message.get("tool_calls") or ():
                    function = call["function"]
                    given = json.loads(function["arguments"])
                    use = {"type": "tool_use", "id": call["id"], "name": function["name"]}
                    blocks.append({**use, "input": given})
                yield {"role": "assistant", "content": blocks}
            case "tool":
                result = {"type": "tool_result", "tool_use_id": message["tool_call_id"]}
                yield {"role": "user", "content": [{**result, "content": message["content"]}]}
            case "user":
                yield {"role": "user", "content": message["content"]}

"""Every provider accepts the requests for any conversation of a client.

Random conversations go through the provider classes, up to the point where bytes would be sent.
The judges are the SDKs' types, botocore's service model, our rules for a history, and the rules for
names, ids and cache breakpoints that no type covers. Two things are refused, and tested too: media
by URL for Converse and Chat Completions, and a prefill for a model that accepts none.
"""

import asyncio
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.message_strategies import Json
from tests.request_strategies import anthropic_requests, inline_media, openai_requests
from tests.request_validation import (
    validate_anthropic_request,
    validate_bedrock_request,
    validate_openai_request,
)
from tests.torture import choose_size

from cllm.core.errors import InvalidRequestError, UnsendableError
from cllm.core.message import Dialect, Message, Role
from cllm.core.prompt import Prompt
from cllm.history.rules import HistoryProfile, find_problems, profile_for
from cllm.providers.anthropic import AnthropicProvider
from cllm.providers.bedrock import AwsAccount, BedrockProvider
from cllm.providers.http.provider import HttpProvider
from cllm.providers.openai import OpenAIProvider
from cllm.providers.registry import BUILTIN_PROVIDERS
from cllm.wire.anthropic import request as anthropic_request
from cllm.wire.bedrock.models import resolve_model_id
from cllm.wire.convert import parts_of
from cllm.wire.openai import request as openai_request

MODELS: dict[Dialect, tuple[str, ...]] = {
    "anthropic": ("claude-3-7-sonnet-20250219", "claude-sonnet-4-5-20250929", "claude-opus-4-8"),
    "bedrock": (
        "claude-3-7-sonnet-20250219",
        "claude-opus-4-6",
        "us.amazon.nova-pro-v1:0",
        "meta.llama3-2-90b-instruct-v1:0",
        "mistral.pixtral-large-2502-v1:0",
    ),
    "openai": ("gpt-4o", "o3", "gpt-5.1"),
}
WITHOUT_SAMPLING = ("claude-opus-4-8",)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
OFTEN = settings(max_examples=choose_size(20, 2000), deadline=None, suppress_health_check=SLOW)
SELDOM = settings(OFTEN, max_examples=choose_size(8, 500))
EVERY_TARGET = pytest.mark.parametrize("target", list(MODELS))


REGION = "us-east-1"


class BodySent(Exception):  # noqa: N818 - carries the body to the test, no error
    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body


class RecordingTransport:
    """Records the body instead of sending it."""

    async def post(self, _url: str, *, body: bytes, **_: Any) -> NoReturn:
        raise BodySent(body)

    async def close(self) -> None:
        pass


def provider(target: Dialect) -> HttpProvider:
    wire: Any = RecordingTransport()
    if target == "bedrock":
        return BedrockProvider(name="bedrock", account=AwsAccount(bearer="k"), http=wire)
    how: Any = {"name": target, "base_url": "https://x/v1", "api_key": "k", "http": wire}
    if target == "anthropic":
        return AnthropicProvider(**how)
    return OpenAIProvider(**how, reasoning=BUILTIN_PROVIDERS["openai"].reasoning)


def send(prompt: Prompt, target: Dialect) -> bytes:
    async def ask() -> None:
        async for _ in provider(target).ask(prompt):
            pass

    with pytest.raises(BodySent) as left:
        asyncio.run(ask())
    return left.value.body


def make_prompt(request: Json, dialect: Dialect, model: str, *, apart: bool) -> Prompt:
    """The request as a prompt for another model. `apart`: the first system message is separate."""
    body = json.dumps(request).encode()
    codec = anthropic_request if dialect == "anthropic" else openai_request
    prompt: Prompt = msgspec.structs.replace(codec.decode_request(body), model=model)
    if apart and prompt.system is None and prompt.messages[0].role == "system":
        system, *messages = prompt.messages
        return msgspec.structs.replace(prompt, system=system, messages=tuple(messages))
    return prompt


def is_prefill(prompt: Prompt, profile: HistoryProfile) -> bool:
    """Whether the answer is prefilled for a model that does not continue one."""
    return profile.last_message == "not_assistant" and prompt.messages[-1].role == "assistant"


def number_texts(request: Json) -> tuple[Json, set[str]]:
    """The request with a number after each text that must be sent, and these numbers."""
    numbers: set[str] = set()

    def number(text: str) -> str:
        if not text.strip():
            return text
        numbers.add(f"<{len(numbers)}>")
        return f"{text}<{len(numbers) - 1}>"

    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return [walk(item) for item in value]
        if not isinstance(value, dict):
            return value
        data = ("data",) if value.get("type") == "text" else ()
        text_fields = ("content", "text", "refusal", *data)
        return {
            name: number(inner) if name in text_fields and isinstance(inner, str) else walk(inner)
            for name, inner in value.items()
        }

    system = request.get("system")
    changed = {**request, "messages": walk(request["messages"])}
    if system is not None:
        changed["system"] = number(system) if isinstance(system, str) else walk(system)
    return changed, numbers


def check_texts(body: bytes, numbers: set[str]) -> None:
    """Check that every text is sent once."""
    found = sorted(re.findall(r"<\d+>", body.decode()))
    assert found == sorted(numbers)


def validate(body: bytes, target: Dialect, model: str) -> None:
    match target:
        case "openai":
            validate_openai_request(body)
        case "anthropic":
            validate_anthropic_request(body, sampling=model not in WITHOUT_SAMPLING)
        case _:
            validate_bedrock_request(body, model=model)


ROLES: dict[str, Role] = {"developer": "system", "function": "tool"}


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A message as our rules see it."""

    role: Role
    parts: Any


def messages_of(body: bytes, target: Dialect) -> Iterator[Message]:
    for fields in json.loads(body)["messages"]:
        role = ROLES.get(fields["role"], fields["role"])
        yield Message(role=role, raw=msgspec.json.encode(fields), dialect=target)


def history(body: bytes, target: Dialect) -> list[Turn]:
    return [Turn(role=m.role, parts=parts_of(m)) for m in messages_of(body, target)]


WORDS: dict[Dialect, tuple[str, str]] = {
    "anthropic": (r"[a-zA-Z0-9_-]{1,128}", r"[a-zA-Z0-9_-]+"),
    "bedrock": (r"[a-zA-Z0-9_-]{1,64}", r"[a-zA-Z0-9_.:-]{1,64}"),
    "openai": (r"[a-zA-Z0-9_-]{1,64}", r".{1,40}"),
}


def list_objects(value: Any) -> list[Json]:
    """All objects in a JSON value, in order."""
    if isinstance(value, list):
        return [found for item in value for found in list_objects(item)]
    if not isinstance(value, dict):
        return []
    return [value, *(found for inner in value.values() for found in list_objects(inner))]


def check_names(body: bytes, target: Dialect) -> None:
    """Check the tool names and call ids."""
    name, call_id = WORDS[target]
    request = json.loads(body)
    kinds = {"anthropic": ("tool_use", "id"), "openai": ("function", "id")}
    names, ids = set(), set()
    for each in list_objects(request["messages"]):
        if target == "bedrock":
            used = each.get("toolUse", {})
            key = "toolUseId"
        else:
            kind, key = kinds[target]
            used = each if each.get("type") == kind else {}
        if used:
            names.add(used.get("name") or used["function"]["name"])
            ids.add(used[key])
    offered = set(offered_tools(request))
    assert all(re.fullmatch(name, each) for each in names | offered), names | offered
    assert all(re.fullmatch(call_id, each, re.DOTALL) for each in ids), ids
    if target != "openai":
        assert not names or offered, "tools are called in the history and none is offered"


def offered_tools(request: Json) -> list[str]:
    listed = request.get("tools") or request.get("toolConfig", {}).get("tools", [])
    specs = [tool.get("toolSpec") or tool.get("function") or tool for tool in listed]
    return [spec["name"] for spec in specs if "name" in spec]


def check_parameters(body: bytes, target: Dialect) -> None:
    """Check that parameters do not contradict one another."""
    request = json.loads(body)
    offered = offered_tools(request)
    assert len(set(offered)) == len(offered)
    own = request.get("additionalModelRequestFields", {}).get("tool_choice")
    native = request.get("toolConfig", {}).get("toolChoice")
    assert own is None or native is None
    chosen = request.get("tool_choice") or own or native
    assert chosen is None or offered
    forced = [each["name"] for each in list_objects(chosen) if "name" in each]
    assert set(forced) <= set(offered)
    if target == "openai":
        assert offered or "parallel_tool_calls" not in request
        return
    more = request.get("additionalModelRequestFields", {})
    thinking = request.get("thinking") or more.get("thinking") or {}
    if thinking.get("type") not in ("enabled", "adaptive"):
        return
    limit = request.get("max_tokens") or request.get("inferenceConfig", {}).get("maxTokens")
    is_enabled = thinking["type"] == "enabled"
    if is_enabled:
        assert 1024 <= thinking["budget_tokens"] < (limit or 2048)
    sampling = {**request, **more, **request.get("inferenceConfig", {})}
    assert sampling.get("temperature", 1) == 1
    assert not {"top_k", "topK"} & sampling.keys()
    kind = chosen and (chosen.get("type") or next(iter(chosen)))
    assert not is_enabled or kind not in ("any", "tool"), "a tool is forced while the model thinks"


def check_breakpoints(body: bytes, target: Dialect) -> None:
    """Check for at most four cache breakpoints, one-hour ones before the others."""
    request = json.loads(body)
    order = ("tools", "toolConfig", "system", "messages")
    places = list_objects([request[key] for key in order if key in request])
    key = "cachePoint" if target == "bedrock" else "cache_control"
    ttls = [each[key].get("ttl", "5m") for each in places if key in each]
    assert target != "openai" or not ttls
    assert len(ttls) <= 4
    assert ttls == sorted(ttls), ttls
    if target == "bedrock":
        for message in request["messages"]:
            blocks = [next(iter(each)) for each in message["content"]]
            assert blocks[0] != key
            beside = itertools.pairwise(blocks)
            assert all(b != key or a not in (key, "document") for a, b in beside)


def encode_valid(prompt: Prompt, target: Dialect) -> bytes | None:
    """The request that is sent, which is valid and stable; None if it cannot be sent."""
    named = resolve_model_id(prompt.model, region=REGION) if target == "bedrock" else prompt.model
    profile = profile_for(target, named)
    if is_prefill(prompt, profile):
        with pytest.raises(UnsendableError):
            send(prompt, target)
        return None
    body = send(prompt, target)
    assert send(prompt, target) == body
    validate(body, target, named)
    assert find_problems(history(body, target), profile) == ()
    check_breakpoints(body, target)
    check_parameters(body, target)
    return body


def requests_for(target: Dialect, dialect: Dialect) -> st.SearchStrategy[Json]:
    """Requests for the target; some targets accept no URLs, and none are fetched."""
    requests = openai_requests() if dialect == "openai" else anthropic_requests()
    is_inlined = target == "bedrock" or (target, dialect) == ("openai", "anthropic")
    return requests.map(inline_media) if is_inlined else requests


@EVERY_TARGET
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@OFTEN
@given(data=st.data(), apart=st.booleans())
def test_every_provider_gets_a_valid_request_from_any_client(dialect, target, data, apart):
    request, numbers = number_texts(data.draw(requests_for(target, dialect)))
    model = data.draw(st.sampled_from(MODELS[target]))
    prompt = make_prompt(request, dialect, model, apart=apart)
    body = encode_valid(prompt, target)
    if body is None:
        return
    check_texts(body, numbers)
    assert send(make_prompt(request, dialect, model, apart=apart), target) == body
    if dialect != target:
        check_names(body, target)


@EVERY_TARGET
@SELDOM
@given(data=st.data(), order=st.permutations(["openai", "anthropic"]))
def test_a_history_of_several_protocols_becomes_a_valid_request(target, data, order):
    model = data.draw(st.sampled_from(MODELS[target]))
    first, last = (
        make_prompt(data.draw(requests_for(target, dialect)), dialect, model, apart=True)
        for dialect in order
    )
    messages = first.messages + last.messages
    encode_valid(msgspec.structs.replace(last, messages=messages), target)


@EVERY_TARGET
@pytest.mark.parametrize("through", list(MODELS))
@SELDOM
@given(data=st.data())
def test_messages_sent_to_one_provider_can_be_sent_to_another(through, target, data):
    dialect: Dialect = data.draw(st.sampled_from(["openai", "anthropic"]))
    request = data.draw(requests_for("bedrock", dialect))
    model = data.draw(st.sampled_from(MODELS[through]))
    body = encode_valid(make_prompt(request, dialect, model, apart=True), through)
    if body is None:
        return
    stored = tuple(messages_of(body, through))
    again = data.draw(st.sampled_from(MODELS[target]))
    encode_valid(Prompt(model=again, messages=stored, parameters={}), target)


@EVERY_TARGET
def test_a_moved_system_message_leaves_the_breakpoints_in_order(target):
    def text(ttl: str) -> list[Json]:
        return [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": ttl}}]

    messages = [{"role": "user", "content": text("1h")}, {"role": "system", "content": text("5m")}]
    request = {"model": "m", "max_tokens": 9, "messages": messages}
    for model in MODELS[target]:
        encode_valid(make_prompt(request, "anthropic", model, apart=False), target)


@pytest.mark.parametrize("kind", ["image", "document"])
def test_media_by_url_cannot_be_sent_to_converse(kind):
    source = {"type": "url", "url": "https://example.com/a"}
    content = [{"type": "text", "text": "See."}, {"type": kind, "source": source}]
    request = {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": content}],
    }
    with pytest.raises(InvalidRequestError):
        send(make_prompt(request, "anthropic", MODELS["bedrock"][0], apart=False), "bedrock")


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("openai", {"messages": [], "model": "m", "top_k": 3}),
        ("openai", {"messages": [{"role": "tool", "content": "a"}], "model": "m"}),
        ("anthropic", {"messages": [], "model": "m", "max_tokens": 1, "seed": 1}),
        ("anthropic", {"messages": [], "model": "m"}),
        ("bedrock", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
        ("bedrock", {"messages": [], "inferenceConfig": {"maxTokens": 0}}),
    ],
)
def test_the_validation_refuses_invalid_requests(target, body):
    with pytest.raises((AssertionError, pydantic.ValidationError)):
        validate(json.dumps(body).encode(), target, "m")


@pytest.mark.parametrize(
    "request_",
    [
        {"messages": [{"role": "user", "content": [{"x": 1, "cache_control": {"ttl": "5m"}}]}] * 5},
        {
            "tools": [{"cache_control": {}}],
            "messages": [{"role": "user", "content": [{"cache_control": {"ttl": "1h"}}]}],
        },
    ],
)
def test_the_check_of_breakpoints_refuses_too_many_and_a_wrong_order(request_):
    with pytest.raises(AssertionError):
        check_breakpoints(json.dumps(request_).encode(), "anthropic")

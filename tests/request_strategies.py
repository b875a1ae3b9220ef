"""Hypothesis strategies for valid requests of OpenAI and Anthropic clients.

Every tool call has one result in the next message, roles alternate, and cache breakpoints are few
and in order. The client's own provider accepts the request, except for IDs and thinking, which may
come from another provider. A translation of such a request must never fail.
"""

import json
from typing import Any

from hypothesis import strategies as st
from tests.message_strategies import (
    ANTHROPIC_DOCUMENT,
    ANTHROPIC_IMAGE,
    ARGUMENTS,
    DATA,
    NONBLANK_TEXT,
    OPENAI_FILE,
    OPENAI_IMAGE,
    OPENAI_TEXT,
    Blocks,
    Json,
    block,
    lists,
)

Draw = st.DrawFn

SCHEMAS = st.sampled_from(
    [
        {"type": "object", "properties": {}},
        {
            "type": "object",
            "properties": {"x": {"type": "string"}},
            "required": ["x"],
            "additionalProperties": False,
        },
    ]
)
BLANKS = st.sampled_from(["", " ", "\n"])
OPENAI_IDS = ("call_1", "call_2", "functions.Bash:0", "x" * 90, "a b", "é")
OPENAI_NAMES = ("look_up", "now-2", "n" * 64, "mcp.files:read")
ANTHROPIC_IDS = ("toolu_1", "toolu_2", "x" * 90, "call-3")
ANTHROPIC_NAMES = ("look_up", "now-2", "n" * 64, "n" * 80)
MAX_CACHE_BREAKPOINTS = 4
TURNS = st.integers(1, 3)
STEPS = st.integers(0, 2)


def optional(**fields: Any) -> Blocks:
    """Return a strategy for an object with some of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def calls(draw: Draw, ids: tuple[str, ...], names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Draw call IDs with tool names. IDs are unique in a message, not in a conversation."""
    call_ids = draw(st.lists(st.sampled_from(ids), min_size=1, max_size=3, unique=True))
    return [(call_id, draw(st.sampled_from(names))) for call_id in call_ids]


OPENAI_USER = block(
    role="user", content=NONBLANK_TEXT | lists(OPENAI_TEXT | OPENAI_IMAGE | OPENAI_FILE, least=1)
)
OPENAI_RESULT = NONBLANK_TEXT | BLANKS | lists(OPENAI_TEXT, least=1)
OPENAI_ANSWER = (
    block(role="assistant", content=NONBLANK_TEXT)
    | block(role="assistant", content=None, refusal=NONBLANK_TEXT)
    | block(role="assistant", content=NONBLANK_TEXT, reasoning_content=NONBLANK_TEXT)
    | block(
        role="assistant",
        content=lists(OPENAI_TEXT | block(type="refusal", refusal=NONBLANK_TEXT), least=1, most=2),
    )
)
OPENAI_SYSTEM = block(
    role=st.sampled_from(["system", "developer"]),
    content=NONBLANK_TEXT | lists(OPENAI_TEXT, least=1),
)
OPENAI_CALL_FIELDS = optional(
    content=st.none() | BLANKS | NONBLANK_TEXT, reasoning_content=NONBLANK_TEXT
)


def openai_step(draw: Draw) -> list[Json]:
    """Draw an assistant message with tool calls, and the result of each call."""
    pairs = calls(draw, OPENAI_IDS, OPENAI_NAMES)
    tool_calls = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(draw(ARGUMENTS))},
        }
        for call_id, name in pairs
    ]
    caller = {"role": "assistant", **draw(OPENAI_CALL_FIELDS), "tool_calls": tool_calls}
    results = [
        {"role": "tool", "tool_call_id": call_id, "content": draw(OPENAI_RESULT)}
        for call_id, _ in draw(st.permutations(pairs))
    ]
    return [caller, *results]


def openai_messages(draw: Draw) -> list[Json]:
    messages: list[Json] = draw(lists(OPENAI_SYSTEM, most=2))
    for turn in range(draw(TURNS)):
        if turn:
            messages += draw(lists(OPENAI_ANSWER, most=1)) + draw(lists(OPENAI_SYSTEM, most=1))
        messages += draw(lists(OPENAI_USER, least=1, most=2))
        for _ in range(draw(STEPS)):
            messages += openai_step(draw)
    return messages


def openai_tool(name: str, extra: Json) -> Json:
    return {"type": "function", "function": {"name": name, **extra}}


OPENAI_PARAMETERS = optional(
    temperature=st.sampled_from([0, 0.5, 1]),
    top_p=st.sampled_from([0, 0.5]),
    max_completion_tokens=st.integers(1, 5000),
    stop=NONBLANK_TEXT | st.lists(NONBLANK_TEXT, min_size=1, max_size=4),
    seed=st.integers(0, 9),
    user=NONBLANK_TEXT,
    reasoning_effort=st.sampled_from(["low", "medium", "high"]),
    stream=st.booleans(),
    response_format=block(type="json_object")
    | block(
        type="json_schema",
        json_schema=block(name="answer", schema=SCHEMAS, strict=st.booleans()),
    ),
)
OPENAI_TOOL = optional(description=NONBLANK_TEXT, parameters=SCHEMAS, strict=st.booleans())


@st.composite
def openai_requests(draw: Draw) -> Json:
    """A request body for Chat Completions."""
    body = {"model": "gpt-4o", "messages": openai_messages(draw), **draw(OPENAI_PARAMETERS)}
    if draw(st.booleans()):
        body["tools"] = [openai_tool(name, draw(OPENAI_TOOL)) for name in OPENAI_NAMES]
        named = {"type": "function", "function": {"name": OPENAI_NAMES[-1]}}
        choice = st.sampled_from(["auto", "none", "required", named])
        body |= draw(optional(tool_choice=choice, parallel_tool_calls=st.booleans()))
    return body


ANTHROPIC_TEXT = block(type="text", text=NONBLANK_TEXT)
MEDIA_WITHOUT_CACHE_CONTROL = (ANTHROPIC_IMAGE | ANTHROPIC_DOCUMENT).map(
    lambda media: {name: value for name, value in media.items() if name != "cache_control"}
)
ANTHROPIC_CONTENT = lists(ANTHROPIC_TEXT | MEDIA_WITHOUT_CACHE_CONTROL, least=1)
ANTHROPIC_THOUGHTS = lists(
    block(type="thinking", thinking=NONBLANK_TEXT, signature=st.sampled_from(["c2ln", "c2ln", ""]))
    | block(type="redacted_thinking", data="QUJD"),
    most=2,
)
ANTHROPIC_RESULT = optional(
    content=NONBLANK_TEXT
    | st.just("")
    | lists(ANTHROPIC_TEXT | MEDIA_WITHOUT_CACHE_CONTROL, least=1),
    is_error=st.booleans(),
)


ANTHROPIC_USER = block(role="user", content=NONBLANK_TEXT | ANTHROPIC_CONTENT)
ANTHROPIC_SYSTEM = block(role="system", content=NONBLANK_TEXT | lists(ANTHROPIC_TEXT, least=1))


def anthropic_step(draw: Draw) -> list[Json]:
    pairs = calls(draw, ANTHROPIC_IDS, ANTHROPIC_NAMES)
    tool_calls = [
        {"type": "tool_use", "id": call_id, "name": name, "input": draw(ARGUMENTS)}
        for call_id, name in pairs
    ]
    results = [
        {"type": "tool_result", "tool_use_id": call_id, **draw(ANTHROPIC_RESULT)}
        for call_id, _ in draw(st.permutations(pairs))
    ]
    before = draw(ANTHROPIC_THOUGHTS) + draw(lists(ANTHROPIC_TEXT, most=1))
    extra = draw(lists(ANTHROPIC_TEXT | MEDIA_WITHOUT_CACHE_CONTROL, most=1))
    return [
        {"role": "assistant", "content": before + tool_calls},
        {"role": "user", "content": results + extra},
    ]


def anthropic_messages(draw: Draw) -> list[Json]:
    messages: list[Json] = []
    for turn in range(draw(TURNS)):
        if turn:
            answer = draw(ANTHROPIC_THOUGHTS) + draw(lists(ANTHROPIC_TEXT, least=1, most=2))
            messages.append({"role": "assistant", "content": answer})
        messages += draw(lists(ANTHROPIC_USER, least=1, most=2))
        messages += draw(lists(ANTHROPIC_SYSTEM, most=1))
        for _ in range(draw(STEPS)):
            messages += anthropic_step(draw)
    return messages


ANTHROPIC_PARAMETERS = optional(
    system=NONBLANK_TEXT | lists(ANTHROPIC_TEXT, least=1),
    stop_sequences=st.lists(NONBLANK_TEXT, min_size=1, max_size=4),
    metadata=block(user_id=NONBLANK_TEXT),
    stream=st.booleans(),
)
ANTHROPIC_SAMPLING = optional(temperature=st.sampled_from([0, 0.5, 1]), top_k=st.integers(1, 9))
ANTHROPIC_THINKING = block(
    thinking=block(type="enabled", budget_tokens=1024)
    | block(type="adaptive")
    | block(type="disabled")
)
ANTHROPIC_TOOL = optional(description=NONBLANK_TEXT)


@st.composite
def anthropic_requests(draw: Draw) -> Json:
    """A request body for the Messages API."""
    body = {
        "model": "claude-3-7-sonnet-20250219",
        "max_tokens": draw(st.integers(2000, 5000)),
        "messages": anthropic_messages(draw),
        **draw(ANTHROPIC_PARAMETERS),
        **draw(ANTHROPIC_SAMPLING | ANTHROPIC_THINKING),
    }
    has_calls = "tool_use" in json.dumps(body["messages"])
    if has_calls or draw(st.booleans()):
        body["tools"] = [
            {"name": name, "input_schema": draw(SCHEMAS), **draw(ANTHROPIC_TOOL)}
            for name in ANTHROPIC_NAMES
        ]
        choice = block(type=st.sampled_from(["auto", "none"]))
        if "thinking" not in body:
            choice |= block(type="any") | block(type="tool", name=ANTHROPIC_NAMES[-1])
        body |= draw(optional(tool_choice=choice))
    if "thinking" not in body and draw(st.integers(0, 9)) == 9:
        body["messages"].append({"role": "assistant", "content": "Well"})
    add_cache_control(draw, body)
    return body


def add_cache_control(draw: Draw, body: Json) -> None:
    """Add up to four cache breakpoints in prompt order, those with a TTL of 1h first."""
    blocks = list(list_cacheable_blocks(body))
    count = min(MAX_CACHE_BREAKPOINTS, len(blocks))
    indexes = draw(st.sets(st.integers(0, max(0, len(blocks) - 1)), max_size=count))
    ttls = draw(st.lists(st.sampled_from(["1h", "5m", None]), min_size=count, max_size=count))
    ordered = sorted(ttls, key=lambda ttl: ttl != "1h")
    for index, ttl in zip(sorted(indexes), ordered, strict=False):
        lifetime = {} if ttl is None else {"ttl": ttl}
        blocks[index]["cache_control"] = {"type": "ephemeral", **lifetime}


def list_cacheable_blocks(body: Json) -> list[Json]:
    """Return the blocks that accept `cache_control`, in prompt order."""
    system = body.get("system", [])
    blocks: list[Json] = [*body.get("tools", []), *(system if isinstance(system, list) else [])]
    for message in body["messages"]:
        content = message["content"]
        blocks += content if isinstance(content, list) else []
    return [each for each in blocks if each.get("type") not in ("thinking", "redacted_thinking")]


def inline_media(value: Any) -> Any:
    """Replace the URLs of images and documents by data."""
    if isinstance(value, list):
        return [inline_media(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "image_url":
        return {**value, "image_url": {"url": f"data:image/png;base64,{DATA}"}}
    source = value.get("source")
    # The arguments of a tool call may have fields of the same names.
    if isinstance(source, dict) and source.get("type") == "url":
        kind = "image/png" if value.get("type") == "image" else "application/pdf"
        return {**value, "source": {"type": "base64", "media_type": kind, "data": DATA}}
    return {name: inline_media(inner) for name, inner in value.items()}

"""Random requests for Hypothesis, as clients of OpenAI's and of Anthropic's send them.

Each makes sense: calls are answered, in the next message and once; roles take turns; marks are few
and in order. Its own provider takes it, or would if the model behind it had always been its own:
ids and thinking may come from elsewhere. Whoever translates one has no excuse.
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
    """Some of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def calls(draw: Draw, ids: tuple[str, ...], names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Ids, each once in its message and perhaps again in a later one, with the tool to call."""
    chosen = draw(st.lists(st.sampled_from(ids), min_size=1, max_size=3, unique=True))
    return [(call_id, draw(st.sampled_from(names))) for call_id in chosen]


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
    """The assistant calls, and every call is answered."""
    made = calls(draw, OPENAI_IDS, OPENAI_NAMES)
    calling = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(draw(ARGUMENTS))},
        }
        for call_id, name in made
    ]
    caller = {"role": "assistant", **draw(OPENAI_CALL_FIELDS), "tool_calls": calling}
    answers = [
        {"role": "tool", "tool_call_id": call_id, "content": draw(OPENAI_RESULT)}
        for call_id, _ in draw(st.permutations(made))
    ]
    return [caller, *answers]


def openai_messages(draw: Draw) -> list[Json]:
    said: list[Json] = draw(lists(OPENAI_SYSTEM, most=2))
    for turn in range(draw(TURNS)):
        if turn:
            said += draw(lists(OPENAI_ANSWER, most=1)) + draw(lists(OPENAI_SYSTEM, most=1))
        said += draw(lists(OPENAI_USER, least=1, most=2))
        for _ in range(draw(STEPS)):
            said += openai_step(draw)
    return said


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
    """A body for Chat Completions."""
    body = {"model": "gpt-4o", "messages": openai_messages(draw), **draw(OPENAI_PARAMETERS)}
    if draw(st.booleans()):
        body["tools"] = [openai_tool(name, draw(OPENAI_TOOL)) for name in OPENAI_NAMES]
        named = {"type": "function", "function": {"name": OPENAI_NAMES[-1]}}
        choice = st.sampled_from(["auto", "none", "required", named])
        body |= draw(optional(tool_choice=choice, parallel_tool_calls=st.booleans()))
    return body


ANTHROPIC_TEXT = block(type="text", text=NONBLANK_TEXT)
MEDIA_WITHOUT_CACHE_CONTROL = (ANTHROPIC_IMAGE | ANTHROPIC_DOCUMENT).map(
    lambda given: {name: value for name, value in given.items() if name != "cache_control"}
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
    made = calls(draw, ANTHROPIC_IDS, ANTHROPIC_NAMES)
    calling = [
        {"type": "tool_use", "id": call_id, "name": name, "input": draw(ARGUMENTS)}
        for call_id, name in made
    ]
    answers = [
        {"type": "tool_result", "tool_use_id": call_id, **draw(ANTHROPIC_RESULT)}
        for call_id, _ in draw(st.permutations(made))
    ]
    before = draw(ANTHROPIC_THOUGHTS) + draw(lists(ANTHROPIC_TEXT, most=1))
    beside = draw(lists(ANTHROPIC_TEXT | MEDIA_WITHOUT_CACHE_CONTROL, most=1))
    return [
        {"role": "assistant", "content": before + calling},
        {"role": "user", "content": answers + beside},
    ]


def anthropic_messages(draw: Draw) -> list[Json]:
    said: list[Json] = []
    for turn in range(draw(TURNS)):
        if turn:
            answer = draw(ANTHROPIC_THOUGHTS) + draw(lists(ANTHROPIC_TEXT, least=1, most=2))
            said.append({"role": "assistant", "content": answer})
        said += draw(lists(ANTHROPIC_USER, least=1, most=2))
        said += draw(lists(ANTHROPIC_SYSTEM, most=1))
        for _ in range(draw(STEPS)):
            said += anthropic_step(draw)
    return said


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
    """A body for the Messages API."""
    body = {
        "model": "claude-3-7-sonnet-20250219",
        "max_tokens": draw(st.integers(2000, 5000)),
        "messages": anthropic_messages(draw),
        **draw(ANTHROPIC_PARAMETERS),
        **draw(ANTHROPIC_SAMPLING | ANTHROPIC_THINKING),
    }
    called = "tool_use" in json.dumps(body["messages"])
    if called or draw(st.booleans()):
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
    """Up to four marks, in the order in which the prompt is read: the long-lived ones first."""
    places = list(list_cacheable_blocks(body))
    most = min(MAX_CACHE_BREAKPOINTS, len(places))
    chosen = draw(st.sets(st.integers(0, max(0, len(places) - 1)), max_size=most))
    ttls = draw(st.lists(st.sampled_from(["1h", "5m", None]), min_size=most, max_size=most))
    ordered = sorted(ttls, key=lambda ttl: ttl != "1h")
    for place, ttl in zip(sorted(chosen), ordered, strict=False):
        lasting = {} if ttl is None else {"ttl": ttl}
        places[place]["cache_control"] = {"type": "ephemeral", **lasting}


def list_cacheable_blocks(body: Json) -> list[Json]:
    """The blocks that take a mark, in the order in which the prompt is read."""
    system = body.get("system", [])
    found: list[Json] = [*body.get("tools", []), *(system if isinstance(system, list) else [])]
    for message in body["messages"]:
        content = message["content"]
        found += content if isinstance(content, list) else []
    return [each for each in found if each.get("type") not in ("thinking", "redacted_thinking")]


def inline_media(value: Any) -> Any:
    """The same request with every image and document by its data, and none by its URL."""
    if isinstance(value, list):
        return [inline_media(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "image_url":
        return {**value, "image_url": {"url": f"data:image/png;base64,{DATA}"}}
    source = value.get("source")
    # What a tool is called with may have fields of these names too.
    if isinstance(source, dict) and source.get("type") == "url":
        kind = "image/png" if value.get("type") == "image" else "application/pdf"
        return {**value, "source": {"type": "base64", "media_type": kind, "data": DATA}}
    return {name: inline_media(inner) for name, inner in value.items()}

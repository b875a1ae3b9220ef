"""The processor time of a request grows with its size, and never with the square of its size.

Each dimension is one thing of which a request can have many. Half of the size and twice the size
are compared, for every pair of a client's protocol and a provider's.
"""

import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from tests.cpu_growth import MAX_LINEAR_GROWTH, MODELS, PAIRS, MeasuredServer, start_measured_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

Body = dict[str, Any]
Make = Callable[[str, int], Body]
DIMENSIONS: dict[str, tuple[Make, int]] = {}
SAVED = {"X-Conversation-ID": ""}
MODES: dict[str, tuple[str, str, bool, dict[str, str]]] = {
    "stateless, streamed": ("messages", "chat", True, {}),
    "saved, whole": ("chat", "anthropic", False, SAVED),
    "saved, streamed": ("messages", "bedrock", True, SAVED),
}
HELLO = {"role": "user", "content": "Hello"}
MARK = {"type": "ephemeral"}


def dimension(size: int) -> Callable[[Make], Make]:
    """Register a dimension. Half and twice this size are compared."""

    def register(make: Make) -> Make:
        DIMENSIONS[make.__name__.removeprefix("many_")] = (make, size)
        return make

    return register


def parts_body(*parts: Any) -> Body:
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, *parts]}]}


def tool(client: str, name: str = "t", **more: Any) -> Body:
    if client == "chat":
        function = {"name": name, "parameters": {"type": "object"}}
        return {"type": "function", "function": function, **more}
    return {"name": name, "input_schema": {"type": "object"}, **more}


def call(client: str, call_id: str, arguments: str = "{}") -> Body:
    if client == "chat":
        function = {"name": "t", "arguments": arguments}
        return {"id": call_id, "type": "function", "function": function}
    return {"type": "tool_use", "id": call_id, "name": "t", "input": {}}


def result(client: str, call_id: str, content: Any = "r") -> Body:
    if client == "chat":
        return {"role": "tool", "tool_call_id": call_id, "content": content}
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def tools_used(client: str, calls: list[Body], results: list[Body]) -> Body:
    if client == "chat":
        messages = [HELLO, {"role": "assistant", "content": None, "tool_calls": calls}, *results]
    else:
        answer = {"role": "assistant", "content": calls}
        messages = [HELLO, answer, {"role": "user", "content": results}]
    return {"messages": messages, "tools": [tool(client)]}


def ids(count: int) -> list[str]:
    return [f"c{number}" for number in range(count)]


@dimension(1500)
def many_unknown_keys(client: str, n: int) -> Body:
    return {f"k{number}": 1 for number in range(n)}


@dimension(200_000)
def many_characters_of_a_text(client: str, n: int) -> Body:
    return {"messages": [{"role": "user", "content": "a b " * (n // 4)}]}


@dimension(200_000)
def many_characters_of_a_key(client: str, n: int) -> Body:
    return {"k" * n: 1}


@dimension(800)
def many_parts(client: str, n: int) -> Body:
    return parts_body(*({"type": "text", "text": f"x{number}"} for number in range(n)))


@dimension(500)
def many_parts_with_fields(client: str, n: int) -> Body:
    return parts_body(*({"type": "text", "text": "x", f"e{number}": 1} for number in range(n)))


@dimension(1500)
def many_fields_of_a_part(client: str, n: int) -> Body:
    return parts_body({"type": "text", "text": "x", **{f"e{number}": 1 for number in range(n)}})


@dimension(800)
def many_blank_parts(client: str, n: int) -> Body:
    return parts_body(*({"type": "text", "text": " "} for _ in range(n)))


@dimension(500)
def many_cache_marks(client: str, n: int) -> Body:
    ttls = ("5m", "1h")
    marks = [{**MARK, "ttl": ttls[number % 2]} for number in range(n)]
    return parts_body(*({"type": "text", "text": "x", "cache_control": mark} for mark in marks))


@dimension(500)
def many_unknown_parts(client: str, n: int) -> Body:
    parts = [{"type": f"u{number}", "cache_control": MARK} for number in range(n)]
    # In the newest message they are an error.
    reply, newest = ({"role": role, "content": "And?"} for role in ("assistant", "user"))
    return {"messages": [*parts_body(*parts)["messages"], reply, newest]}


@dimension(300)
def many_documents_of_one_name(client: str, n: int) -> Body:
    if client == "chat":
        file = {"file_data": "data:application/pdf;base64,AAAA", "filename": "a"}
        return parts_body(*({"type": "file", "file": file} for _ in range(n)))
    source = {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}
    return parts_body(*({"type": "document", "title": "a", "source": source} for _ in range(n)))


@dimension(400)
def many_images(client: str, n: int) -> Body:
    if client == "chat":
        image = {"url": "data:image/png;base64,AAAA", "detail": "high"}
        return parts_body(*({"type": "image_url", "image_url": image} for _ in range(n)))
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    return parts_body(*({"type": "image", "source": source} for _ in range(n)))


@dimension(400)
def many_messages(client: str, n: int) -> Body:
    said = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    return {"messages": [*said * (n // 2), HELLO]}


@dimension(400)
def many_messages_of_one_role(client: str, n: int) -> Body:
    return {"messages": [HELLO] * n}


@dimension(400)
def many_messages_with_fields(client: str, n: int) -> Body:
    return {"messages": [{**HELLO, f"x{number}": 1} for number in range(n)]}


@dimension(400)
def many_system_messages(client: str, n: int) -> Body:
    return {"messages": [HELLO, *[{"role": "system", "content": "s"}] * n, HELLO]}


@dimension(300)
def many_thoughts(client: str, n: int) -> Body:
    thought: Body = {"role": "assistant", "content": None, "reasoning_content": "t"}
    if client == "messages":
        block = {"type": "thinking", "thinking": "t", "signature": "s"}
        thought = {"role": "assistant", "content": [block]}
    return {"messages": [HELLO, *[thought] * n, HELLO]}


@dimension(400)
def many_tools(client: str, n: int) -> Body:
    return {"tools": [tool(client, f"t{number}") for number in range(n)]}


@dimension(500)
def many_tools_with_fields(client: str, n: int) -> Body:
    return {"tools": [tool(client, f"t{number}", **{f"e{number}": 1}) for number in range(n)]}


@dimension(250)
def many_tools_under_aliases(client: str, n: int) -> Body:
    return {"tools": [tool(client, f"a.b {number}") for number in range(n)]}


@dimension(400)
def many_tools_with_marks(client: str, n: int) -> Body:
    return {"tools": [tool(client, f"t{number}", cache_control=MARK) for number in range(n)]}


@dimension(2000)
def many_fields_of_a_tool_with_a_long_name(client: str, n: int) -> Body:
    return {"tools": [tool(client, "x" * 50 * n, **{f"e{number}": 1 for number in range(n)})]}


@dimension(4000)
def many_properties_of_a_schema(client: str, n: int) -> Body:
    schema = {"type": "object", "properties": {f"p{number}": {} for number in range(n)}}
    offered = tool(client)
    holder = offered["function"] if client == "chat" else offered
    holder["parameters" if client == "chat" else "input_schema"] = schema
    return {"tools": [offered]}


@dimension(250)
def many_calls(client: str, n: int) -> Body:
    calls, results = [call(client, c) for c in ids(n)], [result(client, c) for c in ids(n)]
    return tools_used(client, calls, results)


@dimension(250)
def many_calls_answered_backwards(client: str, n: int) -> Body:
    calls = [call(client, c) for c in ids(n)]
    return tools_used(client, calls, [result(client, c) for c in reversed(ids(n))])


@dimension(250)
def many_calls_of_one_id(client: str, n: int) -> Body:
    return tools_used(client, [call(client, "c")] * n, [result(client, "c")] * n)


@dimension(150)
def many_calls_under_aliases(client: str, n: int) -> Body:
    odd = [f"a b/{number}" * 20 for number in range(n)]
    return tools_used(client, [call(client, c) for c in odd], [result(client, c) for c in odd])


@dimension(250)
def many_calls_without_results(client: str, n: int) -> Body:
    return tools_used(client, [call(client, c) for c in ids(n)], [result(client, "c0")])


@dimension(250)
def many_results_of_no_call(client: str, n: int) -> Body:
    return tools_used(client, [call(client, "c0")], [result(client, c) for c in ids(n)])


@dimension(250)
def many_calls_that_are_not_json(client: str, n: int) -> Body:
    calls = [call(client, c, "{") for c in ids(n)]
    return tools_used(client, calls, [result(client, c) for c in ids(n)])


@dimension(500)
def many_parts_of_a_result(client: str, n: int) -> Body:
    parts = [{"type": "text", "text": "x", "cache_control": MARK} for _ in range(n)]
    return tools_used(client, [call(client, "c")], [result(client, "c", parts)])


@dimension(250)
def many_answers_of_functions(client: str, n: int) -> Body:
    if client != "chat":
        return many_calls(client, n)
    answers = [{"role": "function", "name": "t", "content": "r"}] * n
    return tools_used(client, [call(client, c) for c in ids(n)], answers)


@dimension(8000)
def many_stop_sequences(client: str, n: int) -> Body:
    name = "stop" if client == "chat" else "stop_sequences"
    return {name: [f"s{number}" for number in range(n)]}


@dimension(4000)
def many_metadata_keys(client: str, n: int) -> Body:
    return {"metadata": {f"k{number}": "v" for number in range(n)}}


@dimension(2500)
def many_beta_flags(client: str, n: int) -> Body:
    known = ["context-1m-2025-08-07"] * n
    return {"betas": [*known, *(f"beta-{number}" for number in range(n))]}


@dimension(30)
def many_levels(client: str, n: int) -> Body:
    value: Any = ["x"] * 2000
    for _ in range(n):
        value = {"a": value}
    return {"extra": value}


def encoded(client: str, provider: str, make: Make, n: int, *, stream: bool = False) -> bytes:
    given = make(client, n)
    limit = {"max_tokens": 99} if client == "messages" else {}
    body = {"model": MODELS[provider], "messages": [HELLO], **limit, **given}
    return json.dumps({**body, "stream": True} if stream else body).encode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scaled(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MeasuredServer]:
    async with start_measured_server(tmp_path_factory.mktemp("scaled")) as server:
        yield server


@pytest.mark.parametrize("name", list(DIMENSIONS))
async def test_the_time_of_a_request_grows_with_its_size(scaled: MeasuredServer, name: str):
    make, size = DIMENSIONS[name]
    found = {}
    for client, provider in PAIRS:
        small, large = (encoded(client, provider, make, n) for n in (size // 2, 2 * size))
        found[client, provider] = await scaled.growth(small, large, partial(scaled.send, client))

    assert {pair: growth for pair, growth in found.items() if growth > MAX_LINEAR_GROWTH} == {}


@pytest.mark.parametrize("name", list(DIMENSIONS))
async def test_the_time_of_streams_and_saved_turns_grows_with_their_size(
    scaled: MeasuredServer, name: str
):
    make, size = DIMENSIONS[name]
    found = {}
    for mode, (client, provider, stream, headers) in MODES.items():
        small, large = (
            encoded(client, provider, make, n, stream=stream) for n in (size // 2, 2 * size)
        )
        send = partial(scaled.send, client, headers=headers)
        found[mode] = await scaled.growth(small, large, send)

    assert {mode: growth for mode, growth in found.items() if growth > MAX_LINEAR_GROWTH} == {}

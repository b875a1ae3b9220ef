"""Hypothesis strategies for messages in each protocol's format.

A message may contain every block of its protocol in any order. Valid conversations are in
`request_strategies`.
"""

import base64
import json
from typing import Any

import msgspec
from hypothesis import strategies as st

from cllm.core.message import Dialect, Message, Role

Json = dict[str, Any]
Blocks = st.SearchStrategy[Json]

DATA = base64.b64encode(b"\x89PNG").decode()
ANY_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
NONBLANK_TEXT = ANY_TEXT.filter(str.strip)
IDS = st.sampled_from(["call_1", "call_2", "functions.Bash:0", "x" * 90, "a b", "é"])
NAMES = st.sampled_from(["look_up", "now", "mcp.files:read", "n" * 80])
URLS = st.sampled_from(["https://example.com/a.png", "https://example.com/b"])
ARGUMENTS = st.dictionaries(NONBLANK_TEXT, ANY_TEXT | st.integers(0, 9) | st.none(), max_size=2)
CACHE_CONTROL_FIELDS: st.SearchStrategy[Json] = st.sampled_from(
    [{}, {}, {}, {"cache_control": {"type": "ephemeral"}}]
) | st.sampled_from(["5m", "1h"]).map(
    lambda ttl: {"cache_control": {"type": "ephemeral", "ttl": ttl}}
)


def block(**fields: Any) -> Blocks:
    """Return a strategy for a block. Each field is a value or a strategy."""
    return st.fixed_dictionaries(
        {
            name: value if isinstance(value, st.SearchStrategy) else st.just(value)
            for name, value in fields.items()
        }
    )


def with_cache_control(blocks: Blocks) -> Blocks:
    """Return the same blocks, some with `cache_control`."""
    return st.tuples(blocks, CACHE_CONTROL_FIELDS).map(lambda pair: pair[0] | pair[1])


def lists(blocks: Blocks, *, least: int = 0, most: int = 3) -> st.SearchStrategy[list[Json]]:
    return st.lists(blocks, min_size=least, max_size=most)


ANTHROPIC_TEXT = with_cache_control(block(type="text", text=NONBLANK_TEXT))
ANTHROPIC_SOURCE = block(type="base64", media_type="image/png", data=DATA) | block(
    type="url", url=URLS
)
ANTHROPIC_IMAGE = with_cache_control(block(type="image", source=ANTHROPIC_SOURCE))
ANTHROPIC_DOCUMENT = with_cache_control(
    block(
        type="document",
        source=block(type="base64", media_type="application/pdf", data=DATA)
        | block(type="text", media_type="text/plain", data=NONBLANK_TEXT)
        | block(type="url", url=URLS),
    )
    | block(
        type="document",
        title=NONBLANK_TEXT,
        source=block(type="base64", media_type="application/pdf", data=DATA),
    )
)
ANTHROPIC_THINKING = block(type="thinking", thinking=ANY_TEXT, signature="c2ln") | block(
    type="redacted_thinking", data=DATA
)
ANTHROPIC_CALL = with_cache_control(block(type="tool_use", id=IDS, name=NAMES, input=ARGUMENTS))
ANTHROPIC_RESULT = with_cache_control(
    block(
        type="tool_result",
        tool_use_id=IDS,
        content=ANY_TEXT | lists(ANTHROPIC_TEXT | ANTHROPIC_IMAGE | ANTHROPIC_DOCUMENT, least=1),
        is_error=st.booleans(),
    )
    | block(type="tool_result", tool_use_id=IDS)
)
ANTHROPIC_UNUSUAL_BLOCKS: Blocks = st.sampled_from(
    [
        {"type": "text", "text": "a", "citations": [], "odd": 1.0},
        {"type": "text", "text": ""},
        {"type": "thinking", "thinking": "unsigned"},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "search_result"}]},
        {"type": "new"},
    ]
)
ANTHROPIC_BLOCKS: Blocks = (
    ANTHROPIC_TEXT
    | ANTHROPIC_IMAGE
    | ANTHROPIC_DOCUMENT
    | ANTHROPIC_THINKING
    | ANTHROPIC_CALL
    | ANTHROPIC_RESULT
    | ANTHROPIC_UNUSUAL_BLOCKS
)

BEDROCK_FILES: Blocks = st.sampled_from(
    [
        {"image": {"format": "png", "source": {"bytes": DATA}}},
        {"image": {"format": "jpeg", "source": {"s3Location": {"uri": "s3://b/k"}}}},
        {"document": {"format": "pdf", "name": "a", "source": {"bytes": DATA}}},
        {"document": {"name": "b", "source": {"text": "plain"}}},
        {"document": {"name": "c", "source": {"content": [{"text": "x"}, {"text": "y"}]}}},
    ]
)
BEDROCK_RESULT = block(
    toolResult=block(
        toolUseId=IDS,
        content=lists(block(text=ANY_TEXT) | block(json=ARGUMENTS) | BEDROCK_FILES),
        status=st.sampled_from(["success", "error"]),
    )
)
BEDROCK_BLOCKS: Blocks = (
    block(text=ANY_TEXT)
    | BEDROCK_FILES
    | BEDROCK_RESULT
    | block(toolUse=block(toolUseId=IDS, name=NAMES, input=ARGUMENTS | st.just("not an object")))
    | st.sampled_from(
        [
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
            {"reasoningContent": {"redactedContent": DATA}},
            {"cachePoint": {"type": "default", "ttl": "1h"}},
            {"citationsContent": {"content": [{"text": "cited"}], "citations": []}},
            {"guardContent": {"text": {"text": "g"}}},
            {"odd": 1},
        ]
    )
)

OPENAI_TEXT = block(type="text", text=NONBLANK_TEXT)
OPENAI_IMAGE = block(
    type="image_url",
    image_url=block(url=URLS) | block(url=f"data:image/png;base64,{DATA}", detail="low"),
)
OPENAI_FILE = block(
    type="file",
    file=block(file_data=f"data:application/pdf;base64,{DATA}", filename=NONBLANK_TEXT),
)
OPENAI_CALL = block(
    id=IDS,
    type="function",
    function=block(name=NAMES, arguments=ARGUMENTS.map(json.dumps)),
)
OPENAI_FIELDS: dict[Role, Blocks] = {
    "system": block(role=st.sampled_from(["system", "developer"]), content=ANY_TEXT),
    "user": block(role="user", content=lists(OPENAI_TEXT | OPENAI_IMAGE | OPENAI_FILE) | ANY_TEXT),
    "assistant": block(role="assistant", content=ANY_TEXT)
    | block(role="assistant", content=None, tool_calls=lists(OPENAI_CALL, least=1))
    | block(role="assistant", content=None, refusal=NONBLANK_TEXT)
    | block(role="assistant", content="x", reasoning_content=NONBLANK_TEXT),
    "tool": block(role="tool", tool_call_id=IDS, content=ANY_TEXT | lists(OPENAI_TEXT)),
}
RESPONSES_ITEMS = (
    block(type="function_call", call_id=IDS, name=NAMES, arguments=ARGUMENTS.map(json.dumps))
    | block(
        type="message",
        id="msg_1",
        role="assistant",
        content=lists(
            block(type="output_text", text=ANY_TEXT, annotations=st.just([]))
            | block(type="refusal", refusal=NONBLANK_TEXT)
        ),
    )
    | block(
        type="function_call_output",
        call_id=IDS,
        output=ANY_TEXT | lists(block(type="input_text", text=ANY_TEXT)),
    )
    | block(type="reasoning", id="rs_1", summary=st.just([]), encrypted_content=DATA)
    | block(type="web_search_call", id="ws_1")
)
RESPONSES_BLOCKS: Blocks = (
    block(type="input_text", text=ANY_TEXT)
    | block(type="input_image", image_url=URLS, detail="low")
    | block(type="input_image", file_id="file_1")
    | block(type="input_file", file_url=URLS)
    | block(type="input_file", file_data=f"data:application/pdf;base64,{DATA}")
    | block(type="input_audio")
)

ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
DIALECTS: tuple[Dialect, ...] = ("openai", "anthropic", "bedrock", "responses")


def message_contents(dialect: Dialect, role: Role) -> st.SearchStrategy[Any]:
    match dialect:
        case "anthropic":
            return ANY_TEXT | lists(ANTHROPIC_BLOCKS)
        case "bedrock":
            return lists(BEDROCK_BLOCKS)
        case "responses" if role in ("assistant", "tool"):
            return lists(RESPONSES_ITEMS)
        case _:
            return ANY_TEXT | lists(RESPONSES_BLOCKS)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """A message of any dialect and role with any blocks of the dialect."""
    dialect = draw(st.sampled_from(DIALECTS))
    role = draw(st.sampled_from(ROLES))
    if dialect == "openai":
        fields = draw(OPENAI_FIELDS[role])
    else:
        is_own_role = role == "assistant" or (role == "system" and dialect == "anthropic")
        side = role if dialect == "responses" or is_own_role else "user"
        fields = {"role": side, "content": draw(message_contents(dialect, role))}
    return Message(role=role, raw=msgspec.json.encode(fields), dialect=dialect)

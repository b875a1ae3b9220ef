"""JSON schemas of the two completion protocols, for the description of the interface.

They say what clients may send and what they get; what is sent beyond them is passed on. Nothing is
checked with them here: reading requests is the codecs' work.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cllm.server.choosing import LONGEST_NAME

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "pattern": r"\S"}
MODEL: Schema = {**NAME, "maxLength": LONGEST_NAME}
COUNT: Schema = {"type": "integer", "minimum": 0}
POSITIVE: Schema = {"type": "integer", "minimum": 1}
FLAG: Schema = {"type": "boolean"}
ANYTHING: Schema = {"type": "object"}


def one_of(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def or_null(schema: Schema) -> Schema:
    return one_of(schema, {"type": "null"})


def list_of(schema: Schema, *, least: int = 0) -> Schema:
    return {"type": "array", "items": schema, **({"minItems": least} if least else {})}


def words(*choices: str) -> Schema:
    return {"type": "string", "enum": list(choices)}


def number(low: float, high: float) -> Schema:
    return {"type": "number", "minimum": low, "maximum": high}


def record(fields: Mapping[str, Schema], *, required: Sequence[str] = ()) -> Schema:
    schema: Schema = {"type": "object", "properties": dict(fields)}
    return {**schema, "required": list(required)} if required else schema


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


FUNCTION = record(
    {"name": TEXT, "description": TEXT, "parameters": ANYTHING, "strict": or_null(FLAG)},
    required=["name"],
)
CALL = record(
    {
        "id": TEXT,
        "type": words("function"),
        "function": record({"name": TEXT, "arguments": TEXT}, required=["name", "arguments"]),
    },
    required=["id", "type", "function"],
)
TEXT_PART = record({"type": words("text"), "text": TEXT}, required=["type", "text"])
IMAGE_PART = record(
    {
        "type": words("image_url"),
        "image_url": record(
            {"url": TEXT, "detail": words("auto", "low", "high")}, required=["url"]
        ),
    },
    required=["type", "image_url"],
)
FILE_PART = record(
    {
        "type": words("file"),
        "file": record({"file_data": TEXT, "filename": TEXT, "file_id": TEXT}),
    },
    required=["type", "file"],
)
CHAT_CONTENT = one_of(TEXT, list_of(one_of(TEXT_PART, IMAGE_PART, FILE_PART), least=1))
TEXT_CONTENT = one_of(TEXT, list_of(TEXT_PART, least=1))
CHAT_MESSAGE = one_of(
    record(
        {"role": words("system", "developer"), "content": TEXT_CONTENT, "name": TEXT},
        required=["role", "content"],
    ),
    record(
        {"role": words("user"), "content": CHAT_CONTENT, "name": TEXT},
        required=["role", "content"],
    ),
    record(
        {
            "role": words("assistant"),
            "content": or_null(TEXT_CONTENT),
            "refusal": or_null(TEXT),
            "tool_calls": list_of(CALL, least=1),
        },
        required=["role"],
    ),
    record(
        {"role": words("tool"), "content": TEXT_CONTENT, "tool_call_id": TEXT},
        required=["role", "content", "tool_call_id"],
    ),
)
CHAT_REQUEST = record(
    {
        "model": MODEL,
        "messages": list_of(ref("ChatMessage")),
        "stream": or_null(FLAG),
        "stream_options": or_null(record({"include_usage": FLAG})),
        "temperature": or_null(number(0, 2)),
        "top_p": or_null(number(0, 1)),
        "n": or_null({"type": "integer", "const": 1}),
        "max_tokens": or_null(POSITIVE),
        "max_completion_tokens": or_null(POSITIVE),
        "stop": or_null(one_of(TEXT, {**list_of(TEXT), "maxItems": 4})),
        "presence_penalty": or_null(number(-2, 2)),
        "frequency_penalty": or_null(number(-2, 2)),
        "logit_bias": or_null({"type": "object", "additionalProperties": number(-100, 100)}),
        "logprobs": or_null(FLAG),
        "top_logprobs": or_null({"type": "integer", "minimum": 0, "maximum": 20}),
        "seed": or_null({"type": "integer"}),
        "tools": list_of(
            record(
                {"type": words("function"), "function": FUNCTION}, required=["type", "function"]
            ),
            least=1,
        ),
        "tool_choice": one_of(words("none", "auto", "required"), ANYTHING),
        "parallel_tool_calls": FLAG,
        "response_format": record(
            {"type": words("text", "json_object", "json_schema"), "json_schema": ANYTHING},
            required=["type"],
        ),
        "reasoning_effort": or_null(words("none", "minimal", "low", "medium", "high", "xhigh")),
        "user": TEXT,
    },
    required=["model", "messages"],
)
CHAT_USAGE = record(
    {"prompt_tokens": COUNT, "completion_tokens": COUNT, "total_tokens": COUNT},
    required=["prompt_tokens", "completion_tokens", "total_tokens"],
)
FINISH = or_null(TEXT)
CHAT_ANSWER = record(
    {
        "id": TEXT,
        "object": words("chat.completion"),
        "created": {"type": "integer"},
        "model": TEXT,
        "choices": list_of(
            record(
                {
                    "index": COUNT,
                    "finish_reason": FINISH,
                    "message": record(
                        {
                            "role": words("assistant"),
                            "content": or_null(TEXT),
                            "refusal": or_null(TEXT),
                            "tool_calls": or_null(list_of(CALL)),
                        },
                        required=["role"],
                    ),
                },
                required=["index", "message"],
            )
        ),
        "usage": or_null(CHAT_USAGE),
    },
    required=["id", "object", "created", "model", "choices"],
)
CHAT_CHUNK = record(
    {
        "id": TEXT,
        "object": words("chat.completion.chunk"),
        "created": {"type": "integer"},
        "model": TEXT,
        "choices": list_of(
            record({"index": COUNT, "delta": ANYTHING, "finish_reason": FINISH}),
        ),
        "usage": or_null(CHAT_USAGE),
    },
    required=["id", "object", "created", "model", "choices"],
)
EMBEDDING_REQUEST = record(
    {
        "model": MODEL,
        "input": one_of(TEXT, list_of(TEXT, least=1)),
        "encoding_format": words("float", "base64"),
        "dimensions": POSITIVE,
        "user": TEXT,
    },
    required=["model", "input"],
)
EMBEDDING_ANSWER = record(
    {"object": words("list"), "data": list_of(ANYTHING), "model": TEXT, "usage": ANYTHING},
    required=["data"],
)

CACHE = record({"type": words("ephemeral"), "ttl": words("5m", "1h")}, required=["type"])
BLOCK: Schema = {
    "type": "object",
    "description": "A content block: text, tool_use, thinking, …",
    "properties": {"type": TEXT, "text": TEXT, "cache_control": or_null(CACHE)},
    "required": ["type"],
}


def block(kind: str, **fields: Schema) -> Schema:
    """A content block of a request, whose fields all have to be there."""
    properties = {"type": words(kind), **fields}
    return record({**properties, "cache_control": or_null(CACHE)}, required=list(properties))


TEXT_BLOCK = block("text", text=NAME)
IMAGE_DATA = record(
    {
        "type": words("base64"),
        "media_type": words("image/jpeg", "image/png", "image/gif", "image/webp"),
        "data": {**TEXT, "format": "byte", "minLength": 1},
    },
    required=["type", "media_type", "data"],
)
AT_URL = record({"type": words("url"), "url": {**TEXT, "format": "uri"}}, required=["type", "url"])
INPUT_BLOCK = one_of(
    TEXT_BLOCK,
    block("image", source=one_of(IMAGE_DATA, AT_URL)),
    block("document", source=AT_URL),
    block("tool_use", id=NAME, name=NAME, input=ANYTHING),
    block("tool_result", tool_use_id=NAME, content=one_of(TEXT, list_of(TEXT_BLOCK))),
    block("thinking", thinking=TEXT, signature=TEXT),
    block("redacted_thinking", data=TEXT),
)
TOOL = record(
    {
        "type": words("custom"),
        "name": {**TEXT, "pattern": "^[A-Za-z0-9_-]{1,64}$"},
        "description": TEXT,
        "input_schema": record({"type": words("object")}, required=["type"]),
        "cache_control": or_null(CACHE),
    },
    required=["name", "input_schema"],
)
SERVER_TOOL = record(
    {"type": {**TEXT, "pattern": "^[a-z_]+_20[0-9]{6}$"}, "name": NAME}, required=["type", "name"]
)
MESSAGES_REQUEST = record(
    {
        "model": MODEL,
        "max_tokens": POSITIVE,
        "messages": list_of(
            record(
                {
                    "role": words("user", "assistant"),
                    "content": one_of(NAME, list_of(ref("InputBlock"), least=1)),
                },
                required=["role", "content"],
            ),
            least=1,
        ),
        "system": one_of(TEXT, list_of(TEXT_BLOCK)),
        "stream": FLAG,
        "temperature": number(0, 1),
        "top_k": COUNT,
        "top_p": number(0, 1),
        "stop_sequences": list_of(TEXT),
        "tools": list_of(one_of(TOOL, SERVER_TOOL)),
        "tool_choice": one_of(
            record({"type": words("auto", "any", "none")}, required=["type"]),
            record({"type": words("tool"), "name": NAME}, required=["type", "name"]),
        ),
        "thinking": one_of(
            record({"type": words("disabled", "adaptive")}, required=["type"]),
            record(
                {"type": words("enabled"), "budget_tokens": {"type": "integer", "minimum": 1024}},
                required=["type", "budget_tokens"],
            ),
        ),
        "metadata": record({"user_id": or_null(TEXT)}),
    },
    required=["model", "messages"],
)
MESSAGES_ANSWER = record(
    {
        "id": TEXT,
        "type": words("message"),
        "role": words("assistant"),
        "model": TEXT,
        "content": list_of(ref("ContentBlock")),
        "stop_reason": or_null(TEXT),
        "stop_sequence": or_null(TEXT),
        "usage": record(
            {"input_tokens": COUNT, "output_tokens": COUNT},
            required=["input_tokens", "output_tokens"],
        ),
    },
    required=["id", "type", "role", "model", "content", "stop_reason", "usage"],
)
TOKEN_COUNT = record({"input_tokens": COUNT}, required=["input_tokens"])

SCHEMAS: dict[str, Schema] = {
    "ChatMessage": CHAT_MESSAGE,
    "ChatRequest": CHAT_REQUEST,
    "ChatCompletion": CHAT_ANSWER,
    "ChatChunk": CHAT_CHUNK,
    "EmbeddingRequest": EMBEDDING_REQUEST,
    "EmbeddingList": EMBEDDING_ANSWER,
    "ContentBlock": BLOCK,
    "InputBlock": INPUT_BLOCK,
    "MessagesRequest": MESSAGES_REQUEST,
    "MessagesAnswer": MESSAGES_ANSWER,
    "TokenCount": TOKEN_COUNT,
    "Error": record(
        {
            "error": record(
                {
                    "message": TEXT,
                    "type": TEXT,
                    "code": TEXT,
                    "param": or_null(TEXT),
                    "turn_id": TEXT,
                },
                required=["message", "type", "code", "param"],
            )
        },
        required=["error"],
    ),
    "AnthropicError": record(
        {
            "type": words("error"),
            "error": record(
                {"type": TEXT, "message": TEXT, "turn_id": TEXT}, required=["type", "message"]
            ),
        },
        required=["type", "error"],
    ),
}

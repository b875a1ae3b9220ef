"""A request of a coding agent to Anthropic in the middle of its work, with all features.

Long system blocks with `cache_control`, tools with nested schemas, thinking, betas, context edits,
results of parallel tools with an image and an error, and unknown fields.
"""

import base64
import struct
import zlib
from typing import Any

CACHE_CONTROL: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
CACHE_CONTROL_1H: dict[str, Any] = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
BETAS = (
    "claude-code-20250219",
    "interleaved-thinking-2025-05-14",
    "context-management-2025-06-27",
    "fine-grained-tool-streaming-2025-05-14",
    "effort-2025-11-24",
)
HEADERS = {
    "anthropic-beta": ",".join(BETAS),
    "anthropic-version": "2023-06-01",
    "anthropic-dangerous-direct-browser-access": "true",
    "x-app": "cli",
    "x-stainless-helper-method": "stream",
}
IDENTITY = "You are an agent that works on programs from a terminal."
RULES = (
    "Read a file before you change it.",
    "Say what you are about to do in one sentence, then do it.",
    "Never guess what a command prints: run it.",
    "When several things can be looked up at once, ask for all of them at once.",
    "A test that fails is a fact; do not argue with it.",
)
ENVIRONMENT = "Working directory: /project\nPlatform: linux\nToday: 2026-11-15\nBranch: main"
THOUGHT = "The picture and the listing are needed before anything can be said."
SIGNATURE = "c2lnbmVkIGJ5IHRoZSBtb2RlbA=="
NAMES = (
    "Bash",
    "Edit",
    "Glob",
    "Grep",
    "KillShell",
    "MultiEdit",
    "NotebookEdit",
    "Read",
    "Task",
    "TodoWrite",
    "WebFetch",
    "WebSearch",
    "Write",
    "mcp__tracker__create_issue",
)


def make_png() -> str:
    """Return a PNG of one pixel in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(b"\0\0"))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + head + body + chunk(b"IEND", b"")).decode()


def make_agent_request(model: str, *, rules: int = 1, **fields: Any) -> dict[str, Any]:
    """Return the body. `rules` repeats the rules, for a long system prompt."""
    return {
        "model": model,
        "max_tokens": 4000,
        "system": [
            {"type": "text", "text": IDENTITY},
            {"type": "text", "text": "\n".join(RULES * rules), **CACHE_CONTROL_1H},
            {"type": "text", "text": ENVIRONMENT},
        ],
        "tools": make_tools(),
        "tool_choice": {"type": "auto"},
        "messages": make_messages(),
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "context_management": {
            "edits": [
                {"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 3}}
            ]
        },
        "metadata": {"user_id": "user_0123_account__session_4567"},
        "a_field_of_tomorrow": {"level": [1, {"deep": True}]},
        **fields,
    }


def make_tools() -> list[dict[str, Any]]:
    """Return 14 tools; the last has `cache_control`, one has eager input streaming."""
    tools = [_tool(name) for name in NAMES]
    tools[NAMES.index("Write")]["eager_input_streaming"] = True
    tools[-1] |= CACHE_CONTROL_1H
    return tools


def _tool(name: str) -> dict[str, Any]:
    step = {
        "type": "object",
        "properties": {
            "content": {"type": "string", "minLength": 1},
            "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
        },
        "required": ["content", "status"],
        "additionalProperties": False,
    }
    return {
        "name": name,
        "description": f"Use {name} for what its name says.",
        "input_schema": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "An absolute path."},
                "steps": {"type": "array", "items": step},
                "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            },
            "required": ["path"],
            "additionalProperties": False,
        },
    }


def make_messages() -> list[dict[str, Any]]:
    """Return a question with a reminder, two parallel calls and their results."""
    image = {"type": "base64", "media_type": "image/png", "data": make_png()}
    return [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "<reminder>The list of things to do is empty.</reminder>"},
                {"type": "text", "text": "Does the plot look right?", **CACHE_CONTROL},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": THOUGHT, "signature": SIGNATURE},
                {"type": "text", "text": "I look at the plot and at the folder."},
                _call("toolu_01plot", "Read", {"path": "/project/plot.png"}),
                _call("toolu_02list", "Bash", {"path": "/project/missing"}),
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_01plot",
                    "content": [
                        {"type": "text", "text": "plot.png, 1 x 1"},
                        {"type": "image", "source": image},
                    ],
                },
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_02list",
                    "is_error": True,
                    "content": "ls: cannot access '/project/missing'",
                    **CACHE_CONTROL,
                },
            ],
        },
    ]


def _call(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}

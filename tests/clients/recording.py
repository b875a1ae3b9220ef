"""Checks that a server has recorded the conversation of a client, each message once."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.server_process import Client

# With False, the servers of the scenarios do not record.
RECORDING = True

LIST = "/v1/conversations"
REMINDER = re.compile(r"<system-reminder>.*</system-reminder>", re.DOTALL)
"""A text that Claude Code adds to a user message or a tool result, and moves or rewrites later."""
TEXT_TYPES = ("text", "input_text", "output_text")
"""Types of texts; those of Bedrock have none."""
AIDER_FILES = (
    "Here are summaries of some files present in my git repository.",
    "I have *added these files to the chat*",
    "I committed the changes with git hash",
)
"""Starts of user messages that aider adds with a reply, and moves or rewrites later."""

Item = tuple[str, ...]
"""A text, a tool call or a tool result of a message, whatever the protocol."""


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """What a client has sent and received: its last request, and the reply to it.

    `sides` is the number of side conversations that the server stores; titles are not stored.
    """

    request: dict[str, Any]
    reply: str
    sides: int = 0

    @property
    def messages(self) -> list[tuple[str, list[Item]]]:
        """The messages without system and developer messages, with the reply."""
        if "input" in self.request:
            sent = [_read_input_item(item) for item in self.request["input"]]
        else:
            sent = [(one["role"], list(_sent_items(one))) for one in self.request["messages"]]
        ours = [(role, items) for role, items in sent if role not in {"system", "developer"}]
        return normalise([*ours, ("assistant", [("text", self.reply)])])


def assert_recorded(server: Client, transcript: Transcript) -> None:
    """Assert that the store has one conversation with exactly the messages of the transcript."""
    assert read_recorded(server) == transcript.messages
    everything = server("GET", f"{LIST}?side=true").json["conversations"]
    assert len(everything) == 1 + transcript.sides, everything


def read_recorded(server: Client) -> list[tuple[str, list[Item]]]:
    """Return the messages of the only conversation of the store, side conversations aside."""
    listed = server("GET", LIST).json["conversations"]
    assert len(listed) == 1, listed
    detail = server("GET", f"{LIST}/{listed[0]['id']}").json
    return normalise([(one["role"], list(_stored_items(one))) for one in detail["messages"]])


def normalise(messages: Sequence[tuple[str, list[Item]]]) -> list[tuple[str, list[Item]]]:
    """Return the messages without what a client adds, moves or rewrites in its history.

    Adjacent messages of the assistant are one: the Responses API has their items separately.
    """
    result: list[tuple[str, list[Item]]] = []
    was_added = False
    for role, items in messages:
        is_reply_to_added = was_added and role == "assistant"
        was_added = role == "user" and any(item[-1].startswith(AIDER_FILES) for item in items)
        if was_added or is_reply_to_added:
            continue
        if role == "assistant" and result and result[-1][0] == role:
            result[-1] = (role, [*result[-1][1], *items])
        else:
            result.append((role, items))
    return result


def _read_input_item(item: dict[str, Any]) -> tuple[str, list[Item]]:
    """Return the role and the items of an item of the Responses API; reasoning has none."""
    match item.get("type", "message"):
        case "message":
            texts = _list_texts(item["content"])
            return item["role"], list(_text_items(item["role"], texts))
        case "function_call" | "custom_tool_call":
            return "assistant", [("call", item["call_id"], item["name"])]
        case "function_call_output" | "custom_tool_call_output":
            return "tool", [("result", item["call_id"], item["output"].strip())]
        case _:
            return "assistant", []


def _sent_items(message: dict[str, Any]) -> Iterator[Item]:
    """Yield the items of a message in a request, in the format of OpenAI, Anthropic or Bedrock."""
    content = message.get("content")
    if message["role"] == "tool":
        yield "result", message["tool_call_id"], _read_result("".join(_list_texts(content)))
        return
    yield from _text_items(message["role"], _list_texts(content))
    for block in content if isinstance(content, list) else ():
        if block.get("type") == "tool_use":
            yield "call", block["id"], block["name"]
        elif block.get("type") == "tool_result":
            texts = _list_texts(block.get("content"))
            yield "result", block["tool_use_id"], _read_result("".join(texts))
        elif "toolUse" in block:
            yield "call", block["toolUse"]["toolUseId"], block["toolUse"]["name"]
        elif "toolResult" in block:
            texts = _list_texts(block["toolResult"]["content"])
            yield "result", block["toolResult"]["toolUseId"], _read_result("".join(texts))
    for call in message.get("tool_calls") or ():
        yield "call", call["id"], call["function"]["name"]


def _stored_items(message: dict[str, Any]) -> Iterator[Item]:
    """Yield the items of a message that the server returns."""
    if message["role"] == "tool" and message["content"] is not None:
        yield "result", message["tool_call_id"], _read_result(message["content"])
        return
    parts = message["parts"]
    texts = [part["text"] for part in parts if part["kind"] == "text"]
    yield from _text_items(message["role"], texts)
    for part in parts:
        if part["kind"] == "tool_call":
            yield "call", part["id"], part["name"]
        elif part["kind"] == "tool_result":
            texts = [piece["text"] for piece in part["content"] if piece["kind"] == "text"]
            yield "result", part["call_id"], _read_result("".join(texts))
        elif part["kind"] == "unknown":  # a call of a custom tool, or its output
            yield from _read_input_item(part["raw"])[1]


def _text_items(role: str, texts: Sequence[str]) -> Iterator[Item]:
    """Yield a reply's text as one item: clients split and trim it. Reminders are left out."""
    if role == "assistant":
        texts = ["".join(texts)]
    for text in map(str.strip, texts):
        if text and REMINDER.fullmatch(text) is None:
            yield "text", text


def _list_texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [
        block["text"]
        for block in content or ()
        if block.get("type", "text") in TEXT_TYPES and "text" in block
    ]


def _read_result(text: str) -> str:
    """Return the result of a tool without reminders, which count the tokens that are left."""
    return REMINDER.sub("", text).strip()

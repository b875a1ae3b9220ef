"""Sources of imports as other programs write them, following the formats that they use.

They have branches, images, tool calls, reasoning, hidden messages and damage.
"""

import json
import zipfile
from pathlib import Path
from typing import Any

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d4944415478da63f8cfc0500f0004050101a2d05ea80000000049454e44ae426082"
)
START = 1_760_000_000.0
LLM_FOLDER = Path(__file__).parent / "unit/transfer/importers/data"


def write_zip(path: Path, files: dict[str, Any]) -> Path:
    """Write an archive; values that are not bytes are JSON."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            archive.writestr(name, data)
    return path


def chatgpt_node(
    key: str, parent: str | None, role: str = "", content: Any = None, **fields: Any
) -> dict[str, Any]:
    """Return a node; content as text is a message of that text."""
    if not role:
        return {"id": key, "parent": parent, "children": [], "message": None}
    if isinstance(content, str):
        content = {"content_type": "text", "parts": [content]}
    number = sum(map(ord, key))
    message = {
        "id": key,
        "author": {"role": role, "name": fields.pop("name", None), "metadata": {}},
        "create_time": START + number,
        "content": content,
        "status": fields.pop("status", "finished_successfully"),
        "recipient": fields.pop("recipient", "all"),
        "metadata": fields,
    }
    return {"id": key, "parent": parent, "children": [], "message": message}


def chatgpt_conversation(ref: str, *nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "id": ref,
        "conversation_id": ref,
        "title": f"About {ref}",
        "create_time": START,
        "update_time": START + 5000,
        "mapping": {node["id"]: node for node in nodes},
        "current_node": nodes[-1]["id"] if nodes else None,
        "default_model_slug": "gpt-5-2",
        **fields,
    }


def chatgpt_cats() -> dict[str, Any]:
    """A conversation with a hidden node, a regenerated reply, an edited question and tools."""
    context = {"content_type": "user_editable_context", "user_instructions": "Be brief."}
    image = {
        "content_type": "image_asset_pointer",
        "asset_pointer": "file-service://file-Pixel1",
        "width": 1,
    }
    photo = {"content_type": "multimodal_text", "parts": [image, "What is this?"]}
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "Look", "content": "At it."}]}
    code = {"content_type": "code", "language": "python", "text": "print(1)"}
    output = {"content_type": "execution_output", "text": "1"}
    return chatgpt_conversation(
        "cats",
        chatgpt_node("a-root", None),
        chatgpt_node("b-system", "a-root", "system", ""),
        chatgpt_node(
            "b-context", "b-system", "user", context, is_visually_hidden_from_conversation=True
        ),
        chatgpt_node("c-user", "b-context", "user", photo),
        chatgpt_node("d-thoughts", "c-user", "assistant", thoughts, model_slug="gpt-5-2-thinking"),
        chatgpt_node("e-code", "d-thoughts", "assistant", code, recipient="python"),
        chatgpt_node("f-result", "e-code", "tool", output, name="python"),
        chatgpt_node(
            "g-hidden", "f-result", "assistant", "?", is_visually_hidden_from_conversation=True
        ),
        chatgpt_node(
            "h-reply",
            "g-hidden",
            "assistant",
            "A pixel.\ue200cite\ue202turn0search0\ue201",
            model_slug="gpt-5-2-thinking",
        ),
        chatgpt_node("h-variant", "g-hidden", "assistant", "A dot.", model_slug="gpt-5-2"),
        chatgpt_node("i-edited", "h-reply", "user", "Which size?"),
        chatgpt_node("j-answer", "i-edited", "assistant", "One."),
        chatgpt_node("k-user", "h-reply", "user", "Which colour?"),
        chatgpt_node("l-answer", "k-user", "assistant", "Blue.", model_slug="gpt-5-2"),
    )


def write_chatgpt(path: Path) -> Path:
    """Three conversations in two parts, of which one is damaged, and an image."""
    dogs = chatgpt_conversation(
        "dogs",
        chatgpt_node("m", None, "user", "Hello"),
        chatgpt_node("n", "m", "assistant", "Hi."),
        is_archived=True,
        title=None,
    )
    damaged = b'[{"id": "x", "mapping": {"a": nope}}, ' + json.dumps(dogs).encode() + b', {"id'
    return write_zip(
        path,
        {
            "conversations-000.json": [chatgpt_cats(), chatgpt_conversation("empty")],
            "conversations-001.json": damaged,
            "user-1/file-Pixel1-photo.png": PIXEL,
            "../../escape.txt": b"no",
            "chat.html": b"<html></html>",
        },
    )


def claude_message(
    key: str, parent: str | None, sender: str, *blocks: Any, **fields: Any
) -> dict[str, Any]:
    content = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
    return {
        "uuid": key,
        "text": "This block is not supported on your current device yet.",
        "content": content,
        "sender": sender,
        "created_at": f"2025-03-01T10:00:{ord(key[0]) - 97:02d}.000000Z",
        "attachments": [],
        "files": [],
        "parent_message_uuid": parent,
        **fields,
    }


def claude_conversation(ref: str, *messages: dict[str, Any]) -> dict[str, Any]:
    return {
        "uuid": ref,
        "name": f"About {ref}",
        "summary": "",
        "created_at": "2025-03-01T10:00:00.000000Z",
        "updated_at": "2025-03-01T11:00:00.000000Z",
        "account": {"uuid": "account"},
        "chat_messages": list(messages),
    }


def claude_birds() -> dict[str, Any]:
    notes = {"file_name": "notes.txt", "file_type": "txt", "extracted_content": "Birds sing."}
    call = {"type": "tool_use", "id": None, "name": "web_search", "input": {"query": "birds"}}
    result = {
        "type": "tool_result",
        "tool_use_id": None,
        "name": "web_search",
        "is_error": False,
        "content": [
            {"type": "knowledge", "title": "Birds", "url": "https://x.example", "text": "t"}
        ],
    }
    thinking = {"type": "thinking", "thinking": "Search first.", "summaries": []}
    return claude_conversation(
        "birds",
        claude_message(
            "a1",
            "00000000-0000-4000-8000-000000000000",
            "human",
            "Do birds sing?",
            attachments=[notes],
            files=[{"file_uuid": "f", "file_name": "bird.png"}],
        ),
        claude_message("b1", "a1", "assistant", thinking, call, result, "Yes."),
        claude_message("c1", "a1", "assistant", "No."),
        claude_message("d1", "b1", "human", "Why?"),
        claude_message("e1", "d1", "assistant", {"type": "token_budget"}, "They like it."),
    )


def write_claude(path: Path) -> Path:
    old = claude_conversation(
        "old",
        *(
            {**claude_message(key, None, sender), "content": [], "text": text}
            for key, sender, text in (("f", "human", "Hi"), ("g", "assistant", "Hello."))
        ),
    )
    return write_zip(
        path,
        {
            "conversations.json": [claude_birds(), old, claude_conversation("empty")],
            "users.json": [{"uuid": "account", "full_name": "Ann"}],
            "projects.json": [],
        },
    )

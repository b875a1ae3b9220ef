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


def write_lines(path: Path, *lines: Any) -> Path:
    """Write a JSONL file; values that are not bytes are JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    encoded = (line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    path.write_bytes(b"\n".join(encoded) + b"\n")
    return path


def claude_code_line(
    key: str, parent: str | None, kind: str, content: Any, **fields: Any
) -> dict[str, Any]:
    message = {"role": kind, "content": content, **fields.pop("message", {})}
    return {
        "type": kind,
        "uuid": key,
        "parentUuid": parent,
        "sessionId": "5e55",
        "timestamp": f"2026-01-01T00:00:{ord(key[0]) - 97:02d}.000Z",
        "cwd": "/work",
        "version": "2.1.0",
        "message": message,
        **fields,
    }


def write_claude_code(folder: Path) -> Path:
    """A session with a reply of several lines, a tool, a rewound question and a sub-agent."""
    usage = {"input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 3}
    reply = {"id": "msg_1", "model": "claude-opus-4-8", "usage": usage}
    thinking = {"type": "thinking", "thinking": "Look.", "signature": "c2ln"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "a"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Luna"}
    lines = (
        {"type": "summary", "summary": "The cat", "leafUuid": "x"},
        claude_code_line("a", None, "user", "Who is the cat?"),
        claude_code_line("b", "a", "user", "<caveat>", isMeta=True),
        claude_code_line("c", "b", "assistant", [thinking], message=reply),
        claude_code_line("d", "c", "assistant", [call], message=reply),
        claude_code_line("d", "c", "assistant", [call], message=reply),
        b'{"type": "user", "uuid',
        claude_code_line("e", "d", "user", [result], toolUseResult={}),
        claude_code_line(
            "f", "e", "assistant", [{"type": "text", "text": "Luna."}],
            message={**reply, "id": "msg_2"},
        ),
        claude_code_line("g", "f", "user", "Why?"),
        {"type": "file-history-snapshot", "messageId": "m"},
        claude_code_line("h", "f", "user", "How old?"),
    )  # fmt: skip
    write_lines(folder / "-work/5e55.jsonl", *lines)
    side = {"isSidechain": True, "agentId": "ab12"}
    write_lines(
        folder / "-work/5e55/subagents/agent-ab12.jsonl",
        claude_code_line("a", None, "user", "Search.", **side),
        claude_code_line("b", "a", "assistant", "Found.", message=reply, **side),
    )
    write_lines(folder / "-work/empty.jsonl", {"type": "summary", "summary": "Nothing"})
    return folder


def codex_line(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-02-01T00:00:00.000Z", "type": kind, "payload": payload}


def write_codex(folder: Path) -> Path:
    """A session with reasoning, a tool call and a turn that was rolled back."""

    def message(role: str, text: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        content = [{"type": kind, "text": text}]
        return codex_line("response_item", type="message", role=role, content=content)

    usage = {"input_tokens": 10, "cached_input_tokens": 4, "output_tokens": 6}
    return write_lines(
        folder / "2026/02/01/rollout-2026-02-01T00-00-00-c0de.jsonl",
        codex_line(
            "session_meta", id="c0de", cwd="/work", cli_version="0.9",
            base_instructions={"text": "You are Codex."},
        ),
        codex_line("turn_context", model="gpt-5.2-codex", effort="high"),
        message("developer", "Rules."),
        message("user", "<environment_context>x</environment_context>"),
        message("user", "List the files."),
        codex_line("event_msg", type="user_message", message="List the files."),
        codex_line(
            "response_item", type="reasoning",
            summary=[{"type": "summary_text", "text": "Look"}], encrypted_content="abc",
        ),
        codex_line(
            "response_item", type="function_call", name="shell", arguments="{}", call_id="c1"
        ),
        codex_line("response_item", type="function_call_output", call_id="c1", output="a.txt"),
        message("assistant", "One file."),
        codex_line("event_msg", type="token_count", info={"last_token_usage": usage}),
        message("user", "Delete it."),
        message("assistant", "Done."),
        codex_line("event_msg", type="thread_rolled_back", num_turns=1),
        codex_line("response_item", type="strange"),
        message("user", "Thanks."),
    )  # fmt: skip


def open_webui_chat() -> dict[str, Any]:
    """A chat with two models, reasoning, an image and an error."""
    thought = '<details type="reasoning" done="true">\n<summary>Thought</summary>\n> Hm\n</details>'
    files = [{"type": "image", "url": "data:image/png;base64,aGk="}, {"type": "file", "name": "a"}]
    messages: dict[str, dict[str, Any]] = {
        "u1": {"role": "user", "content": "Hello", "timestamp": 1767225600, "files": files},
        "a1": {
            "parentId": "u1", "role": "assistant", "content": f"{thought}\nHi", "model": "llama3",
            "timestamp": 1767225601, "usage": {"prompt_tokens": 3, "completion_tokens": 2},
        },
        "a2": {
            "parentId": "u1", "role": "assistant", "content": "Hey", "model": "qwen3",
            "timestamp": 1767225602, "info": {"usage": {"input_tokens": 1}},
        },
        "u2": {"parentId": "a1", "role": "user", "content": "More", "timestamp": 1767225603},
        "a3": {
            "parentId": "u2", "role": "assistant", "content": "", "done": False,
            "error": {"content": "It failed."}, "timestamp": 1767225604,
        },
        "x": {"parentId": "a3", "role": "system", "content": "", "timestamp": 1767225605},
    }  # fmt: skip
    chat = {
        "title": "Greeting",
        "models": ["llama3", "qwen3"],
        "system": "Be kind.",
        "history": {"messages": messages, "currentId": "a3"},
    }
    head = {"id": "chat-1", "user_id": "u", "title": "Greeting", "created_at": 1767225600}
    return {**head, "chat": chat, "updated_at": 1767225700, "archived": True}

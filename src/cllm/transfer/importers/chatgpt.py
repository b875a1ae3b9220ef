"""Reads the export of ChatGPT: a ZIP archive, its folder, or its `conversations.json`.

OpenAI publishes no schema. System, hidden and empty messages are left out; their children are not.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from cllm.core.message import AnyPart, Message, Text, ToolCall, ToolResult
from cllm.transfer.archive import Archive
from cllm.transfer.importers.chatgpt_assets import ChatGptAssets
from cllm.transfer.importers.content import (
    build_message,
    build_placeholder,
    parse_time,
    read_object,
    read_objects,
    read_text,
)
from cllm.transfer.importers.json_files import CONVERSATIONS, list_conversation_files, read_files
from cllm.transfer.message_tree import ImportedConversation, ImportedNode
from cllm.transfer.report import ImportReport

SOURCE = "chatgpt"
CITATION = re.compile("\ue200[^\ue200\ue201]{0,500}\ue201|【[0-9]{1,4}†[^【】]{0,500}】")
"""Marks of citations; the export does not contain what they refer to."""
PARTIAL = ("in_progress", "finished_partial_completion")
TEXT_FIELDS = ("text", "result", "summary", "content")
DETAILS = (
    *("gizmo_id", "gizmo_type", "conversation_template_id"),
    *("is_starred", "is_do_not_remember", "voice"),
)
"""The fields that become metadata."""
MAX_WALK = 1000
"""How far the call of a tool result is searched."""


def is_conversation(fields: dict[str, Any]) -> bool:
    return isinstance(fields.get("mapping"), dict)


def read_conversations(archive: Archive, report: ImportReport) -> Iterator[ImportedConversation]:
    assets = ChatGptAssets(archive, report)
    read = partial(_read_conversation, assets=assets, report=report)
    files = list_conversation_files(archive)
    yield from read_files(archive, files, read, report, field=CONVERSATIONS)


def _read_conversation(
    fields: dict[str, Any], *, assets: ChatGptAssets, report: ImportReport
) -> Iterator[ImportedConversation]:
    ref = read_text(fields, "conversation_id", "id")
    title = read_text(fields, "title") or None
    if not is_conversation(fields) or not ref:
        report.skip("it has no messages" if ref else "it has no ID", id=ref or None, title=title)
        return
    assets.budget.reset()
    mapping = {key: node for key, node in fields["mapping"].items() if isinstance(node, dict)}
    reader = _NodeReader(mapping, assets, report)
    nodes = tuple(reader.read(key) for key in mapping)
    details = {
        name: fields[name]
        for name in DETAILS
        if isinstance(fields.get(name), str | bool) and fields[name]
    }
    yield ImportedConversation(
        source=SOURCE,
        id=ref,
        nodes=nodes,
        current=read_text(fields, "current_node") or None,
        title=title,
        model=read_text(fields, "default_model_slug") or None,
        system="\n\n".join(dict.fromkeys(reader.instructions)) or None,
        created_at=parse_time(fields.get("create_time")),
        updated_at=parse_time(fields.get("update_time")),
        is_archived=fields.get("is_archived") is True,
        metadata={SOURCE: details} if details else {},
    )


class _NodeReader:
    """Reads the nodes of one conversation; `instructions` are those that the user configured."""

    def __init__(
        self, mapping: dict[str, dict[str, Any]], assets: ChatGptAssets, report: ImportReport
    ) -> None:
        self.instructions: list[str] = []
        self._mapping = mapping
        self._assets = assets
        self._report = report

    def read(self, key: str) -> ImportedNode:
        node = self._mapping[key]
        parent = read_text(node, "parent") or None
        fields = node.get("message")
        if not isinstance(fields, dict):
            return ImportedNode(id=key, parent=parent)
        messages, thinking = self._read_message(key, fields)
        return ImportedNode(
            id=key,
            parent=parent,
            messages=tuple(messages),
            thinking=thinking,
            at=parse_time(fields.get("create_time")),
            model=read_text(fields.get("metadata"), "model_slug") or None,
            is_complete=fields.get("status") not in PARTIAL,
        )

    def _read_message(self, key: str, fields: dict[str, Any]) -> tuple[Sequence[Message], str]:
        content = read_object(fields, "content")
        kind = read_text(content, "content_type")
        role = _role_of(fields)
        if kind == "user_editable_context":
            self.instructions += filter(
                None, (read_text(content, "user_profile"), read_text(content, "user_instructions"))
            )
            return (), ""
        if kind == "thoughts":
            return (), _read_thoughts(content)
        reason = self._find_skip_reason(role, kind, fields)
        if reason is not None:
            self._report.skip_message(reason)
            return (), ""
        parts = self._read_parts(kind, content)
        parts += self._read_attachments(fields, content)
        if not parts:
            is_known = kind in ("text", "code", "multimodal_text", "execution_output", "")
            reason = "empty message" if is_known else f"content of the type '{kind}'"
            self._report.skip_message(reason)
            return (), ""
        return self._build_messages(key, role, fields, parts), ""

    def _find_skip_reason(self, role: str, kind: str, fields: dict[str, Any]) -> str | None:
        metadata = read_object(fields, "metadata")
        if metadata.get("is_visually_hidden_from_conversation") is True:
            return "hidden message"
        if role == "system":
            return "system message of ChatGPT"
        if kind in ("reasoning_recap", "model_editable_context"):
            return f"content of the type '{kind}'"
        return None if role in ("user", "assistant", "tool") else f"message of the role '{role}'"

    def _build_messages(
        self, key: str, role: str, fields: dict[str, Any], parts: list[AnyPart]
    ) -> Sequence[Message]:
        if role == "user":
            return (build_message("user", parts),)
        if role == "tool":
            return self._build_result(key, fields, parts)
        recipient = _recipient(fields)
        if recipient is None:
            return (build_message("assistant", parts),)
        text = "\n".join(part.text for part in parts if isinstance(part, Text))
        call = ToolCall(id=_call_id(key), name=recipient, arguments=_as_arguments(text))
        return (build_message("assistant", [call]),)

    def _build_result(
        self, key: str, fields: dict[str, Any], parts: list[AnyPart]
    ) -> Sequence[Message]:
        """Return the result of the call above it; without one, the call is added."""
        call = self._find_call(key)
        content: Any = tuple(parts)
        result = ToolResult(call_id=_call_id(call or key), content=content)
        message = build_message("tool", [result])
        if call is not None:
            return (message,)
        name = read_text(read_object(fields, "author"), "name") or "tool"
        added = ToolCall(id=_call_id(key), name=name, arguments="{}")
        return build_message("assistant", [added]), message

    def _find_call(self, key: str) -> str | None:
        parent = self._mapping[key].get("parent")
        for _ in range(MAX_WALK):
            node = self._mapping.get(parent) if isinstance(parent, str) else None
            if node is None:
                return None
            fields = node.get("message")
            role = _role_of(fields) if isinstance(fields, dict) else ""
            if role == "assistant" and isinstance(fields, dict) and _recipient(fields) is not None:
                return str(parent)
            if role in ("user", "assistant"):
                return None
            parent = node.get("parent")
        return None

    def _read_parts(self, kind: str, content: dict[str, Any]) -> list[AnyPart]:
        if kind in ("tether_quote", "sonic_webpage"):
            names = ("title", "url", "text")
            text = "\n".join(filter(None, (read_text(content, name) for name in names)))
            return [Text(text=text)] if text else []
        if kind == "system_error":
            text = ": ".join(filter(None, (read_text(content, "name"), read_text(content, "text"))))
            return [Text(text=text)] if text else []
        if kind == "computer_output":
            return self._read_pointer(read_object(content, "screenshot"))
        listed = content.get("parts")
        if isinstance(listed, list):
            return [part for one in listed for part in self._read_part(one)]
        text = read_text(content, *TEXT_FIELDS)
        return [Text(text=text)] if text else []

    def _read_part(self, part: Any) -> list[AnyPart]:
        if isinstance(part, str):
            text = CITATION.sub("", part)
            return [Text(text=text)] if text.strip() else []
        if not isinstance(part, dict):
            return []
        kind = read_text(part, "content_type")
        if kind == "real_time_user_audio_video_asset_pointer":
            return self._read_pointer(read_object(part, "audio_asset_pointer"))
        if kind.endswith("asset_pointer"):
            return self._read_pointer(part)
        text = read_text(part, *TEXT_FIELDS)
        if text:
            return [Text(text=text)]
        self._report.note(f"a part of the type '{kind}' was left out")
        return []

    def _read_pointer(self, part: dict[str, Any]) -> list[AnyPart]:
        pointer = read_text(part, "asset_pointer")
        if not pointer:
            return []
        kind = "audio" if "audio" in read_text(part, "content_type") else "image"
        prompt = read_text(read_object(read_object(part, "metadata"), "dalle"), "prompt")
        return [self._assets.find(pointer) or build_placeholder(kind, prompt or None)]

    def _read_attachments(self, fields: dict[str, Any], content: dict[str, Any]) -> list[AnyPart]:
        shown = msgspec.json.encode(content).decode()
        parts: list[AnyPart] = []
        for attachment in read_objects(fields.get("metadata"), "attachments"):
            ref, name = read_text(attachment, "id"), read_text(attachment, "name") or None
            if not ref or ref in shown:
                continue
            kind = read_text(attachment, "mime_type", "mimeType") or None
            found = self._assets.find(ref, name=name, media_type=kind)
            parts.append(found or build_placeholder("file", name))
        return parts


def _role_of(fields: dict[str, Any]) -> str:
    return read_text(read_object(fields, "author"), "role")


def _recipient(fields: dict[str, Any]) -> str | None:
    """Return the tool that a message of the model is for."""
    recipient = read_text(fields, "recipient")
    return recipient if recipient not in ("", "all") else None


def _call_id(key: str) -> str:
    return "call_" + re.sub(r"[^A-Za-z0-9_-]", "_", key)


def _as_arguments(text: str) -> str:
    """Return the arguments of a call as JSON; a program is the argument `input`."""
    try:
        if isinstance(msgspec.json.decode(text), dict):
            return text
    except (msgspec.DecodeError, RecursionError):
        pass
    return msgspec.json.encode({"input": text}).decode()


def _read_thoughts(content: dict[str, Any]) -> str:
    thoughts = read_objects(content, "thoughts")
    pairs = ((read_text(one, "summary"), read_text(one, "content")) for one in thoughts)
    return "\n\n".join("\n".join(filter(None, pair)) for pair in pairs if any(pair))

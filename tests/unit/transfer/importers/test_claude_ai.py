import json
from pathlib import Path

import pytest
from tests.import_sources import claude_conversation, claude_message, write_claude, write_zip
from tests.unit.transfer.conftest import Import, list_all, texts

from cllm.core.errors import UsageError
from cllm.core.message import Document, Text, Thinking, ToolCall, ToolResult
from cllm.core.ports import Store
from cllm.wire.convert import parts_of

pytestmark = pytest.mark.asyncio


async def test_a_conversation_has_its_newest_path(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    report = await import_file(write_claude(tmp_path / "export.zip"))
    found = await list_all(store)
    birds = found["About birds"]
    assert [turn.messages[-1].text for turn in birds.turns] == ["Yes.", "They like it."]
    (variant,) = birds.variants
    assert variant.messages[-1].text == "No."
    assert texts(found["About old"]) == ["Hi", "Hello."]
    assert [(one.id, one.reason) for one in report.skipped] == [("empty", "it has no messages")]
    assert report.notes == {"a file is not in the export": 1}


async def test_blocks_become_messages_of_the_api(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    await import_file(write_claude(tmp_path / "export.zip"))
    birds = (await list_all(store))["About birds"]
    question, call, result, reply = map(parts_of, birds.turns[0].messages)
    assert isinstance(question[0], Document)
    assert (question[0].name, question[0].text) == ("notes.txt", "Birds sing.")
    assert question[1:] == (Text(text="[file: bird.png]"), Text(text="Do birds sing?"))
    assert isinstance(call[0], Thinking)
    assert isinstance(call[1], ToolCall)
    assert isinstance(result[0], ToolResult)
    assert result[0].call_id == call[1].id
    assert result[0].content == (Text(text="Birds\nhttps://x.example\nt"),)
    assert reply == (Text(text="Yes."),)


async def test_importing_twice_changes_nothing(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    path = write_claude(tmp_path / "export.zip")
    await import_file(path)
    before = await list_all(store)
    assert (await import_file(path)).unchanged == 2
    assert await list_all(store) == before


async def test_other_blocks_and_senders_are_reported(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    summary = {"type": "thinking", "thinking": "", "summaries": [{"summary": "Thought."}]}
    local = {"type": "local_resource", "name": "a.md", "file_path": "/a.md"}
    result = {"type": "tool_result", "tool_use_id": "x", "is_error": True}
    result |= {"content": [local, {"type": "image"}, {"type": "text", "text": "t"}]}
    redacted = {"type": "redacted_thinking", "data": "abc"}
    call = {"type": "tool_use", "id": "x", "name": "create_file", "input": {"path": "a.md"}}
    messages = (
        claude_message("a", None, "human", {"type": "voice_note", "text": "Hi"}),
        claude_message("b", "a", "assistant", summary, redacted, call, result, {"type": "odd"}),
        claude_message("c", "b", "robot", "?"),
        {**claude_message("d", "b", "human"), "text": ""},
        {**claude_message("e", "b", "human"), "attachments": [{"file_name": "x.bin"}]},
    )
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([claude_conversation("one", *messages), {}]), encoding="utf-8")
    report = await import_file(path)
    one = (await list_all(store))["About one"]
    assert (
        texts(one)[-1] == "[file: x.bin]\nThis block is not supported on your current device yet."
    )
    assert report.skipped_messages == {"message of the sender 'robot'": 1, "empty message": 1}
    assert report.notes["a block of the type 'odd' was left out"] == 1
    assert one.turns[0].messages[2].json()["content"][0]["is_error"] is True


async def test_a_list_of_downloads_is_explained(import_file: Import, tmp_path: Path) -> None:
    path = tmp_path / "manifest-1.json"
    path.write_text(json.dumps({"data_files": [{"filename": "conversations-000.zip"}]}), "utf-8")
    with pytest.raises(UsageError, match="list of download links"):
        await import_file(path)


async def test_projects_and_memories_are_named(import_file: Import, tmp_path: Path) -> None:
    conversation = claude_conversation("a", claude_message("a1", None, "human", "Hi"))
    files = {"conversations.json": [conversation], "projects/1.json": {"name": "Birds"}}
    report = await import_file(write_zip(tmp_path / "a.zip", files))
    assert report.notes == {"projects and memories are not conversations and were left out": 1}

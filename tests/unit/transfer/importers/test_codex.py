from pathlib import Path
from typing import Any

import pytest
from tests.import_sources import codex_line, write_codex, write_lines
from tests.unit.transfer.conftest import Import, list_all, texts

from cllm.core.message import Text, Thinking, ToolCall
from cllm.core.ports import Store
from cllm.core.reply import Usage
from cllm.wire.convert import parts_of

pytestmark = pytest.mark.asyncio


async def test_items_become_messages(import_file: Import, store: Store, tmp_path: Path) -> None:
    write_codex(tmp_path)
    report = await import_file(tmp_path)
    found = (await list_all(store))["List the files."]
    assert texts(found) == ["List the files.", "", "", "One file.", "Thanks."]
    first = found.turns[0]
    assert [message.role for message in first.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    thinking, call = parts_of(first.messages[1])
    assert isinstance(thinking, Thinking)
    assert isinstance(call, ToolCall)
    assert parts_of(first.messages[3]) == (Text(text="One file."),)
    assert first.model == "gpt-5.2-codex"
    assert first.usage == Usage(input=6, output=6, cache_read=4)
    assert found.system is not None
    assert found.system.text == "You are Codex."
    assert report.skipped_messages == {
        "system message of Codex": 1,
        "message that Codex added": 1,
        "item of the type 'strange'": 1,
    }
    assert (await import_file(tmp_path)).unchanged == 2


async def test_a_turn_that_was_rolled_back_is_a_branch(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    path = write_codex(tmp_path)
    whole = path.read_bytes()
    end = whole.index(b'{"timestamp": "2026-02-01T00:00:00.000Z", "type": "event_msg", '
                      b'"payload": {"type": "thread_rolled_back"')  # fmt: skip
    path.write_bytes(whole[:end])
    assert (await import_file(tmp_path)).branches == 0
    path.write_bytes(whole)
    report = await import_file(tmp_path)
    assert (report.imported, report.branches, report.unchanged) == (0, 1, 1)
    found = await list_all(store)
    assert texts(found["List the files."])[-2:] == ["Delete it.", "Done."]
    assert texts(found["Branch of 'List the files.'"])[-2:] == ["One file.", "Thanks."]


async def test_a_damaged_session_is_imported_up_to_the_damage(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    path = write_codex(tmp_path)
    path.write_bytes(path.read_bytes()[:-10])
    report = await import_file(tmp_path)
    assert [one.damaged for one in report.skipped] == [True]
    assert texts(next(iter((await list_all(store)).values())))[0] == "List the files."


def message(role: str, text: str) -> dict[str, Any]:
    content = [{"type": "output_text" if role == "assistant" else "input_text", "text": text}]
    return {"type": "message", "role": role, "content": content}


async def test_a_compaction_adds_no_message_twice(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    compacted = codex_line(
        "compacted", message="Short.", replacement_history=[message("user", "First")]
    )
    question = codex_line("response_item", **message("user", "First"))
    later = codex_line("response_item", **message("user", "Second"))
    write_lines(
        tmp_path / "rollout-1.jsonl",
        codex_line("session_meta", id="a"), question, compacted, codex_line("world_state", full=1),
        codex_line("response_item", type="compaction", encrypted_content="x"), later,
        codex_line("new_kind"),
    )  # fmt: skip
    write_lines(tmp_path / "rollout-2.jsonl", codex_line("session_meta", id="b"), compacted, later)
    write_lines(tmp_path / "rollout-3.jsonl", codex_line("session_meta", id="c"))
    report = await import_file(tmp_path)
    page = await store.list_conversations(limit=10)
    for summary in page.items:
        assert texts(await store.load(summary.id)) == ["First", "Second"]
    assert report.imported == 2
    assert report.skipped_messages == {"summary of a compaction": 2}
    assert report.notes == {"a record of the type 'new_kind' was left out": 1}
    assert [one.reason for one in report.skipped] == ["it has no messages"]


async def test_sessions_have_their_names_and_agents_are_side_conversations(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    write_codex(tmp_path / "sessions")
    write_lines(
        tmp_path / "sessions/rollout-agent.jsonl",
        codex_line("session_meta", id="agent", parent_thread_id="c0de"),
        codex_line("response_item", **message("user", "Search.")),
    )
    write_lines(
        tmp_path / "session_index.jsonl",
        {"id": "c0de", "thread_name": "Old", "updated_at": "x"},
        {"id": "c0de", "thread_name": "Files", "updated_at": "x"},
    )
    await import_file(tmp_path / "sessions")
    found = await list_all(store)
    assert set(found) == {"Files", "Branch of 'Files'", "Search."}
    side = found["Search."]
    assert side.is_side
    assert side.parent is not None
    assert side.parent.conversation == found["Files"].id
    report = await import_file(tmp_path)
    assert (report.unchanged, report.skipped) == (3, [])


async def test_items_of_newer_tools_stay_in_the_reply(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    items = (
        {"type": "image_generation_call", "id": "i", "status": "completed", "result": "aGk="},
        {"type": "tool_search_call", "call_id": "t", "execution": "client", "arguments": {}},
        {"type": "tool_search_output", "call_id": "t", "execution": "client", "tools": []},
    )
    lines = [codex_line("response_item", **one) for one in (message("user", "Draw"), *items)]
    write_lines(tmp_path / "rollout-1.jsonl", codex_line("session_meta", id="a"), *lines)
    report = await import_file(tmp_path)
    (found,) = (await list_all(store)).values()
    assert found.turns[0].messages[1].json()["content"] == list(items)
    assert len(parts_of(found.turns[0].messages[1])) == 3
    assert report.skipped_messages == {}

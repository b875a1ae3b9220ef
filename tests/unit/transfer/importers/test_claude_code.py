from pathlib import Path
from typing import Any

import pytest
from tests.import_sources import claude_code_line, write_claude_code, write_lines
from tests.unit.transfer.conftest import Import, list_all, texts

from cllm.core.message import Thinking, ToolCall, ToolResult
from cllm.core.ports import Store
from cllm.core.reply import Usage
from cllm.wire.convert import parts_of

pytestmark = pytest.mark.asyncio


async def test_the_lines_of_a_reply_are_one_message(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    report = await import_file(write_claude_code(tmp_path))
    cat = (await list_all(store))["The cat"]
    first, second = cat.turns
    assert [message.role for message in first.messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    thinking, call = parts_of(first.messages[1])
    assert isinstance(thinking, Thinking)
    assert thinking.signature == "c2ln"
    assert isinstance(call, ToolCall)
    assert isinstance(parts_of(first.messages[2])[0], ToolResult)
    assert second.messages[0].text == "How old?"
    assert first.usage == Usage(input=10, output=6, cache_read=14)
    assert (first.model, cat.source) == ("claude-opus-4-8", "claude-code")
    assert cat.metadata["claude-code"] == {"cwd": "/work", "version": "2.1.0"}
    assert (report.imported, report.branches) == (2, 1)
    assert report.skipped_messages == {"message that Claude Code added": 1}


async def test_a_rewound_question_is_a_branch_and_a_sub_agent_a_side_conversation(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    await import_file(write_claude_code(tmp_path))
    found = await list_all(store)
    cat, side = found["The cat"], found["Search."]
    assert found["Branch of 'The cat'"].turns[-1].messages[0].text == "Why?"
    assert side.is_side
    assert side.parent is not None
    assert (side.parent.conversation, side.parent.kind) == (cat.id, "side")
    assert side.family == cat.id


async def test_damage_is_reported_and_a_second_import_changes_nothing(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    report = await import_file(write_claude_code(tmp_path))
    assert [(one.path, one.reason, one.damaged) for one in report.skipped] == [
        ("-work/5e55.jsonl", "1 damaged line was left out", True),
        ("-work/empty.jsonl", "it has no messages", False),
    ]
    before = await list_all(store)
    assert (await import_file(tmp_path)).unchanged == 3
    assert await list_all(store) == before


async def test_sub_agents_in_the_same_file_are_side_conversations(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    side = {"isSidechain": True}
    write_lines(
        tmp_path / "5e55.jsonl",
        claude_code_line("a", None, "user", "Start."),
        claude_code_line("b", None, "user", "Search one.", **side),
        claude_code_line("c", None, "user", "Search two.", **side),
        claude_code_line("d", "b", "assistant", "One.", **side),
        claude_code_line("e", "a", "assistant", "Done."),
        claude_code_line("f", "c", "assistant", "Two.", **side),
    )
    report = await import_file(tmp_path)
    found = await list_all(store)
    assert (report.imported, report.branches) == (3, 0)
    assert {title: texts(one) for title, one in found.items()} == {
        "Start.": ["Start.", "Done."],
        "Search one.": ["Search one.", "One."],
        "Search two.": ["Search two.", "Two."],
    }
    assert [one.is_side for one in found.values()].count(True) == 2
    assert found["Search one."].family == found["Start."].id


async def test_a_resumed_session_has_its_own_id_and_the_title_of_its_user(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    earlier = claude_code_line("a", None, "user", "Start.")
    write_lines(tmp_path / "5e55.jsonl", earlier, {"type": "summary", "summary": "First"})
    write_lines(
        tmp_path / "6e66.jsonl",
        earlier,
        {**claude_code_line("b", "a", "user", "Again."), "sessionId": "6e66"},
        {"type": "custom-title", "customTitle": "Mine", "sessionId": "6e66"},
        {"type": "ai-title", "aiTitle": "Theirs", "sessionId": "6e66"},
    )
    assert (await import_file(tmp_path)).imported == 2
    found = await list_all(store)
    assert texts(found["First"]) == ["Start."]
    assert texts(found["Mine"]) == ["Start.", "Again."]


async def test_results_of_several_calls_are_one_message(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    def call(number: int) -> list[dict[str, Any]]:
        return [{"type": "tool_use", "id": f"toolu_{number}", "name": "Read", "input": {}}]

    def result(number: int) -> list[dict[str, Any]]:
        return [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "x"}]

    reply = {"id": "msg_1", "model": "claude-opus-4-8"}
    write_lines(
        tmp_path / "5e55.jsonl",
        claude_code_line("a", None, "user", "Read both."),
        claude_code_line("b", "a", "assistant", call(1), message=reply),
        claude_code_line("c", "b", "user", result(1)),
        claude_code_line("d", "b", "assistant", call(2), message=reply),
        claude_code_line("e", "d", "user", result(2)),
        claude_code_line("f", "e", "assistant", "Done.", message={"id": "msg_2"}),
    )
    report = await import_file(tmp_path)
    (found,) = (await list_all(store)).values()
    (turn,) = found.turns
    assert [len(parts_of(message)) for message in turn.messages] == [1, 2, 2, 1]
    assert (report.branches, found.variants) == (0, ())

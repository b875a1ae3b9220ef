import sys
from pathlib import Path

import pytest
from tests.import_sources import write_codex
from tests.unit.transfer.conftest import Import, list_all, texts

from cllm.core.message import Text, Thinking, ToolCall
from cllm.core.ports import Store
from cllm.core.reply import Usage
from cllm.wire.convert import parts_of

pytestmark = pytest.mark.asyncio


async def test_items_become_messages(import_file: Import, store: Store, tmp_path: Path) -> None:
    write_codex(tmp_path)
    report = await import_file(tmp_path)
    (found,) = (await list_all(store)).values()
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
    assert (await import_file(tmp_path)).unchanged == 1


async def test_a_damaged_session_is_imported_up_to_the_damage(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    path = write_codex(tmp_path)
    path.write_bytes(path.read_bytes()[:-10])
    report = await import_file(tmp_path)
    assert [one.damaged for one in report.skipped] == [True]
    assert texts(next(iter((await list_all(store)).values())))[0] == "List the files."


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 has zstd.")
async def test_a_compressed_session_says_what_to_do(import_file: Import, tmp_path: Path) -> None:
    path = tmp_path / "rollout-x.jsonl.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd")
    report = await import_file(path)
    assert "zstd -d" in report.skipped[0].reason

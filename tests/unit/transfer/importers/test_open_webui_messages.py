from pathlib import Path
from typing import Any

import pytest
from tests.import_sources import PIXEL

from cllm.core.message import Document, Image, Message, Text, Thinking, ToolCall, ToolResult
from cllm.transfer.archive import open_archive
from cllm.transfer.importers.open_webui_messages import OpenWebuiFiles, read_node
from cllm.transfer.report import ImportReport
from cllm.wire.convert import parts_of

CALL = {"type": "function_call", "call_id": "c1", "name": "search", "arguments": '{"q": "cat"}'}
RESULT = {
    "type": "function_call_output",
    "call_id": "c1",
    "output": [
        {"type": "input_text", "text": "Luna"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
    ],
}


def item(text: str) -> dict[str, Any]:
    return {"type": "message", "content": [{"type": "output_text", "text": text}]}


@pytest.fixture
def report() -> ImportReport:
    return ImportReport()


def read(
    folder: Path, report: ImportReport, role: str = "assistant", **fields: Any
) -> tuple[Message, ...]:
    files = OpenWebuiFiles(open_archive(folder), report)
    return read_node("k", {"role": role, **fields}, files, report).messages


def test_output_items_are_messages_with_tool_calls(tmp_path: Path, report: ImportReport) -> None:
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Look."}]}
    output = [reasoning, CALL, RESULT, item("It is Luna."), item("")]
    content = '<details type="tool_calls" name="search">\n</details>\nIt is Luna.'
    messages = read(tmp_path, report, output=output, content=content)
    assert [message.role for message in messages] == ["assistant", "tool", "assistant"]
    assert parts_of(messages[0]) == (
        Thinking(text="Look."),
        ToolCall(id="c1", name="search", arguments='{"q": "cat"}'),
    )
    (result,) = parts_of(messages[1])
    assert isinstance(result, ToolResult)
    assert result.call_id == "c1"
    assert result.content == (Text(text="Luna"), Image(media_type="image/png", data="aGk="))
    assert parts_of(messages[2]) == (Text(text="It is Luna."),)
    assert report == ImportReport()


def test_the_text_is_read_where_the_output_has_none(tmp_path: Path, report: ImportReport) -> None:
    content = '<details type="tool_calls" name="search">\n</details>\nIt is Luna.'
    plain_result = {**RESULT, "output": "Luna", "call_id": None}
    call = {**CALL, "arguments": {"q": "cat"}, "name": None, "call_id": None}
    messages = read(tmp_path, report, output=[call, plain_result], content=content)
    assert [message.text for message in messages] == ["", "Luna", "It is Luna."]
    assert parts_of(messages[0]) == (
        ToolCall(id="call_k_0", name="tool", arguments='{"q": "cat"}'),
    )


def test_a_program_that_ran_is_a_tool_call(tmp_path: Path, report: ImportReport) -> None:
    code = {"type": "open_webui:code_interpreter", "code": "1", "output": {"stdout": "one"}}
    output = [code, {"type": "open_webui:other"}, {"type": "strange"}]
    messages = read(tmp_path, report, output=output)
    assert [message.role for message in messages] == ["assistant", "tool"]
    assert messages[1].text == "one"
    assert report.notes == {"an item of the type 'strange' was left out": 1}


def test_text_with_details_that_are_not_reasoning_stays(
    tmp_path: Path, report: ImportReport
) -> None:
    content = 'a <details type="x">b</details> <details type="reasoning">no end'
    (message,) = read(tmp_path, report, content=content)
    assert message.text == content


def test_content_can_be_blocks_and_an_error_a_text(tmp_path: Path, report: ImportReport) -> None:
    blocks = [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}},
        {"type": "text", "text": " "},
    ]
    (message,) = read(tmp_path, report, "user", content=blocks)
    assert parts_of(message) == (Text(text="See"), Image(url="https://x.example/a.png"))
    (failed,) = read(tmp_path, report, content=None, error="It failed.")
    assert failed.text == "It failed."


def test_uploaded_files_have_their_bytes(tmp_path: Path, report: ImportReport) -> None:
    (tmp_path / "uploads").mkdir()
    (tmp_path / "uploads/f1_cat.png").write_bytes(PIXEL)
    (tmp_path / "uploads/f2_a.csv").write_bytes(b"1,2")
    meta = {"meta": {"content_type": "text/csv"}}
    files = [
        {"type": "image", "url": "/api/v1/files/f1/content", "name": "cat.png"},
        {"type": "file", "id": "f2", "name": "a.csv", "file": meta},
        {"type": "image", "url": "f3"},
    ]
    (message,) = read(tmp_path, report, "user", content="", files=files)
    image, document, missing = parts_of(message)
    assert isinstance(image, Image)
    assert image.media_type == "image/png"
    assert isinstance(document, Document)
    assert (document.media_type, document.data, document.name) == ("text/csv", "MSwy", "a.csv")
    assert missing == Text(text="[image]")
    assert report.notes == {"a file is not in the export": 1}


def test_other_roles_are_left_out(tmp_path: Path, report: ImportReport) -> None:
    assert read(tmp_path, report, "system", content="x") == ()
    assert read(tmp_path, report, "user", content=" ") == ()
    assert report.skipped_messages == {"message of the role 'system'": 1, "empty message": 1}

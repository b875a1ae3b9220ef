import json
from pathlib import Path
from typing import Any

import pytest
from tests.import_sources import (
    PIXEL,
    chatgpt_cats,
    chatgpt_conversation,
    chatgpt_node,
    write_chatgpt,
    write_zip,
)
from tests.unit.transfer.conftest import Import, list_all, texts

from cllm.core.message import Image, Text, Thinking, ToolCall, ToolResult
from cllm.core.ports import Store
from cllm.wire.convert import parts_of

pytestmark = pytest.mark.asyncio


async def import_one(import_file: Import, store: Store, tmp_path: Path, *nodes: Any) -> list[str]:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([chatgpt_conversation("one", *nodes)]), encoding="utf-8")
    await import_file(path)
    return texts((await list_all(store))["About one"])


async def test_the_selected_path_becomes_the_conversation(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    await import_file(write_chatgpt(tmp_path / "export.zip"))
    cats = (await list_all(store))["About cats"]
    assert texts(cats) == ["What is this?", "", "1", "A pixel.", "Which colour?", "Blue."]
    assert [turn.model for turn in cats.turns] == ["gpt-5-2-thinking", "gpt-5-2"]
    assert cats.system is not None
    assert cats.system.text == "Be brief."
    assert cats.system_record is not None
    assert cats.system_record.policy == "captured"
    assert (cats.source, cats.model) == ("chatgpt", "gpt-5-2")
    assert cats.created_at.isoformat() == "2025-10-09T08:53:20+00:00"


async def test_images_tools_and_reasoning_are_preserved(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    await import_file(write_chatgpt(tmp_path / "export.zip"))
    messages = (await list_all(store))["About cats"].turns[0].messages
    question, call, result, reply = (parts_of(message) for message in messages)
    image = question[0]
    assert isinstance(image, Image)
    assert image.media_type == "image/png"
    assert isinstance(call[0], Thinking)
    assert call[0].text == "Look\nAt it."
    assert isinstance(call[1], ToolCall)
    assert (call[1].name, json.loads(call[1].arguments)) == ("python", {"input": "print(1)"})
    assert isinstance(result[0], ToolResult)
    assert result[0].call_id == call[1].id
    assert reply == (Text(text="A pixel."),)


async def test_a_regenerated_reply_is_a_variant_and_an_edited_question_a_branch(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    report = await import_file(write_chatgpt(tmp_path / "export.zip"))
    found = await list_all(store)
    cats, branch = found["About cats"], found["Branch of 'About cats'"]
    (variant,) = cats.variants
    assert variant.messages[-1].text == "A dot."
    assert variant.place == cats.turns[0].id
    assert variant.model == "gpt-5-2"
    assert texts(branch)[-2:] == ["Which size?", "One."]
    assert branch.parent is not None
    assert (branch.parent.conversation, branch.parent.sequence) == (cats.id, 4)
    assert branch.family == cats.id
    assert (report.imported, report.branches, report.messages) == (2, 1, 11)


async def test_damage_is_reported_and_the_rest_imported(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    report = await import_file(write_chatgpt(tmp_path / "export.zip"))
    assert [(one.path, one.id, one.reason) for one in report.skipped] == [
        (None, "empty", "it has no messages"),
        (None, None, "it is not valid JSON"),
        ("conversations-001.json", None, "it is incomplete or not JSON"),
    ]
    assert [one.damaged for one in report.skipped] == [False, True, True]
    assert report.skipped_messages == {"system message of ChatGPT": 1, "hidden message": 1}
    dogs = (await list_all(store))["Hello"]
    assert dogs.archived_at is not None


async def test_importing_twice_changes_nothing(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    path = write_chatgpt(tmp_path / "export.zip")
    await import_file(path)
    before = await list_all(store)
    report = await import_file(path)
    assert (report.imported, report.branches, report.continued, report.unchanged) == (0, 0, 0, 3)
    assert await list_all(store) == before


async def test_a_missing_image_is_a_placeholder(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    path = write_zip(tmp_path / "export.zip", {"conversations.json": [chatgpt_cats()]})
    report = await import_file(path)
    assert texts((await list_all(store))["About cats"])[0] == "[image]\nWhat is this?"
    assert report.notes == {"a file is not in the export": 1}


async def test_attachments_are_found_by_their_id(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    attachments = [{"id": "file_9", "name": "notes.txt", "mime_type": "text/plain"}]
    node = chatgpt_node("a", None, "user", "Read this.", attachments=attachments)
    files = {"conversations.json": [chatgpt_conversation("one", node)], "file_9.dat": b"text"}
    await import_file(write_zip(tmp_path / "export.zip", {**files, "file_90.dat": PIXEL}))
    (message,) = (await list_all(store))["About one"].turns[0].messages
    assert message.json()["content"][1]["file"] == {
        "filename": "notes.txt",
        "file_data": "data:text/plain;base64,dGV4dA==",
    }


async def test_a_result_without_a_call_gets_one(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    quote = {"content_type": "tether_quote", "title": "T", "url": "u", "text": "x"}
    error = {"content_type": "system_error", "name": "E", "text": "failed"}
    nodes = (
        chatgpt_node("a", None, "user", "Search."),
        chatgpt_node("b", "a", "tool", quote, name="file_search"),
        chatgpt_node("c", "b", "tool", error, name="file_search"),
        chatgpt_node("d", "c", "assistant", "Found.", status="in_progress"),
    )
    assert await import_one(import_file, store, tmp_path, *nodes) == [
        "Search.", "", "T\nu\nx", "", "E: failed", "Found.",
    ]  # fmt: skip
    assert (await list_all(store))["About one"].turns[0].state == "incomplete"


async def test_audio_is_its_transcript(import_file: Import, store: Store, tmp_path: Path) -> None:
    parts = [
        {"content_type": "audio_transcription", "text": "Hello", "direction": "in"},
        {"content_type": "real_time_user_audio_video_asset_pointer", "audio_asset_pointer": {}},
        {"content_type": "strange"},
        7,
    ]
    content = {"content_type": "multimodal_text", "parts": parts}
    node = chatgpt_node("a", None, "user", content)
    assert await import_one(import_file, store, tmp_path, node) == ["Hello"]


async def test_cycles_and_dangling_references_are_read(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    nodes = (
        chatgpt_node("a", "b", "user", "One"),
        chatgpt_node("b", "a", "assistant", "Two"),
        chatgpt_node("c", "missing", "user", "Three"),
        {"id": "d", "parent": 5, "message": {"author": 1, "content": None}},
    )
    conversation = chatgpt_conversation("one", *nodes, current_node="nowhere")
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"conversations": [conversation, {"id": "x"}, {}]}), "utf-8")
    report = await import_file(path, "chatgpt")
    found = await list_all(store)
    assert {text for one in found.values() for text in texts(one)} == {"One", "Two", "Three"}
    assert [one.reason for one in report.skipped] == ["it has no messages", "it has no ID"]


async def test_the_manifest_names_parts_of_the_export(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    node = chatgpt_node("a", None, "user", "Hi")
    manifest = {"logical_files": {"conversations.json": {"files": ["x/part-1.json", "../y", 7]}}}
    path = write_zip(
        tmp_path / "a.zip",
        {
            "conversations-000.json": [chatgpt_conversation("one", node)],
            "x/part-1.json": [chatgpt_conversation("two", node)],
            "export_manifest.json": manifest,
        },
    )
    assert (await import_file(path)).imported == 2
    assert set(await list_all(store)) == {"About one", "About two"}
    damaged = {"conversations.json": [chatgpt_conversation("one", node)]}
    path = write_zip(tmp_path / "b.zip", {**damaged, "export_manifest.json": b"{"})
    assert (await import_file(path)).unchanged == 1


async def test_marks_of_citations_are_removed(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    text = "Yes\N{LEFT BLACK LENTICULAR BRACKET}12†source】. 【x】"
    found = await import_one(import_file, store, tmp_path, chatgpt_node("a", None, "user", text))
    assert found == ["Yes. 【x】"]

"""`cllm conversations import` and `export`, with every store."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.command import Cllm
from tests.home import Home
from tests.import_sources import (
    LLM_FOLDER,
    chatgpt_cats,
    chatgpt_conversation,
    chatgpt_node,
    open_webui_chat,
    write_chatgpt,
    write_claude,
    write_claude_code,
    write_codex,
    write_zip,
)
from tests.waits import wait_until

MANY = 1000
every_store = pytest.mark.parametrize("store_url", ["json", "sqlite", "postgresql"], indirect=True)


def import_into(cllm: Cllm, store: str, *words: str) -> dict[str, Any]:
    done = cllm("conversations", "import", *words, "--json", "--store", store)
    report: dict[str, Any] = json.loads(done.out)
    return report


@every_store
def test_sources_are_imported_once(cllm: Cllm, store_url: str, tmp_path: Path) -> None:
    sources = [
        str(write_chatgpt(tmp_path / "chatgpt.zip")),
        str(write_claude(tmp_path / "claude.zip")),
        str(LLM_FOLDER / "llm-new.db"),
    ]
    planned = import_into(cllm, store_url, *sources, "--dry-run")
    first = import_into(cllm, store_url, *sources)
    second = import_into(cllm, store_url, *sources)
    assert first == {**planned, "dry_run": False}
    assert first["conversations"] == {
        "imported": 10, "branches": 1, "continued": 0, "unchanged": 0, "skipped": 4,
    }  # fmt: skip
    assert second["conversations"] == {
        "imported": 0, "branches": 0, "continued": 0, "unchanged": 11, "skipped": 4,
    }  # fmt: skip
    assert second["messages"]["imported"] == 0
    listed = cllm("conversations", "list", "--source", "chatgpt", "--store", store_url).succeeded()
    assert "About cats" in listed.out
    assert not (tmp_path.parent / "escape.txt").exists()


@every_store
def test_an_export_imports_to_the_same_bytes(
    cllm: Cllm, store_url: str, home: Home, tmp_path: Path
) -> None:
    cllm("conversations", "import", str(write_chatgpt(tmp_path / "a.zip")), "--store", store_url)
    first, second, lines = home.work / "first", home.work / "second", home.work / "all.jsonl"
    export = ("conversations", "export", "--all", "--store")
    cllm(*export, store_url, "-o", str(first)).succeeded()
    cllm(*export, store_url, "--format", "jsonl", "-o", str(lines)).succeeded()
    other = f"json:{home.work / 'other'}"
    report = import_into(cllm, other, str(first))
    assert report["conversations"]["imported"] == 3
    assert import_into(cllm, other, str(lines))["conversations"]["unchanged"] == 3
    cllm(*export, other, "-o", str(second)).succeeded()
    assert home.snapshot(first) == home.snapshot(second)
    assert len(home.snapshot(first)) == 3


@every_store
def test_one_conversation_is_exported_in_every_format(
    cllm: Cllm, store_url: str, home: Home
) -> None:
    script = "<script>alert(1)</script>"
    nodes = (chatgpt_node("a", None, "user", script), chatgpt_node("b", "a", "assistant", "No."))
    source = write_zip(
        home.work / "a.zip", {"conversations.json": [chatgpt_conversation("x", *nodes)]}
    )
    cllm("conversations", "import", str(source), "--store", store_url).succeeded()
    listed = cllm("conversations", "list", "--store", store_url).succeeded()
    ref = listed.out.split()[0]

    def export(*words: str) -> str:
        command = ("conversations", "export", ref, "--store", store_url, *words)
        return cllm(*command).succeeded().out

    assert json.loads(export())["id"] == ref
    assert json.loads(export("--format", "jsonl")) == json.loads(export())
    assert script in export("--format", "markdown")
    page = export("--format", "html")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    export("-o", "a.json")
    path = home.work / "a.json"
    assert path.stat().st_mode & 0o777 == 0o600
    again = cllm("conversations", "export", ref, "--store", store_url, "-o", "a.json")
    again.failed_with_one_sentence("already exists", "--force")


def test_a_report_is_for_people(cllm: Cllm, tmp_path: Path) -> None:
    done = cllm("conversations", "import", str(write_chatgpt(tmp_path / "a.zip")))
    assert done.code == 1
    assert done.out == (
        "Imported 2 conversations and 1 branch (11 messages); "
        "0 continued, 0 unchanged, 3 skipped.\n"
    )
    assert done.err.splitlines() == [
        "Skipped empty 'About empty': it has no messages.",
        "Skipped a conversation: it is not valid JSON.",
        "Skipped conversations-001.json: it is incomplete or not JSON.",
        "Skipped 1 message: system message of ChatGPT.",
        "Skipped 1 message: hidden message.",
    ]


def test_bad_sources_are_one_sentence(cllm: Cllm, home: Home) -> None:
    def fail(*words: str, code: int = 1) -> str:
        done = cllm("conversations", "import", *words)
        return done.err.splitlines()[-1] if code == done.code else done.report()

    (home.work / "a.txt").write_text("hello", encoding="utf-8")
    assert "no such file" in fail("missing.zip")
    assert "format of a.txt is not known" in fail("a.txt")
    assert "Usage" in fail(code=2) or "Missing argument" in fail(code=2)
    assert home.snapshot() == {}


def test_a_truncated_archive_is_reported_as_damaged(cllm: Cllm, tmp_path: Path) -> None:
    half = tmp_path / "half.zip"
    half.write_bytes(write_chatgpt(tmp_path / "a.zip").read_bytes()[:300])

    done = cllm("conversations", "import", str(half))

    line = done.failed_with_one_sentence("not a readable ZIP archive", "download it again")
    assert "--from" not in line


def test_a_failed_import_reports_only_what_was_read(cllm: Cllm, home: Home, tmp_path: Path) -> None:
    (home.work / "a.txt").write_text("hello", encoding="utf-8")
    good = str(LLM_FOLDER / "llm-new.db")

    nothing = cllm("conversations", "import", "a.txt", good)
    some = cllm("conversations", "import", good, "a.txt")

    assert (nothing.code, nothing.out) == (1, "")
    assert some.code == 1
    assert some.out.startswith("Imported ")
    assert "format of a.txt is not known" in some.err


def test_an_imported_conversation_continues_without_a_warning_about_system_prompts(
    cllm: Cllm, settings: Any
) -> None:
    model = ("-m", "openai/gpt-test")
    settings(default_system_message=...)
    import_into(cllm, "json:imported", str(LLM_FOLDER / "llm-new.db"))
    listed = cllm("conversations", "list", "--json", "--store", "json:imported").succeeded().out

    for row in json.loads(listed):
        done = cllm("More", "--conversation", row["id"], "--store", "json:imported", *model)
        assert "system prompt" not in done.succeeded().err


def test_export_needs_one_way_to_choose(cllm: Cllm) -> None:
    for words in ((), ("a", "--all"), ("--all",), ("a", "b", "--format", "html")):
        done = cllm("conversations", "export", *words)
        assert done.code == 2
        assert len(done.warnings) == 1


def test_ctrl_c_leaves_whole_conversations(cllm: Cllm, home: Home) -> None:
    nodes = (chatgpt_node("a", None, "user", "x" * 1000), chatgpt_node("b", "a", "assistant", "y"))
    many = [chatgpt_conversation(str(number), *nodes) for number in range(MANY)]
    source = write_zip(home.work / "a.zip", {"conversations.json": many})
    running = cllm.start("conversations", "import", str(source))
    assert wait_until(lambda: len(list(home.conversations.glob("*.json"))) >= 5)
    running.signal(signal.SIGINT)
    done = running.finish()
    assert done.code == 130
    assert "Imported" in done.out
    files = list(home.conversations.glob("*.json"))
    assert 5 <= len(files) < MANY
    assert all(len(json.loads(path.read_bytes())["messages"]) == 2 for path in files)
    report = json.loads(cllm("conversations", "import", str(source), "--json").succeeded().out)
    assert report["conversations"]["unchanged"] == len(files)


def test_a_killed_import_is_completed_by_the_next(cllm: Cllm, home: Home) -> None:
    many = [{**chatgpt_cats(), "id": str(n), "conversation_id": str(n)} for n in range(80)]
    source = str(write_zip(home.work / "a.zip", {"conversations.json": many}))
    running = cllm.start("conversations", "import", source)
    while len(list(home.conversations.glob("*.json"))) < 10:
        assert running.process.poll() is None
    running.signal(signal.SIGKILL)
    running.finish()
    partial = len(list(home.conversations.glob("*.json")))
    assert partial < 160
    report = json.loads(cllm("conversations", "import", source, "--json").succeeded().out)
    assert report["conversations"]["unchanged"] == partial
    other = f"json:{home.work / 'other'}"
    cllm("conversations", "import", source, "--store", other).succeeded()
    for store, folder in ((f"json:{home.conversations}", "first"), (other, "second")):
        export = ("conversations", "export", "--all", "--store", store)
        cllm(*export, "-o", str(home.work / folder)).succeeded()
    assert home.snapshot(home.work / "first") == home.snapshot(home.work / "second")


@every_store
def test_conversations_move_between_stores(
    cllm: Cllm, store_url: str, home: Home, tmp_path: Path
) -> None:
    write_claude_code(home.work / "projects")
    write_codex(home.work / "sessions")
    (home.work / "chats.json").write_text(json.dumps([open_webui_chat()]), encoding="utf-8")
    sources = ("projects", "sessions", "chats.json")
    assert import_into(cllm, store_url, *sources)["conversations"]["imported"] == 4
    other = f"sqlite:{tmp_path / 'other.db'}"
    move = ("conversations", "move", "--all", "--store")
    assert cllm(*move, store_url, "--to", other).succeeded().out == (
        "Moved 6 conversations; 0 failed.\n"
    )
    assert cllm("verify", "--store", store_url).succeeded().out.startswith("Checked 0 ")
    assert cllm("verify", "--store", other).succeeded().out.startswith("Checked 6 ")
    cllm(*move, other, "--to", store_url, "--copy").succeeded()
    assert cllm("verify", "--store", store_url).succeeded().out.startswith("Checked 6 ")
    new = tmp_path / "new.db"
    for target in (other, f"sqlite:{new}"):
        missing = cllm("conversations", "move", "nope", "--to", target, "--store", store_url)
        missing.failed_with_one_sentence("nope")
    assert not new.exists()
    same = cllm(*move, store_url, "--to", store_url)
    same.failed_with_one_sentence("this store already")
    assert cllm("verify", "--store", store_url).succeeded().out.startswith("Checked 6 ")

"""`cllm backup`, `restore` and `verify`, with every store."""

import json
import shutil
from pathlib import Path

import pytest
from tests.command import Cllm
from tests.home import Home
from tests.import_sources import write_chatgpt, write_claude

every_store = pytest.mark.parametrize("store_url", ["json", "sqlite", "postgresql"], indirect=True)


@every_store
def test_a_backup_is_restored_and_verified(
    cllm: Cllm, store_url: str, home: Home, tmp_path: Path
) -> None:
    for source in (write_chatgpt(tmp_path / "a.zip"), write_claude(tmp_path / "b.zip")):
        cllm("conversations", "import", str(source), "--store", store_url)
    saved = cllm("backup", "saved.zip", "--store", store_url).succeeded()
    assert saved.out == "Saved 5 conversations with 22 messages to saved.zip.\n"
    cllm("backup", "saved.zip", "--store", store_url).failed_with_one_sentence("--force")
    assert "all complete" in cllm("verify", "--store", store_url).succeeded().out
    assert "all complete" in cllm("verify", "saved.zip").succeeded().out
    for target in ("json:new", "sqlite:new.db"):
        cllm("restore", "saved.zip", "--store", target).succeeded()
        again = cllm("restore", "saved.zip", "--store", target).succeeded()
        assert "Restored 0 conversations with 0 messages; 5 existed" in again.out
        cllm("verify", "--store", target).succeeded()
        cllm("backup", f"{target[0]}.zip", "--store", target).succeeded()
    names = ("saved", "j", "s")
    for name in names:
        shutil.unpack_archive(home.work / f"{name}.zip", home.work / name)
    unpacked = [home.snapshot(home.work / name / "conversations") for name in names]
    assert unpacked[0] == unpacked[1] == unpacked[2]
    cllm("restore", "saved.zip", "--store", store_url).succeeded()


def test_damage_is_named(cllm: Cllm, home: Home) -> None:
    home.write_old_conversation("cats", ("user", "Hello"), ("assistant", "Hi"))
    cllm("backup", "saved.zip").succeeded()
    assert "cllm verify" in cllm("doctor").out
    home.file("cats").write_text("{", encoding="utf-8")
    verified = cllm("verify")
    assert verified.code == 1
    assert len(verified.warnings) == 1
    assert "cats.json" in verified.err
    assert json.loads(cllm("verify", "--json").out)["ok"] is False
    data = (home.work / "saved.zip").read_bytes()
    (home.work / "cut.zip").write_bytes(data[: len(data) // 2])
    cllm("verify", "cut.zip").failed_with_one_sentence("not a readable backup")
    cllm("restore", "cut.zip", "--store", "json:new").failed_with_one_sentence("not a readable")


def test_a_store_with_other_conversations_needs_an_option(cllm: Cllm, home: Home) -> None:
    home.write_old_conversation("cats", ("user", "Hello"), ("assistant", "Hi"))
    cllm("backup", "saved.zip").succeeded()
    home.file("cats").rename(home.file("dogs"))
    home.write_old_conversation("dogs", ("user", "Hello"), ("assistant", "Hi"))
    cllm("restore", "saved.zip").failed_with_one_sentence("'dogs'", "--merge")
    cllm("restore", "saved.zip", "--merge").succeeded()
    assert home.file("cats").exists()

"""`cllm conversations migrate`: old files get the system prompt that new ones have, on request."""

import json

import pytest

PROMPT = "You are a vet."
MIGRATE = ("conversations", "migrate", "--add-system-prompt")
SAID = [("user", "Hello"), ("assistant", "Hi.")]


@pytest.fixture
def configured(settings):
    return settings(default_system_message=PROMPT)


def test_an_old_file_gets_the_configured_prompt_as_its_first_message(
    home, provider, configured, cllm
):
    home.write_old_conversation("old", *SAID)

    done = cllm(*MIGRATE).succeeded()

    assert home.messages("old") == [("system", PROMPT), *SAID]
    record = home.load("old")["metadata"]["system"]
    assert record == {"policy": "captured", "source": "Cllmfile.yml: default_system_message"}
    assert "old: received" in done.out
    assert "1 of 1 conversation received" in done.out
    assert provider.requests == []


def test_the_next_turn_uses_the_stored_prompt(home, provider, configured, settings, cllm):
    home.write_old_conversation("old", *SAID)
    cllm(*MIGRATE).succeeded()
    settings(default_system_message="You are a pirate.")

    result = cllm("And now?", "--conversation", "old").succeeded()

    assert "differs" in result.err
    sent = [(m["role"], m["content"]) for m in provider.requests[0].json["messages"]]
    assert sent == [("system", PROMPT), *SAID, ("user", "And now?")]


def test_nothing_else_in_the_file_changes(home, configured, cllm, mode):
    odd = '{"role": "user", "content": "caf\\u00e9 1", "mine": {"b": 1.50, "a": 2}}'
    written = (
        '{"id": "old", "model": "openai/gpt-test", "messages": [' + odd + "],"
        '"created_at": "2025-10-31T12:00:00.000001Z", "updated_at": "2025-10-31T12:00:15.000002Z",'
        '"metadata": {"total_tokens": 150, "tags": ["x"], "big": 1.0e2}, "theirs": [1, 2.50]}'
    )
    home.write_conversation("old", written.encode())

    cllm(*MIGRATE).succeeded()

    before, after = json.loads(written), home.load("old")
    after["metadata"].pop("cllm")
    after["metadata"].pop("system")
    assert after.pop("messages")[1:] == before.pop("messages")
    assert after == before
    text = home.file("old").read_text(encoding="utf-8")
    for spelling in ("caf\\u00e9 1", "1.50", "1.0e2", "2.50"):
        assert spelling in text
    assert mode(home.file("old")) == 0o600


def test_a_dry_run_lists_and_changes_nothing(home, configured, cllm):
    home.write_old_conversation("old", *SAID)
    home.write_old_conversation("older", *SAID)
    before = home.snapshot()

    done = cllm(*MIGRATE, "--dry-run").succeeded()

    assert "old: would receive" in done.out
    assert "older: would receive" in done.out
    assert "2 of 2 conversations would receive" in done.out
    assert home.snapshot() == before


def test_a_second_run_finds_nothing_to_do(home, configured, cllm):
    home.write_old_conversation("old", *SAID)
    cllm(*MIGRATE).succeeded()
    before = home.snapshot()

    assert "0 of 1 conversation received" in cllm(*MIGRATE).succeeded().out
    assert home.snapshot() == before


@pytest.mark.parametrize(
    ("messages", "metadata"),
    [
        ([("system", "Mine."), *SAID], {}),
        ([*SAID, ("system", "From now on be brief."), ("user", "Yes?")], {}),
        (SAID, {"system": {"policy": "captured", "source": "none"}}),
        (SAID, {"system": {"policy": "dynamic"}}),
        (SAID, {"system": {"policy": "pinned"}}),
        ([], {}),
    ],
    ids=["a prompt", "a prompt further on", "captured none", "dynamic", "pinned", "empty"],
)
def test_conversations_that_are_not_old_do_not_change(messages, metadata, home, configured, cllm):
    before = home.write_old_conversation("other", *messages, metadata=metadata)

    cllm(*MIGRATE).succeeded()

    assert home.file("other").read_bytes() == before


def test_archived_conversations_are_migrated_too(home, configured, cllm):
    archived = {"cllm": {"version": 1, "archived_at": "2025-11-01T00:00:00Z"}}
    home.write_old_conversation("old", *SAID, metadata=archived)

    cllm(*MIGRATE).succeeded()

    assert home.messages("old")[0] == ("system", PROMPT)
    assert home.load("old")["metadata"]["cllm"]["archived_at"].startswith("2025-11-01")


def test_broken_files_are_reported_and_not_changed(home, configured, cllm):
    home.write_old_conversation("old", *SAID)
    broken = home.write_conversation("broken", b"{not json")
    foreign = home.write_conversation("foreign", {"something": "else"})

    done = cllm(*MIGRATE).succeeded()

    assert "broken.json" in done.err
    assert "foreign.json" in done.err
    assert home.file("broken").read_bytes() == broken
    assert home.file("foreign").read_bytes() == foreign
    assert home.messages("old")[0] == ("system", PROMPT)


def test_a_link_is_not_followed_and_the_others_are_migrated(home, configured, cllm, tmp_path):
    home.write_old_conversation("old", *SAID)
    elsewhere = tmp_path / "elsewhere.json"
    data = home.write_old_conversation("link", *SAID)
    elsewhere.write_bytes(data)
    home.file("link").unlink()
    home.file("link").symlink_to(elsewhere)

    dry = cllm(*MIGRATE, "--dry-run")
    done = cllm(*MIGRATE)

    for result in (dry, done):
        assert result.code == 1, result.report()
        assert "symbolic link" in result.err
        assert "1 of 2 conversations" in result.out
    assert elsewhere.read_bytes() == data
    assert home.messages("old")[0] == ("system", PROMPT)


def test_a_missing_configured_prompt_is_reported(home, settings, cllm):
    before = home.write_old_conversation("old", *SAID)

    cllm(*MIGRATE).failed_with_one_sentence("default_system_message")

    assert home.file("old").read_bytes() == before


def test_the_migration_must_be_named(configured, cllm):
    cllm("conversations", "migrate").failed_with_one_sentence("--add-system-prompt", code=2)


def test_a_conversation_with_a_running_turn_is_skipped_and_reported(
    home, provider, configured, cllm
):
    home.write_old_conversation("busy", *SAID)
    home.write_old_conversation("old", *SAID)
    gate = provider.queue_held_reply("Slow", " answer", at=1)
    asking = cllm.start("And now?", "--conversation", "busy")
    asking.wait_for_output("Slow")
    before = home.file("busy").read_bytes()

    done = cllm(*MIGRATE)

    assert done.code == 1, done.report()
    assert "busy" in done.err
    assert home.file("busy").read_bytes() == before
    assert home.messages("old")[0] == ("system", PROMPT)
    gate.open()
    assert asking.finish().code == 0


def test_an_empty_folder_creates_nothing(home, configured, cllm):
    before = home.entries()

    assert "0 of 0 conversations" in cllm(*MIGRATE).succeeded().out
    assert home.entries() == before

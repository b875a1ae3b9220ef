"""Conversation files: where they are, what is in them, and whose they are."""

import json
import re

import pytest

TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")
HELLO = [("user", "Hello"), ("assistant", "Hi.")]
INVALID_IDS = ["../../x", "a/b", "..", ".hidden", "a.json", "x\ny", "ünï"]


def test_a_file_has_the_format_that_other_tools_read(home, provider, settings, cllm, mode):
    settings(default_system_message="Short, please.")
    provider.queue_reply("Hi.", usage=(11, 7))

    cllm("Hello", "--conversation", "demo").succeeded()

    data = home.load("demo")
    text = home.file("demo").read_text(encoding="utf-8").removesuffix("\n")
    assert list(data) == ["id", "model", "messages", "created_at", "updated_at", "metadata"]
    assert data["id"] == "demo"
    assert data["model"] == "openai/gpt-test"
    assert data["messages"] == [
        {"role": "system", "content": "Short, please."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi."},
    ]
    assert text == json.dumps(data, indent=2, ensure_ascii=False)
    assert TIMESTAMP.fullmatch(data["created_at"])
    assert TIMESTAMP.fullmatch(data["updated_at"])
    assert data["metadata"]["total_tokens"] == 18
    assert mode(home.file("demo")) == 0o600


def test_a_new_conversation_records_that_its_context_was_captured(home, settings, cllm):
    cllm("Hello", "--conversation", "demo").succeeded()

    record = home.load("demo")["metadata"]["context"]

    assert TIMESTAMP.fullmatch(record["executed_at"])
    assert record["commands"] == []


def test_the_tokens_of_all_turns_are_added_up(home, provider, settings, cllm):
    provider.queue_reply("One.", usage=(11, 7))
    provider.queue_reply("Two.", usage=(30, 2))

    cllm("Hello", "--conversation", "demo").succeeded()
    cllm("Again", "--conversation", "demo").succeeded()

    assert home.load("demo")["metadata"]["total_tokens"] == 50


@pytest.mark.parametrize("flags", [(), ("--no-stream",)], ids=["streamed", "whole"])
def test_tokens_that_were_not_reported_are_estimated(flags, home, provider, settings, cllm):
    provider.queue_reply("Some words that answer.", usage=None)

    cllm("Some words that ask", "--conversation", "demo", *flags).succeeded()

    assert home.load("demo")["metadata"]["total_tokens"] > 0


def test_every_turn_is_recorded_under_our_own_key(home, settings, cllm):
    cllm("Hello", "--conversation", "demo").succeeded()
    cllm("Again", "--conversation", "demo").succeeded()

    assert home.turn_states("demo") == ["complete", "complete"]


def test_the_mode_of_a_file_stays_private_after_a_second_turn(home, settings, cllm, mode):
    home.write_old_conversation("demo", *HELLO)
    home.file("demo").chmod(0o644)

    cllm("Again", "--conversation", "demo").succeeded()

    assert mode(home.file("demo")) == 0o600


def test_files_go_to_the_home_when_the_work_folder_has_none_of_ours(home, settings, cllm):
    cllm("Hello", "--conversation", "demo").succeeded()

    assert home.file("demo").is_file()
    assert list(home.work.iterdir()) == []


def test_files_go_to_the_work_folder_when_it_has_conversations(home, settings, cllm):
    (home.work / ".cllm/conversations").mkdir(parents=True)

    cllm("Hello", "--conversation", "demo").succeeded()

    assert (home.work / ".cllm/conversations/demo.json").is_file()
    assert not home.file("demo").exists()


def test_the_folder_is_chosen_by_flag_then_environment_then_settings(home, settings, cllm):
    settings(conversations_path=str(home.path / "by-settings"))
    (home.work / ".cllm/conversations").mkdir(parents=True)
    environment = {"CLLM_CONVERSATIONS_PATH": str(home.path / "by-environment")}

    cllm("Hello", "--conversation", "demo").succeeded()
    cllm("Hello", "--conversation", "demo", env=environment).succeeded()
    flag = ("--conversations-path", str(home.path / "by-flag"))
    cllm("Hello", "--conversation", "demo", *flag, env=environment).succeeded()

    for folder in ("by-settings", "by-environment", "by-flag"):
        loaded = json.loads((home.path / folder / "demo.json").read_bytes())
        assert len(loaded["messages"]) == 2, folder
    assert list((home.work / ".cllm/conversations").iterdir()) == []


def test_an_explicit_cllm_folder_has_settings_and_conversations(home, provider, settings, cllm):
    settings(default_system_message="From home.")
    settings(folder=home.path / "mine", default_system_message="From mine.")
    settings(folder=home.path / "ours", default_system_message="From ours.")
    environment = {"CLLM_PATH": str(home.path / "mine")}

    cllm("Hello", "--conversation", "demo", env=environment).succeeded()
    flag = ("--cllm-path", str(home.path / "ours"))
    cllm("Hello", "--conversation", "demo", *flag, env=environment).succeeded()

    assert (home.path / "mine/conversations/demo.json").is_file()
    assert (home.path / "ours/conversations/demo.json").is_file()
    assert [request.message_pairs[0] for request in provider.requests] == [
        ("system", "From mine."),
        ("system", "From ours."),
    ]


def test_with_an_explicit_cllm_folder_no_other_settings_are_read(home, provider, settings, cllm):
    settings(folder=home.path / "mine", default_system_message="From mine.")
    settings(folder=home.work, default_system_message="From here.")

    cllm("Hello", "--cllm-path", str(home.path / "mine")).succeeded()

    assert provider.requests[0].message_pairs[0] == ("system", "From mine.")


@pytest.mark.parametrize("way", ["flag", "variable"])
@pytest.mark.parametrize(
    ("name", "problem"), [("typo", "does not exist"), ("a-file", "is not a folder")]
)
def test_an_explicit_cllm_folder_must_be_a_folder(home, settings, cllm, way, name, problem):
    (home.path / "a-file").write_text("x", encoding="utf-8")
    path = str(home.path / name)
    before = home.snapshot()

    if way == "flag":
        result = cllm("Hello", "--conversation", "demo", "--cllm-path", path)
    else:
        result = cllm("Hello", "--conversation", "demo", env={"CLLM_PATH": path})

    result.failed_with_one_sentence(path, problem)
    assert home.snapshot() == before


def test_a_shown_message_has_the_number_that_a_branch_needs(home, settings, cllm):
    home.write_old_conversation("demo", ("system", "Talk."), *HELLO, ("user", "More"))

    shown = cllm("conversations", "show", "demo").succeeded()
    number = next(line.split()[0] for line in shown.out.splitlines() if "[assistant]" in line)
    cllm("conversations", "branch", "demo", "--at", number, "--to", "copy").succeeded()

    assert home.messages("copy")[-1] == HELLO[-1]


def test_unknown_keys_survive_a_save(home, settings, cllm):
    home.write_old_conversation(
        "demo", *HELLO, written_by={"tool": "other", "n": [1, None]}, pinned=True
    )
    data = home.load("demo")
    data["metadata"]["note"] = "mine"
    data["messages"][0]["name"] = "ada"
    home.write_conversation("demo", data)

    cllm("Again", "--conversation", "demo").succeeded()

    saved = home.load("demo")
    assert saved["written_by"] == {"tool": "other", "n": [1, None]}
    assert saved["pinned"] is True
    assert saved["metadata"]["note"] == "mine"
    assert saved["messages"][0] == {"role": "user", "content": "Hello", "name": "ada"}
    assert len(saved["messages"]) == 4


@pytest.mark.parametrize(
    "stamp", ["2025-10-31T12:00:00Z", "2025-10-31T12:00:00.123456Z", "2025-10-31T12:00:00.5+00:00"]
)
def test_timestamps_of_older_files_are_read(stamp, home, settings, cllm):
    home.write_old_conversation("demo", *HELLO, created_at=stamp, updated_at=stamp)

    cllm("Again", "--conversation", "demo").succeeded()

    saved = home.load("demo")
    assert len(saved["messages"]) == 4
    assert saved["created_at"].startswith("2025-10-31T12:00:00")
    assert saved["updated_at"] > "2026"


def test_a_manual_edit_is_sent_with_the_next_turn(home, provider, settings, cllm):
    provider.queue_reply("My name is Bob.")
    cllm("Who are you?", "--conversation", "demo").succeeded()
    edited = home.load("demo")
    edited["messages"][0]["content"] = "Who am I?"
    edited["messages"][1]["content"] = "You are Ada."
    home.write_conversation("demo", edited)

    cllm("Really?", "--conversation", "demo").succeeded()

    expected = [("user", "Who am I?"), ("assistant", "You are Ada."), ("user", "Really?")]
    assert provider.requests[1].message_pairs == expected
    assert home.messages("demo")[:3] == expected


def test_messages_taken_out_by_hand_stay_out(home, provider, settings, cllm):
    for number in range(3):
        cllm(f"Question {number}", "--conversation", "demo").succeeded()
    edited = home.load("demo")
    del edited["messages"][2:4]
    home.write_conversation("demo", edited)

    cllm("And now?", "--conversation", "demo").succeeded()

    assert [content for role, content in provider.requests[3].message_pairs if role == "user"] == [
        "Question 0",
        "Question 2",
        "And now?",
    ]
    assert len(home.messages("demo")) == 6


def test_broken_and_foreign_files_are_skipped_in_the_list_with_a_warning(home, settings, cllm):
    home.write_old_conversation("good", *HELLO)
    kept = {
        "torn": home.write_conversation("torn", b'{"id": "torn", "messages": [{"role": '),
        "list": home.write_conversation("list", [1, 2, 3]),
        "alien": home.write_conversation("alien", {"hello": "world"}),
        "bytes": home.write_conversation("bytes", b"\xff\xfe\x00garbage"),
        "empty": home.write_conversation("empty", b""),
    }

    result = cllm("--list-conversations").succeeded()

    assert "good" in result.out
    for name, data in kept.items():
        assert name not in result.out
        assert sum(f"{name}.json" in line for line in result.warnings) == 1, result.report()
        assert home.file(name).read_bytes() == data
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b'{"id": "demo", "messages": [{"role": ', id="torn"),
        pytest.param(b"", id="empty"),
        pytest.param(b"[1, 2, 3]", id="not an object"),
        pytest.param(b'{"hello": "world"}', id="another tool's"),
        pytest.param(b"\xff\xfe\x00", id="not text"),
        pytest.param(b'{"id": "demo", "messages": "none"}', id="messages are text"),
        pytest.param(b'{"id": "demo", "messages": [1]}', id="a message is a number"),
    ],
)
def test_a_broken_file_is_never_overwritten(content, home, provider, settings, cllm):
    home.write_conversation("demo", content)
    before = home.snapshot()

    asked = cllm("Hello", "--conversation", "demo")
    shown = cllm("--show-conversation", "demo")

    asked.failed_with_one_sentence("demo.json")
    shown.failed_with_one_sentence("demo.json")
    assert home.snapshot() == before
    assert provider.requests == []


@pytest.mark.parametrize("flag", ["--show-conversation", "--delete-conversation"])
@pytest.mark.parametrize("ref", INVALID_IDS)
def test_an_invalid_id_is_refused_before_any_path_is_built(ref, flag, home, settings, cllm):
    home.write_old_conversation("demo", *HELLO)
    outside = home.path / "x.json"
    outside.write_bytes(home.file("demo").read_bytes())
    before = home.snapshot()

    cllm(flag, ref).failed_with_one_sentence()

    assert home.snapshot() == before


@pytest.mark.parametrize("flag", ["--show-conversation", "--delete-conversation"])
def test_an_empty_id_is_refused_as_one(flag, home, settings, cllm):
    cllm(flag, "").failed_with_one_sentence("conversation")


@pytest.mark.parametrize("ref", ["../../x", "a/b", "a.json"])
def test_an_invalid_id_with_a_prompt_is_refused(ref, home, provider, settings, cllm):
    before = home.snapshot()

    result = cllm("Hello", "--conversation", ref)

    result.failed_with_one_sentence(ref)
    assert home.snapshot() == before
    assert provider.requests == []


def test_an_argument_that_is_not_an_id_is_the_prompt(home, provider, settings, cllm):
    result = cllm("--conversation", "What is a cat?").succeeded()

    (created,) = home.conversations.glob("*.json")
    assert created.stem in result.err
    assert home.messages(created.stem)[0] == ("user", "What is a cat?")
    assert provider.requests[0].message_pairs == [("user", "What is a cat?")]
    assert result.out == "echo: What is a cat?\n"


def test_an_automatic_id_is_made_and_printed_on_stderr(home, provider, settings, cllm):
    first = cllm("Hello", "--conversation").succeeded()
    (created,) = home.conversations.glob("*.json")
    cllm("Hello", "--conversation").succeeded()

    assert re.fullmatch(r"[A-Za-z0-9_-]+", created.stem)
    assert created.stem in first.err
    assert created.stem not in first.out
    assert home.load(created.stem)["id"] == created.stem
    assert len(list(home.conversations.glob("*.json"))) == 2

    cllm("Again", "--conversation", created.stem).succeeded()

    assert len(provider.requests[2].message_pairs) == 3


def test_the_id_before_the_prompt_is_the_id(home, provider, settings, cllm):
    cllm("--conversation", "demo", "Hello").succeeded()

    assert home.messages("demo")[0] == ("user", "Hello")


def test_an_id_with_a_prompt_from_standard_input(home, provider, settings, cllm):
    cllm("--conversation", "demo", stdin=b"Hello from a pipe").succeeded()

    assert home.messages("demo")[0] == ("user", "Hello from a pipe")


@pytest.mark.parametrize("store", ["json", "sqlite"])
def test_the_model_flag_switches_the_model_from_that_turn_on(home, provider, settings, cllm, store):
    demo: tuple[str, ...] = ("--conversation", "demo")
    if store == "sqlite":
        demo += ("--store", f"sqlite:{home.path / 'chats.db'}")

    cllm("One", *demo).succeeded()
    second = cllm("Two", *demo, "-m", "openai/gpt-other").succeeded()
    cllm("Three", *demo).succeeded()

    assert second.err == ""
    models = [request.json["model"] for request in provider.requests]
    assert models == ["gpt-test", "gpt-other", "gpt-other"]
    if store == "json":
        turns = home.load("demo")["metadata"]["cllm"]["turns"]
        assert [turn["model"].rpartition("/")[2] for turn in turns] == models
        assert home.load("demo")["model"] == "openai/gpt-other"


@pytest.mark.parametrize("flag", ["--read-only", "--raw"])
def test_a_turn_that_is_not_saved_does_not_switch_the_model(home, provider, settings, cllm, flag):
    home.write_old_conversation("demo", *HELLO)

    cllm("Again", "--conversation", "demo", "-m", "openai/gpt-other", flag).succeeded()

    assert provider.requests[0].json["model"] == "gpt-other"
    assert home.load("demo")["model"] == "openai/gpt-test"


@pytest.mark.parametrize("model", ["gemini/gemini-pro", "nobody/gpt"])
def test_a_conversation_of_an_unknown_provider_continues_with_another_model(
    home, provider, settings, cllm, model
):
    home.write_old_conversation("demo", *HELLO, model=model)

    cllm("Again", "--conversation", "demo", "-m", "openai/gpt-test").succeeded()
    cllm("More", "--conversation", "demo").succeeded()

    assert [request.json["model"] for request in provider.requests] == ["gpt-test"] * 2


def test_the_fixed_model_is_not_mentioned_unless_the_user_named_another_one(
    home, provider, settings, cllm
):
    home.write_old_conversation("demo", *HELLO)
    settings(model="openai/gpt-other")

    unnamed = cllm("Again", "--conversation", "demo").succeeded()
    named = cllm("Again", "--conversation", "demo", "-m", "openai/gpt-test").succeeded()

    assert unnamed.err == named.err == ""
    assert [request.json["model"] for request in provider.requests] == ["gpt-test"] * 2
    assert home.load("demo")["model"] == "openai/gpt-test"


def test_read_only_sends_the_history_and_saves_nothing(home, provider, settings, cllm):
    home.write_old_conversation("demo", *HELLO)
    before = home.snapshot()
    provider.queue_reply("An aside.")

    result = cllm("Aside?", "--conversation", "demo", "--read-only").succeeded()

    assert result.out == "An aside.\n"
    assert provider.requests[0].message_pairs == [*HELLO, ("user", "Aside?")]
    assert home.snapshot() == before


def test_read_only_needs_a_conversation(home, provider, settings, cllm):
    result = cllm("Hello", "--read-only")

    result.failed_with_one_sentence("--conversation", code=2)
    assert provider.requests == []


def test_read_only_needs_a_conversation_that_exists(home, provider, settings, cllm):
    before = home.snapshot()

    cllm("Hello", "--conversation", "demo", "--read-only").failed_with_one_sentence("demo")

    assert home.snapshot() == before
    assert provider.requests == []


def test_raw_prints_the_providers_json_and_saves_nothing(home, provider, settings, cllm):
    home.write_old_conversation("demo", *HELLO)
    before = home.snapshot()
    provider.queue_reply("As it", " came: ä.")

    result = cllm("Again", "--conversation", "demo", "--raw").succeeded()

    printed = json.loads(result.out)
    assert printed["object"] == "chat.completion"
    assert printed["choices"][0]["message"]["content"] == "As it came: ä."
    assert printed["usage"]["total_tokens"] == 18
    assert home.snapshot() == before


def test_a_conversation_can_be_shown(home, settings, cllm):
    home.write_old_conversation(
        "demo", ("system", "Short."), ("user", "Hello there"), ("assistant", "Hi.")
    )
    before = home.snapshot()

    result = cllm("--show-conversation", "demo").succeeded()

    for text in ("Short.", "Hello there", "Hi."):
        assert text in result.out
    assert home.snapshot() == before


def test_a_conversation_can_be_deleted(home, settings, cllm):
    home.write_old_conversation("demo", *HELLO)
    home.write_old_conversation("other", *HELLO)

    cllm("--delete-conversation", "demo").succeeded()

    assert not home.file("demo").exists()
    assert home.file("other").exists()


@pytest.mark.parametrize("flag", ["--show-conversation", "--delete-conversation"])
def test_a_conversation_that_is_not_there_is_named(flag, home, settings, cllm):
    cllm(flag, "nowhere").failed_with_one_sentence("nowhere")


def test_the_list_names_every_conversation(home, settings, cllm):
    for name in ("one", "two", "three"):
        home.write_old_conversation(name, *HELLO)

    result = cllm("--list-conversations").succeeded()

    for name in ("one", "two", "three"):
        assert sum(name in line.split() for line in result.out.splitlines()) == 1, result.report()
    assert result.err == ""


def test_a_list_has_side_conversations_only_on_request(home, settings, cllm):
    for name, record in {
        "own": {},
        "main": {"source": "claude-code"},
        "side": {"source": "claude-code", "is_side": True},
    }.items():
        messages = [{"role": "user", "content": "Hello"}]
        content = {"id": name, "messages": messages, "metadata": {"cllm": record}}
        home.write_conversation(name, content)

    def listed(*options: str) -> set[str]:
        result = cllm("conversations", "list", *options).succeeded()
        return {line.split()[0] for line in result.out.splitlines()}

    assert listed() == {"own", "main"}
    assert listed("--side") == {"own", "main", "side"}
    assert listed("--source", "claude-code") == {"main"}
    assert listed("--source", "claude-code", "--side") == {"main", "side"}
    nothing = cllm("conversations", "list", "--source", "codex").succeeded()
    assert (nothing.out, nothing.err) == ("", "No conversation was recorded from 'codex'.\n")
    assert len(cllm("--list-conversations").succeeded().out.splitlines()) == 2
    assert "3 conversations" in cllm("conversations", "stats").succeeded().out

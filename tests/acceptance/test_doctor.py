"""`cllm doctor`: what is wrong is named with what to do, and nothing changes without --fix."""

import json
import os
import socket
import threading
import time
from typing import Any

import pytest
from tests.fake_provider import closed_port

SAID = [("user", "Hello"), ("assistant", "Hi.")]
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.fixture
def doctor(home, cllm):
    """Runs the doctor; the findings as (level, check, message), and the exit code."""

    def run(*flags, env=None):
        before = None if "--fix" in flags else (home.snapshot(), modes(home))
        done = cllm("doctor", "--json", *flags, env=env)
        assert done.err == "", done.report()
        if before is not None:
            assert (home.snapshot(), modes(home)) == before
        report = json.loads(done.out)
        assert done.code == (0 if report["ok"] else 1), done.report()
        return Findings(report["findings"])

    return run


def modes(home: Any) -> dict[str, int]:
    return {path: os.lstat(path).st_mode for path in home.entries()}


class Findings(list[dict[str, Any]]):
    def of(self, check, level):
        return [
            found["message"] for found in self if (found["check"], found["level"]) == (check, level)
        ]

    @property
    def problems(self):
        return [found["message"] for found in self if found["level"] == "problem"]

    @property
    def fixed(self):
        return [found["message"] for found in self if found["fixed"]]


@pytest.fixture
def in_order(settings, home):
    settings().chmod(0o600)
    home.conversations.mkdir(mode=0o700)


def test_where_all_is_in_order_it_ends_with_0_and_one_line_for_each_check(in_order, cllm):
    done = cllm("doctor").succeeded()

    lines = done.out.splitlines()
    assert all(line.startswith("ok ") for line in lines), done.report()
    for check in ("versions", "settings", "model", "key", "provider", "store", "conversations"):
        assert any(f" {check}: " in line for line in lines), check


def test_nothing_is_sent_to_the_provider_and_no_key_is_shown(in_order, provider, cllm, secret):
    done = cllm("doctor").succeeded()

    assert provider.requests == []
    assert secret not in done.out + done.err
    assert str(len(secret)) not in [word.strip(".,") for word in done.out.split()]


def test_an_empty_machine_is_in_order(home, doctor):
    found = doctor()

    assert found.problems == []
    assert "smollm2-135m" in found.of("model", "ok")[0]
    assert home.entries() == []


def test_a_missing_key_is_a_problem_that_names_the_variable(settings, doctor):
    settings(api_key=..., api_base=...)

    assert "OPENAI_API_KEY" in doctor().of("key", "problem")[0]


def test_a_provider_of_type_litellm_needs_no_key_of_openai(settings, doctor):
    settings(api_key=..., api_base=..., providers={"openai": {"type": "litellm"}})

    assert doctor().of("key", "problem") == []


def test_a_provider_that_does_not_answer_is_a_problem(settings, doctor):
    settings(api_base=f"http://127.0.0.1:{closed_port()}/v1")

    assert "is not reachable" in doctor().of("provider", "problem")[0]


def test_a_provider_that_speaks_no_tls_is_a_problem(settings, provider, doctor):
    settings(api_base=provider.url.replace("http:", "https:"))

    assert "is not reachable" in doctor().of("provider", "problem")[0]
    assert provider.requests == []


def test_only_a_connection_is_made(settings, doctor):
    with socket.create_server(("127.0.0.1", 0)) as server:
        received = []

        def serve():
            connection, _ = server.accept()
            with connection:
                received.append(connection.recv(1000))

        thread = threading.Thread(target=serve)
        thread.start()
        settings(api_base=f"http://127.0.0.1:{server.getsockname()[1]}/v1")
        assert doctor().problems == []
        thread.join(30)
    assert received == [b""]


def test_an_unknown_model_is_a_problem(settings, doctor):
    settings(model="opnai/gpt-test", api_base=..., api_key=...)

    assert "openai/gpt-test" in doctor().of("model", "problem")[0]


def test_bedrock_without_credentials_is_a_problem(settings, home, doctor, provider):
    settings(
        model="bedrock/anthropic.claude-sonnet-4-5-v1:0",
        api_base=...,
        api_key=...,
        providers={"bedrock": {"endpoint_url": provider.root}},
    )
    alone = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": str(home.path / "none")}

    assert "credentials" in doctor(env=alone).of("key", "problem")[0]
    with_key = doctor(env=alone | {"AWS_BEARER_TOKEN_BEDROCK": "x" * 20})
    assert with_key.problems == []


def test_a_broken_cllmfile_is_named_and_the_others_are_looked_at(settings, home, doctor):
    (home.work / "Cllmfile.yml").write_text("model: [", encoding="utf-8")

    found = doctor()

    assert "work/Cllmfile.yml, line" in found.of("settings", "problem")[0]
    assert ".cllm/Cllmfile.yml applies" in found.of("settings", "ok")[0]
    assert found.of("model", "ok")


def test_an_untrusted_cllmfile_is_named_and_has_no_effect(settings, home, doctor):
    text = "api_base: http://127.0.0.1:9/v1\nconversations_path: /nowhere\n"
    (home.work / "Cllmfile.yml").write_text(text, encoding="utf-8")

    found = doctor()

    assert "cllm trust" in found.of("settings", "problem")[0]
    assert len(found.problems) == 1
    assert not any("/nowhere" in message for message in found.of("store", "ok"))


def test_unknown_keys_are_warned_about(settings, doctor):
    settings(temprature=0.5, something_else=1)

    warned = doctor().of("settings", "warning")

    assert any("`temprature`" in line and "`temperature`" in line for line in warned)
    assert any("`something_else`" in line for line in warned)


def test_a_key_that_others_can_read_is_a_warning_and_repaired(settings, doctor, mode):
    path = settings()
    path.chmod(0o644)

    assert any("chmod 600" in line for line in doctor().of("settings", "warning"))
    assert any("Cllmfile.yml" in line for line in doctor("--fix").fixed)
    assert mode(path) == 0o600
    assert doctor("--fix").fixed == []


def test_a_variable_is_no_key_written_out(settings, doctor):
    settings(api_key="${MY_KEY}").chmod(0o644)

    assert doctor(env={"MY_KEY": "sk-1"}).of("settings", "warning") == []


def test_conversations_that_others_can_read_are_repaired(in_order, home, doctor, mode):
    home.write_old_conversation("a", *SAID)
    home.file("a").chmod(0o644)
    home.conversations.chmod(0o755)

    assert "a.json" in doctor().of("permissions", "warning")[0]
    assert len(doctor("--fix").fixed) == 2
    assert mode(home.file("a")) == 0o600
    assert mode(home.conversations) == 0o700
    assert doctor().of("permissions", "warning") == []


def test_mending_does_not_follow_links(in_order, home, doctor, mode, tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("{}", encoding="utf-8")
    outside.chmod(0o644)
    (home.conversations / "a.json").symlink_to(outside)

    doctor("--fix")

    assert mode(outside) == 0o644


def test_old_leftovers_are_removed_and_young_ones_are_not(in_order, home, doctor):
    old, young = home.conversations / ".a.json.tmp", home.conversations / ".b.json.tmp"
    for path in (old, young):
        path.write_text("half", encoding="utf-8")
        path.chmod(0o600)
    hours_ago = time.time() - 2 * 3600
    os.utime(old, (hours_ago, hours_ago))

    assert ".a.json.tmp" in doctor().of("leftovers", "warning")[0]
    assert doctor("--fix").fixed == ["removed .a.json.tmp."]
    assert not old.exists()
    assert young.exists()


def test_broken_and_foreign_files_are_named(in_order, home, doctor):
    home.write_conversation("broken", b"{")
    home.write_conversation("foreign", {"something": "else"})

    problems = doctor().of("conversations", "problem")

    assert any("broken.json" in line for line in problems)
    assert any("foreign.json" in line for line in problems)


def test_a_folder_that_is_a_file_is_a_problem(settings, home, doctor):
    home.conversations.write_text("", encoding="utf-8")

    assert "is not a folder" in doctor().of("store", "problem")[0]


def test_a_repairable_history_is_a_warning(in_order, home, doctor):
    call = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    messages = [{"role": "user", "content": "Hello"}, call]
    home.write_old_conversation("cut", messages=messages)
    home.write_old_conversation("fine", *SAID)

    found = doctor()

    assert "'cut' is repaired when it is sent" in found.of("conversations", "warning")[0]
    assert "1 of 2" in found.of("conversations", "ok")[0]


def test_a_history_is_sent_as_the_check_says(in_order, home, doctor, cllm, provider):
    """A result without the ID of its call, and a reply without content."""
    call = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    question = {"role": "user", "content": "Hello"}
    result = {"role": "tool", "content": "12"}
    home.write_old_conversation("result", messages=[question, call, result])
    empty = {"role": "assistant", "content": None}
    home.write_old_conversation("empty", messages=[question, empty])

    warned = doctor().of("conversations", "warning")
    cllm("And now?", "--conversation", "result").succeeded()
    cllm("And now?", "--conversation", "empty").succeeded()

    assert len(warned) == 1
    assert "'result' is repaired when it is sent" in warned[0]
    (first, second) = (request.messages for request in provider.requests)
    assert all("tool_call_id" in message for message in first if message["role"] == "tool")
    assert {"role": "user", "content": "12"} in first
    assert [message.get("content") for message in second] == ["Hello", "", "And now?"]


def test_an_unrepairable_history_is_a_problem(in_order, home, doctor):
    call = {"role": "user", "content": "Hello", "tool_calls": [CALL]}
    home.write_old_conversation("misplaced", messages=[call])

    assert "'misplaced' cannot be sent" in doctor().of("conversations", "problem")[0]


def test_each_history_is_checked_by_the_rules_of_its_model(in_order, home, doctor):
    blank = [("user", "Hello"), ("assistant", " ")]
    home.write_old_conversation("openai", *blank)
    home.write_old_conversation("claude", *blank, model="anthropic/claude-sonnet-4-5")

    warned = doctor().of("conversations", "warning")

    assert len(warned) == 1
    assert "'claude'" in warned[0]


def test_a_conversation_of_an_unknown_provider_is_a_warning(in_order, home, doctor):
    home.write_old_conversation("old", *SAID, model="nobody/knows")

    assert "'old' cannot be sent" in doctor().of("conversations", "warning")[0]


def test_a_turn_that_runs_no_more_is_a_warning(in_order, home, doctor):
    turn = {
        "id": "t1",
        "place": "t1",
        "state": "running",
        "started_at": "2026-01-01T00:00:00Z",
        "inline": [{"role": "user", "content": "Hello"}],
    }
    home.write_old_conversation("cut", metadata={"cllm": {"version": 1, "turns": [turn]}})

    assert any("interrupted" in line for line in doctor().of("conversations", "warning"))


def test_a_thousand_conversations_are_looked_at_in_seconds(in_order, home, doctor, cllm):
    for number in range(1000):
        home.write_old_conversation(f"c{number}", *(SAID * 5), model="anthropic/claude-sonnet-4-5")

    began = os.times()
    done = cllm("doctor")
    used = os.times()

    assert "1000 of 1000" in done.out
    spent = used.children_user + used.children_system
    assert spent - began.children_user - began.children_system < 3

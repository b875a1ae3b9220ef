"""Long conversations that are summarised: what is asked, sent, kept and undone."""

from typing import Any

import pytest
from tests.fake_provider import Request

LONG = "word " * 165
ASKED_FOR = b'{"role":"user","content":"Summarise our conversation'
WINDOW = {"strategy": "summarise", "max_tokens": 1000, "summary_tokens": 100}


@pytest.fixture(autouse=True)
def summarising(settings):
    settings(window=WINDOW, default_system_message="Be brief.", temperature=0.5)


def is_summary(request: Request) -> bool:
    return str(request.messages[-1]["content"]).startswith("Summarise our conversation")


def stored_summary(home) -> dict[str, Any] | None:
    found: dict[str, Any] | None = home.load("demo")["metadata"]["cllm"].get("summary")
    return found


@pytest.fixture
def answers(provider):
    """So many answers without a count, which serve for summaries as well."""

    def answers(count: int) -> None:
        for number in range(count):
            provider.queue_reply(f"Fine, {number}.", usage=None)

    return answers


@pytest.fixture
def talk(provider, cllm, answers):
    """Turns from the shell; each is a process of its own."""

    def talk(numbers):
        answers(2 * len(numbers))
        for number in numbers:
            cllm(f"Question {number}. {LONG}", "--conversation", "demo").succeeded()
        provider._answers.clear()
        return provider.requests

    return talk


def test_every_dropped_turn_was_in_a_summary_request(home, talk):
    requests = talk(range(12))

    summary = stored_summary(home)
    assert summary is not None
    messages = home.load("demo")["messages"][1:]
    assert len(messages) == 24
    covered = messages[: summary["through"]]
    asked = [message for request in requests if is_summary(request) for message in request.messages]
    assert len(covered) >= 12
    assert all(message in asked for message in covered)
    last = requests[-1].messages
    assert summary["text"] in last[1]["content"]
    assert last[3:] == [*messages[summary["through"] : -1]]


def test_a_summary_request_starts_with_the_bytes_of_the_last_prompt(talk):
    requests = talk(range(12))

    found = [number for number, request in enumerate(requests) if is_summary(request)]
    assert len(found) >= 2
    for number in found:
        asked, before = requests[number], requests[number - 1]
        shared = asked.body[asked.body.index(b'"messages":') : asked.body.index(ASKED_FOR)]
        assert shared.count(b'"role"') > 3
        assert before.body[before.body.index(b'"messages":') :].startswith(shared)
        assert asked.json["temperature"] == before.json["temperature"] == 0.5


def test_within_the_window_nothing_is_summarised(home, talk):
    requests = talk(range(2))

    assert not any(map(is_summary, requests))
    assert stored_summary(home) is None


def test_a_failed_summary_changes_nothing_on_disk_and_the_turn_continues(
    home, provider, cllm, talk
):
    asked = len(talk(range(5)))
    provider.queue_error(500, "Out of order.")
    provider.queue_reply("Fine.", usage=None)

    done = cllm(f"Question 5. {LONG * 2}", "--conversation", "demo").succeeded()

    assert [is_summary(request) for request in provider.requests[asked:]] == [True, False]
    assert "The summary failed and the conversation is unchanged." in done.err
    assert stored_summary(home) is None
    assert len(home.messages("demo")) == 13
    assert len(provider.requests[-1].messages) < 12


def test_a_kill_during_a_summary_does_not_change_the_file(home, provider, cllm, talk, answers):
    asked = len(talk(range(5)))
    before = home.file("demo").read_bytes()
    provider.queue_held_reply("Half a summary", " and the rest", at=1, usage=None)

    running = cllm.start(f"Question 5. {LONG * 2}", "--conversation", "demo")
    provider.wait_for(asked + 1)
    assert is_summary(provider.requests[-1])
    running.process.kill()
    running.finish()

    assert home.file("demo").read_bytes() == before
    answers(2)
    cllm(f"Question 5. {LONG * 2}", "--conversation", "demo").succeeded()
    assert stored_summary(home) is not None
    assert len(home.messages("demo")) == 13


def test_a_message_above_the_limit_is_refused_before_a_summary_is_requested(
    home, provider, cllm, talk
):
    talk(range(3))
    before, asked = home.file("demo").read_bytes(), len(provider.requests)

    result = cllm(LONG * 12, "--conversation", "demo")

    result.failed_with_one_sentence("tokens")
    assert len(provider.requests) == asked
    assert home.file("demo").read_bytes() == before


class TestInAChat:
    def test_compact_reports_usage_and_undo_restores(self, home, provider, cllm):
        provider.queue_reply("One.")
        provider.queue_reply("Two.")
        provider.queue_reply("Three.")
        provider.queue_reply("We counted.", usage=(120, 5))
        before = b"1\n2\n3\n"

        done = cllm("chat", "demo", stdin=before + b"/compact\n").succeeded()

        assert "Summarising 4 messages (request 1 of 1)" in done.err
        assert "2 turns summarised, up to message 4" in done.err
        assert "120 tokens sent, 5 received" in done.err
        summary = stored_summary(home)
        assert summary is not None
        assert (summary["text"], summary["through"]) == ("We counted.", 4)
        assert len(home.messages("demo")) == 7

        done = cllm("chat", "demo", stdin=b"4\n/tokens\n/compact undo\n5\n").succeeded()

        assert [said for _, said in provider.requests[4].message_pairs] == [
            "Be brief.",
            "Summary of the conversation until here:\n\nWe counted.",
            "Understood.",
            "3",
            "Three.",
            "4",
        ]
        assert "summary of the messages up to 4 (29 tokens): We counted." in done.out
        assert "from message 5; 4 not sent." in done.out
        assert "The summary was removed: messages 1 to 4 are sent again" in done.err
        assert stored_summary(home) is None
        assert len(provider.requests[5].messages) == 10

    def test_the_cost_of_a_summary_is_in_the_totals_of_the_chat(self, provider, cllm, settings):
        settings(
            window=WINDOW,
            providers={"openai": {"prices": {"gpt-test": {"input": 1.0, "output": 1.0}}}},
        )
        provider.queue_reply("One.", usage=(10, 0))
        provider.queue_reply("Two.", usage=(10, 0))
        provider.queue_reply("So far.", usage=(1000, 5))

        done = cllm("chat", "demo", stdin=b"1\n2\n/compact\n/stats\n")

        assert done.code == 0, done.report()
        assert "1,020" in done.out

    def test_a_failed_summary_is_one_sentence_and_changes_nothing(self, home, provider, cllm):
        cllm("chat", "demo", stdin=b"1\n2\n").succeeded()
        before = home.file("demo").read_bytes()
        provider.queue_error(500, "Out of order.")

        done = cllm("chat", "demo", stdin=b"/compact\n/compact undo\n/compact twice\n")

        assert done.code == 1
        assert done.err.count("Error: ") == 3
        assert home.file("demo").read_bytes() == before

    def test_pinned_turns_stay_and_can_be_seen_and_unpinned(self, home, provider, cllm):
        lines = b"1\n/pin\n2\n3\n/pin 3\n/pin 3\n/pin list\n/context\n4\n/unpin 2\n/tokens\n5\n"

        done = cllm("chat", "demo", "--max-turns", "1", stdin=lines).succeeded()

        assert "Message 2 is pinned: its turn is always sent." in done.err
        assert "Message 3 is already pinned." in done.err
        assert done.out.count("pinned: 2 assistant: echo: 1") == 2
        assert done.out.count("pinned: 3 user: 2") == 3
        assert [said for _, said in provider.requests[3].message_pairs[1:]] == [
            "1",
            "echo: 1",
            "2",
            "echo: 2",
            "3",
            "echo: 3",
            "4",
        ]
        assert provider.requests[4].message_pairs[1][1] == "2"
        assert home.load("demo")["metadata"]["cllm"]["pins"] == [3]

    @pytest.mark.parametrize("order", ["/pin 99", "/unpin 1", "/unpin", "/pin x", "/pin 0"])
    def test_an_invalid_pin_is_an_error(self, order, cllm):
        done = cllm("chat", "demo", stdin=f"1\n{order}\n2\n".encode())

        assert done.code == 1
        assert done.err.count("Error: ") == 1
        assert "echo: 2" in done.out

    def test_a_message_above_the_limit_is_refused_and_the_chat_continues(
        self, home, provider, cllm
    ):
        done = cllm("chat", "demo", stdin=f"1\n{LONG * 12}\n2\n".encode())

        assert done.code == 1
        assert "The messages need" in done.err
        assert len(provider.requests) == 2
        assert len(home.messages("demo")) == 5

    def test_old_turns_are_summarised_automatically(self, home, cllm, answers):
        answers(20)
        lines = "".join(f"Question {number}. {LONG}\n" for number in range(9))

        done = cllm("chat", "demo", stdin=lines.encode()).succeeded()

        assert "summarised to fit the context window" in done.err
        assert stored_summary(home) is not None
        assert len(home.messages("demo")) == 19

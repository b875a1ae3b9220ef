"""The window of a conversation on the command line: what is sent, what is kept, what is said."""

import pytest
from tests.fake_provider import Request

LONG = "word " * 300


@pytest.fixture
def talk(provider, settings, cllm):
    def talk(count: int, text: str = LONG, **keys):
        settings(**keys)
        results = []
        for number in range(count):
            provider.queue_reply(f"Answer {number}.", usage=None)
            results.append(cllm(f"Question {number}. {text}", "--conversation", "demo").succeeded())
        return results

    return talk


def first_words(request: Request) -> str:
    return str(request.message_pairs[0][1])[:11]


def test_by_turns_the_oldest_are_dropped_with_a_warning_and_stay_on_disk(provider, talk, cllm):
    results = talk(4, "", window={"strategy": "turns", "max_turns": 2})

    assert [first_words(request) for request in provider.requests] == [
        "Question 0.",
        "Question 0.",
        "Question 0.",
        "Question 1.",
    ]
    assert [len(result.warnings) for result in results] == [0, 0, 0, 1]
    assert "Trimmed old messages to fit context window" in results[3].err
    assert len(cllm.home.messages("demo")) == 8


def test_by_tokens_a_block_is_dropped_and_the_start_is_remembered(provider, talk, cllm):
    results = talk(8, window={"strategy": "blocks", "max_tokens": 1500})

    trimmed = [number for number, result in enumerate(results) if result.warnings]
    assert trimmed
    for number in range(1, 8):
        before, after = provider.requests[number - 1].messages, provider.requests[number].messages
        if number not in trimmed:
            assert after[: len(before)] == before
    assert len(cllm.home.messages("demo")) == 16


def test_the_system_prompt_is_never_dropped(provider, talk):
    talk(
        5,
        "",
        default_system_message="Be brief.",
        window={"strategy": "turns", "max_turns": 1},
    )

    assert [request.message_pairs[0] for request in provider.requests] == [
        ("system", "Be brief.")
    ] * 5


def test_a_message_above_the_limit_is_an_error_and_saves_nothing(provider, settings, cllm):
    settings(window={"max_tokens": 100})

    result = cllm(LONG, "--conversation", "demo")

    result.failed_with_one_sentence("100", "tokens")
    assert provider.requests == []
    assert not cllm.home.file("demo").exists()


@pytest.mark.parametrize(
    ("window", "word"),
    [
        ("all", "window"),
        ({"strategy": "magic"}, "strategy"),
        ({"max_turns": 3}, "max_turns"),
        ({"strategy": "turns", "max_turns": 0}, "max_turns"),
        ({"strategy": "turns", "max_turns": True}, "max_turns"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"summary_tokens": 5}, "summary_tokens"),
        ({"strategy": "summarise", "max_turns": 5}, "max_turns"),
        ({"strategy": "summarise", "summary_tokens": 0}, "summary_tokens"),
    ],
)
def test_an_invalid_window_setting_is_an_error(window, word, settings, cllm):
    settings(window=window)

    cllm("Hello").failed_with_one_sentence(word, "line", prefix="Configuration error: ")


def test_without_a_known_limit_everything_is_sent(provider, talk):
    talk(4, window={"strategy": "blocks", "max_tokens": "auto"})

    assert first_words(provider.requests[-1]) == "Question 0."
    assert len(provider.requests[-1].messages) == 7

"""`cllm conversations stats`: tokens, what the cache did, and money, as far as it is known."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.fake_cache import PromptCache
from tests.fake_provider import FakeProvider

PRICES = {"input": 4, "output": 8, "cache_read": 0.4, "cache_write": 5}
LONG = "All work and no play makes Jack a dull boy. " * 200


@pytest.fixture
def claude(settings: Callable[..., Any], provider: FakeProvider) -> Callable[..., str]:
    """Settings for a model of Anthropic's on the fake provider, which counts a cache."""
    provider.cache = PromptCache(minimum=1024)
    model = "claude-sonnet-4-5"

    def write(**options: Any) -> str:
        row = {"api_base": provider.root, "api_key": "sk-ant-0123456789", **options}
        settings(
            model=f"anthropic/{model}",
            default_system_message=LONG,
            providers={"anthropic": row},
        )
        return model

    return write


def stats(cllm: Callable[..., Any], *words: str) -> Any:
    return json.loads(cllm("conversations", "stats", *words, "--json").succeeded().out)


def talk(cllm: Callable[..., Any], *said: str, ref: str = "demo") -> None:
    for text in said:
        cllm(text, "--conversation", ref).succeeded()


def test_a_conversation_reads_its_prefix_from_the_cache_and_saves_money(claude, provider, cllm):
    model = claude()
    claude(prices={model: PRICES})
    talk(cllm, "One", "Two", "Three")

    found = stats(cllm, "demo")

    counted = provider.cache.counted
    read, written = sum(one.read for one in counted), sum(one.written for one in counted)
    assert read > 2 * counted[0].written > 0
    assert (found["tokens"]["cache_read"], found["tokens"]["cache_write"]) == (read, written)
    assert found["tokens"]["input"] == 0
    assert found["cache"]["hit_ratio"] == pytest.approx(read / (read + written))
    assert found["cache"]["missed"] == found["cache"]["expired"] == 0
    assert (found["conversation"], found["turns"], found["answers"]) == ("demo", 3, 3)
    saved = (read * (4 - 0.4) + written * (4 - 5)) / 1e6
    assert found["saved"]["dollars"] == pytest.approx(saved)
    output = found["tokens"]["output"]
    cost = (0.4 * read + 5 * written + 8 * output) / 1e6
    assert found["cost"] == {"dollars": pytest.approx(cost), "unknown_answers": 0}


def test_unknown_prices_are_unknown(claude, cllm):
    claude()
    talk(cllm, "One", "Two")

    found = stats(cllm, "demo")
    lines = cllm("conversations", "stats", "demo").succeeded().out.splitlines()

    assert found["cost"] == found["saved"] == {"dollars": None, "unknown_answers": 2}
    assert lines[0] == "Conversation demo: 2 turns"
    assert "  cost             unknown" in lines
    assert "  saved by cache   unknown" in lines


def test_tokens_sent_before_and_not_read_are_missed(claude, provider, cllm):
    model = claude()
    claude(prices={model: PRICES})
    talk(cllm, "One")
    before = provider.cache.counted[-1]
    provider.cache = PromptCache(minimum=1024)
    talk(cllm, "Two")

    found = stats(cllm, "demo")

    assert found["cache"]["missed"] == before.total
    assert found["lost"]["dollars"] == pytest.approx(before.total * (5 - 0.4) / 1e6)


def test_all_conversations_are_summed_and_shared_turns_of_branches_count_once(claude, cllm):
    model = claude()
    claude(prices={model: PRICES})
    talk(cllm, "One", "Two")
    cllm("conversations", "branch", "demo", "--to", "other").succeeded()
    talk(cllm, "Three", ref="other")

    found = stats(cllm)

    assert "conversation" not in found
    assert (found["conversations"], found["turns"]) == (2, 3)
    one, other = stats(cllm, "demo"), stats(cllm, "other")
    assert one["turns"] == 2
    assert other["turns"] == 3
    assert found["cost"]["dollars"] == pytest.approx(other["cost"]["dollars"])


def test_without_conversations_there_is_nothing_to_report(settings, cllm):
    settings()

    assert cllm("conversations", "stats").succeeded().out.startswith("0 conversations: 0 turns\n")


def test_a_conversation_that_does_not_exist_is_one_sentence(settings, cllm):
    settings()

    cllm("conversations", "stats", "nowhere").failed_with_one_sentence("nowhere")


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_counted(claude, home, cllm):
    claude()
    talk(cllm, "One")
    home.file("broken").write_text("{", encoding="utf-8")

    done = cllm("conversations", "stats").succeeded()

    assert done.out.startswith("1 conversation: 1 turn\n")
    assert "broken" in done.err


def test_the_chat_says_the_same(claude, cllm):
    claude()

    done = cllm("chat", "demo", stdin=b"One\nTwo\nstats\n").succeeded()

    shown = cllm("conversations", "stats", "demo").succeeded().out.splitlines()
    report = shown[1 : shown.index("")]
    assert all(line in (done.out + done.err).splitlines() for line in report)
    assert any(line.startswith("  read from cache  ") for line in shown)

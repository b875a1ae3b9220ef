"""Asking again: when, how often, and never after the first word."""

import time
from email.utils import formatdate

import pytest
from tests.fake_provider import Cut, closed_port


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize("flags", [("--stream",), ("--no-stream",)], ids=["stream", "whole"])
def test_a_failure_that_passes_is_asked_again(status, flags, provider, settings, cllm):
    settings(num_retries=2)
    provider.queue_error(status, retry_after="0")
    provider.queue_reply("At last.")

    result = cllm("Hello", "--conversation", "demo", *flags).succeeded()

    assert result.out == "At last.\n"
    assert len(provider.requests) == 2
    assert provider.requests[0].body == provider.requests[1].body
    assert provider.requests[1].message_pairs == [("user", "Hello")]
    assert cllm.home.messages("demo") == [("user", "Hello"), ("assistant", "At last.")]
    assert cllm.home.turn_states("demo") == ["complete"]


def test_retry_after_in_seconds_is_honoured(provider, settings, cllm):
    settings(num_retries=1)
    provider.queue_error(429, retry_after="2")

    cllm("Hello").succeeded()

    first, second = provider.requests
    assert second.received_at - first.received_at >= 1.9


def test_retry_after_as_a_date_is_honoured(provider, settings, cllm):
    settings(num_retries=1)
    provider.queue_error(429, retry_after=formatdate(time.time() + 4, usegmt=True))

    cllm("Hello").succeeded()

    first, second = provider.requests
    assert second.received_at - first.received_at >= 1.5


@pytest.mark.parametrize(
    "value", ["soon", "-5", "", "Thu, 01 Jan 1970 00:00:00 GMT", "0.01", "nan"]
)
def test_a_strange_retry_after_does_no_harm(value, provider, settings, cllm):
    settings(num_retries=1)
    provider.queue_error(429, retry_after=value)
    provider.queue_reply("At last.")

    assert cllm("Hello").succeeded().out == "At last.\n"


def test_a_connection_that_breaks_before_the_first_word_is_tried_again(provider, settings, cllm):
    settings(num_retries=1)
    provider.queue_steps(Cut())
    provider.queue_reply("At last.")

    assert cllm("Hello").succeeded().out == "At last.\n"
    assert len(provider.requests) == 2


def test_nothing_is_repeated_after_the_first_word(home, provider, settings, cllm):
    settings(num_retries=3)
    provider.queue_reply("Well, ", "it depends", stop_after=1)
    provider.queue_reply("A second answer.")

    result = cllm("Hello", "--conversation", "demo", "--stream")

    result.failed_with_one_sentence()
    assert len(provider.requests) == 1
    assert "second" not in result.out
    assert home.turn_states("demo") == ["failed"]


def test_with_no_retries_a_failure_is_final(provider, settings, cllm):
    settings(num_retries=0)
    provider.queue_error(429, retry_after="0")

    cllm("Hello").failed_with_one_sentence()

    assert len(provider.requests) == 1


def test_retries_come_to_an_end(home, provider, settings, cllm):
    settings(num_retries=2)
    for _ in range(5):
        provider.queue_error(503, retry_after="0")

    result = cllm("Hello", "--conversation", "demo")

    assert result.code == 1, result.report()
    assert result.warnings[-1].startswith("Error: ")
    assert len(provider.requests) == 3
    assert home.turn_states("demo") == ["failed"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_is_not_asked_again(status, provider, settings, cllm):
    settings(num_retries=3)
    provider.queue_error(status, retry_after="0")

    cllm("Hello").failed_with_one_sentence()

    assert len(provider.requests) == 1


def test_a_server_that_is_not_there_is_given_up(home, settings, cllm):
    settings(num_retries=1, api_base=f"http://127.0.0.1:{closed_port()}/v1")

    result = cllm("Hello", "--conversation", "demo")

    assert result.code == 1, result.report()
    assert result.warnings[-1].startswith("Error: ")
    assert "Traceback" not in result.err
    assert home.turn_states("demo") == ["failed"]


def test_without_the_setting_a_passing_failure_is_still_asked_again(provider, settings, cllm):
    settings(num_retries=...)
    provider.queue_error(503, retry_after="0")
    provider.queue_reply("At last.")

    assert cllm("Hello").succeeded().out == "At last.\n"

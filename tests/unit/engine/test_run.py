"""Coroutines from code that is not asynchronous."""

import asyncio

import pytest

from cllm.engine import run_coroutine, run_without_loop


async def answer() -> int:
    return 42


async def wait() -> int:
    await asyncio.sleep(0)
    return 42


async def fail() -> int:
    raise ZeroDivisionError


@pytest.mark.parametrize("coroutine", [answer, wait])
def test_a_coroutine_is_run_to_its_end(coroutine):
    assert run_coroutine(coroutine()) == 42


def test_one_that_never_waits_needs_no_event_loop():
    assert run_without_loop(answer()) == 42


@pytest.mark.parametrize("runner", [run_coroutine, run_without_loop])
def test_its_error_is_raised(runner):
    with pytest.raises(ZeroDivisionError):
        runner(fail())


def test_one_that_waits_is_refused_and_ended():
    ended = []

    async def waiting() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append(True)

    with pytest.raises(RuntimeError, match="use run"):
        run_without_loop(waiting())
    assert ended == [True]

"""Signals during the work of a chat."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from cllm.core.errors import UsageError
from cllm.repl.loop import Signals
from cllm.terminal import TerminationSignal

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in HANDLED}
    yield
    for number, action in before.items():
        signal.signal(number, action)


async def work_at_the_end(number: int) -> None:
    """The signal arrives at the end of the work, when nothing is left to cancel."""
    os.kill(os.getpid(), number)


async def work_with_a_failing_cleanup(number: int) -> None:
    os.kill(os.getpid(), number)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        raise UsageError("The cleanup failed.") from None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_the_chat_even_if_the_work_is_complete(number):
    with pytest.raises(TerminationSignal):
        await Signals(blocks=False).run_cancellable(work_at_the_end(number))


async def test_ctrl_c_stops_only_the_work():
    await Signals(blocks=False).run_cancellable(work_at_the_end(signal.SIGINT))


async def test_an_error_during_cleanup_is_raised():
    with pytest.raises(UsageError):
        await Signals(blocks=False).run_cancellable(work_with_a_failing_cleanup(signal.SIGINT))

"""A turn that is only recorded waits a short time for its store."""

import asyncio
from collections.abc import Callable
from datetime import datetime

import pytest
from tests.store_gates import wait_for_background
from tests.virtual_time import loop_clock

from cllm.core.errors import CllmError, StoreUnavailableError
from cllm.engine.optional_steps import OPTIONAL_SECONDS, OptionalSteps

__all__ = ["loop_clock"]

pytestmark = pytest.mark.usefixtures("loop_clock")
LoopClock = Callable[[], datetime]


class StepLog:
    """Steps, and the order in which they end."""

    def __init__(self) -> None:
        self.errors: list[CllmError] = []
        self.background: set[asyncio.Task[None]] = set()
        self.steps = OptionalSteps(self.errors.append, background=self.background)
        self.ended: list[str] = []
        self.late: list[str | None] = []
        self.gate = asyncio.Event()

    async def wait(self, name: str) -> str:
        await self.gate.wait()
        return await self.end(name)

    async def sleep(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return await self.end("sleep")

    async def end(self, name: str) -> str:
        self.ended.append(name)
        return name

    async def fail(self) -> str:
        await self.gate.wait()
        raise StoreUnavailableError("The disk is full.")

    async def when_late(self, result: str | None) -> None:
        self.late.append(result)

    async def open_gate(self) -> None:
        self.gate.set()
        await wait_for_background(self.background)


@pytest.fixture
def log() -> StepLog:
    return StepLog()


async def test_a_step_in_time_returns_its_result(log: StepLog) -> None:
    assert await log.steps.run(log.end("save"), when_late=log.when_late) == "save"
    assert not log.steps.is_late
    assert (log.errors, log.late, log.background) == ([], [], set())


async def test_an_error_in_time_is_reported(log: StepLog) -> None:
    log.gate.set()
    assert await log.steps.run(log.fail(), when_late=log.when_late) is None
    assert [str(error) for error in log.errors] == ["The disk is full."]
    assert not log.steps.is_late
    assert log.late == []


async def test_a_late_step_continues_in_the_background(log: StepLog) -> None:
    assert await log.steps.run(log.wait("save"), when_late=log.when_late) is None
    assert log.steps.is_late
    assert [type(error) for error in log.errors] == [StoreUnavailableError]
    assert log.ended == []

    await log.open_gate()
    assert log.ended == log.late == ["save"]


async def test_a_late_error_is_not_raised(log: StepLog) -> None:
    await log.steps.run(log.fail(), when_late=log.when_late)
    await log.open_gate()
    assert log.late == [None]
    assert len(log.errors) == 1


async def test_an_error_after_a_late_step_is_not_raised(log: StepLog) -> None:
    async def fail(_: str | None) -> None:
        raise StoreUnavailableError("The disk is full.")

    await log.steps.run(log.wait("begin"), when_late=fail)
    await log.open_gate()
    assert len(log.errors) == 1


async def test_steps_after_a_late_one_follow_it_in_order(
    log: StepLog, loop_clock: LoopClock
) -> None:
    await log.steps.run(log.wait("events"))
    late_at = loop_clock()
    await log.steps.run(log.end("turn"), when_late=log.when_late)
    await log.steps.run(log.end("model"))
    assert (loop_clock() - late_at).total_seconds() < OPTIONAL_SECONDS / 2
    assert log.ended == []

    await log.open_gate()
    assert log.ended == ["events", "turn", "model"]
    assert log.late == ["turn"]
    assert len(log.errors) == 1


async def test_the_steps_together_have_one_limit(log: StepLog) -> None:
    assert await log.steps.run(log.sleep(OPTIONAL_SECONDS * 0.75)) is not None
    assert await log.steps.run(log.sleep(OPTIONAL_SECONDS * 0.75)) is None
    assert log.steps.is_late


async def test_the_limit_can_be_restarted(log: StepLog) -> None:
    await log.steps.run(log.sleep(OPTIONAL_SECONDS * 0.75))
    log.steps.restart_limit()
    assert await log.steps.run(log.sleep(OPTIONAL_SECONDS * 0.75)) is not None
    assert not log.steps.is_late


async def test_a_step_continues_if_its_turn_is_cancelled(log: StepLog) -> None:
    turn = asyncio.create_task(log.steps.run(log.wait("save"), when_late=log.when_late))
    await asyncio.sleep(0)
    turn.cancel()
    await asyncio.wait((turn,))
    assert turn.cancelled()
    assert not log.errors

    await log.open_gate()
    assert log.ended == log.late == ["save"]

from datetime import UTC, datetime, timedelta

import pytest

from cllm.stores.leases import (
    MAX_LEASE,
    is_lease_valid,
    lease_expiry,
    next_fence,
    poll,
    poll_sync,
)

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def test_a_lease_expires_after_its_seconds():
    expires_at = lease_expiry(NOW, 60)
    assert is_lease_valid(expires_at, NOW + timedelta(seconds=59))
    assert not is_lease_valid(expires_at, NOW + timedelta(seconds=60))


def test_a_lease_from_before_the_clock_was_set_back_is_not_valid():
    expires_at = NOW + MAX_LEASE
    assert is_lease_valid(expires_at, NOW)
    assert not is_lease_valid(expires_at, NOW - timedelta(seconds=1))


def test_fencing_numbers_grow_even_if_the_clock_is_set_back():
    first = next_fence(NOW, None)
    assert next_fence(NOW + timedelta(seconds=1), first) > first + 1
    assert next_fence(NOW - timedelta(days=1), first) == first + 1


def test_polling_without_waiting_needs_no_event_loop():
    coroutine = poll_sync(lambda: None, wait=0)
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    assert stopped.value.value is None


async def test_polling_ends_with_the_first_result():
    results = iter([None, None, "result", "not reached"])
    assert await poll_sync(lambda: next(results), wait=None) == "result"


async def test_polling_ends_after_its_time():
    attempts = 0

    async def attempt() -> str | None:
        nonlocal attempts
        attempts += 1
        return None

    assert await poll(attempt, wait=0.01) is None
    assert attempts > 1

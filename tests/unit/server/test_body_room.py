"""The room for bodies that are being read: what it holds, whom it refuses, what it gets back."""

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.server.http.body_room import SHORT, BodyRoom
from cllm.server.http.errors import RefusedError
from cllm.settings.sections import Limits

LIMITS = Limits(body_bytes=4 * SHORT, bodies_bytes=16 * SHORT)


def test_long_bodies_have_three_quarters_of_the_room():
    room = BodyRoom()
    with ExitStack() as reading:
        for _ in range(3):
            reading.enter_context(room.body(LIMITS)).grow(4 * SHORT)
        late = reading.enter_context(room.body(LIMITS))
        with pytest.raises(RefusedError) as caught:
            late.grow(SHORT + 1)
    assert (caught.value.code, caught.value.status) == ("too_many_bodies", 503)
    assert caught.value.retry_after is not None
    assert (room.short, room.long) == (0, 0)


def test_a_short_body_finds_room_beside_long_ones():
    room = BodyRoom()
    with ExitStack() as reading:
        for _ in range(3):
            reading.enter_context(room.body(LIMITS)).grow(4 * SHORT)
        for _ in range(4):
            reading.enter_context(room.body(LIMITS)).grow(SHORT)
        with pytest.raises(RefusedError):
            reading.enter_context(room.body(LIMITS)).grow(1)


def test_a_body_alone_can_be_as_long_as_one_may_be():
    small = Limits(body_bytes=8 * SHORT, bodies_bytes=1)
    room = BodyRoom()
    room.expect(8 * SHORT, small)
    with room.body(small) as share:
        share.grow(8 * SHORT)
        with pytest.raises(RefusedError):
            room.expect(SHORT + 1, small)


def test_a_body_that_is_refused_makes_room():
    room = BodyRoom()
    with room.body(LIMITS) as first:
        first.grow(10 * SHORT)
        with pytest.raises(RefusedError), room.body(LIMITS) as second:
            second.grow(3 * SHORT)
        first.grow(12 * SHORT)


@given(st.lists(st.lists(st.integers(0, 5 * SHORT), max_size=5).map(sorted), max_size=10))
def test_the_room_never_holds_more_than_it_may_and_gives_all_back(bodies: list[list[int]]):
    room = BodyRoom()
    with ExitStack() as reading:
        for sizes in bodies:
            share = room.body(LIMITS)
            try:
                for size in sizes:
                    share.grow(size)
            except RefusedError:
                share.__exit__()
            else:
                reading.enter_context(share)
            assert room.short + room.long <= LIMITS.bodies_bytes
    assert (room.short, room.long) == (0, 0)

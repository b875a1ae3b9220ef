"""Ids by the thousand."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from cllm.engine.new_ids import AT_ONCE, NewIds


def test_ids_are_random_uuids_and_never_the_same():
    new_id = NewIds()

    made = [new_id() for _ in range(3 * AT_ONCE)]

    assert len(set(made)) == len(made)
    assert {UUID(one).version for one in made} == {4}


def test_threads_never_get_the_same_id():
    new_id = NewIds()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(lambda _: [new_id() for _ in range(10_000)], range(4)))
    finally:
        sys.setswitchinterval(before)

    ids = [one for each in made for one in each]
    assert len(set(ids)) == len(ids) == 40_000


def test_a_copy_of_the_process_gives_other_ids():
    new_id = NewIds()
    new_id()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, new_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as pipe:
        theirs = pipe.read()

    assert theirs != new_id()
    assert UUID(theirs).version == 4

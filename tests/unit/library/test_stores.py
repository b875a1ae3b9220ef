"""An open store has the operations of the port."""

import inspect

from cllm.core.ports import Store
from cllm.library.stores import BlockingStore, OpenStore

OF_A_TURN = {"begin_turn", "renew_lease", "finish_turn", "drop_turn"}
OPERATIONS = {name for name, one in vars(Store).items() if inspect.iscoroutinefunction(one)}


def test_an_open_store_has_all_operations():
    assert OPERATIONS >= OF_A_TURN
    assert {name for name in OPERATIONS if not hasattr(OpenStore, name)} == set()


def test_a_blocking_store_has_all_operations_but_those_of_a_turn():
    assert {name for name in OPERATIONS if not hasattr(BlockingStore, name)} == OF_A_TURN

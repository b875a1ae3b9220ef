"""Tests that every store must pass: subclass `StoreContract` and define its harness.

class TestMyStore(StoreContract):
    @pytest.fixture
    def harness(self) -> StoreHarness:
        return MyHarness()
"""

from cllm.testing.store_branches import BranchContract
from cllm.testing.store_harness import (
    OPENING,
    SYSTEM,
    StoreHarness,
    TickingClock,
    answered,
    failed,
    say,
    say_again,
    start,
    texts,
)
from cllm.testing.store_lists import ListContract
from cllm.testing.store_openings import OpeningContract
from cllm.testing.store_paths import FamilyContract, FoundPathContract
from cllm.testing.store_persistence import PersistenceContract
from cllm.testing.store_search import SearchContract
from cllm.testing.store_turns import TurnContract
from cllm.testing.store_variants import VariantContract
from cllm.testing.store_window import WindowContract

__all__ = [
    "OPENING",
    "SYSTEM",
    "StoreContract",
    "StoreHarness",
    "TickingClock",
    "answered",
    "failed",
    "say",
    "say_again",
    "start",
    "texts",
]


class StoreContract(
    TurnContract,
    OpeningContract,
    PersistenceContract,
    VariantContract,
    BranchContract,
    ListContract,
    SearchContract,
    WindowContract,
    FoundPathContract,
    FamilyContract,
):
    """All tests of a store. A subclass defines the fixture `harness`."""

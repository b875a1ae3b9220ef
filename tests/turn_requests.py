"""Creates turn requests for tests from the fields of all three parts."""

from typing import Any

from cllm.engine.request import TurnInput, TurnRequest, TurnStorage, TurnTarget


def make_turn_request(*, system_policy: Any = "captured", **fields: Any) -> TurnRequest:
    """Create a request. Each field goes to the part that has it; `system` goes to the input."""
    target = {name: fields.pop(name) for name in TurnTarget.__struct_fields__ if name in fields}
    turn_input = {name: fields.pop(name) for name in TurnInput.__struct_fields__ if name in fields}
    return TurnRequest(
        input=TurnInput(**turn_input),
        target=TurnTarget(**target),
        storage=TurnStorage(system=system_policy, **fields),
    )

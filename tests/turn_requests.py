"""Turn requests for tests, from the fields of all three parts."""

from typing import Any

from cllm.engine.request import TurnInput, TurnPolicy, TurnRequest, TurnTarget


def make_turn_request(*, system_policy: Any = "captured", **fields: Any) -> TurnRequest:
    """Make a request; each field goes to the part that has it, `system` to the input."""
    target = {name: fields.pop(name) for name in TurnTarget.__struct_fields__ if name in fields}
    given = {name: fields.pop(name) for name in TurnInput.__struct_fields__ if name in fields}
    return TurnRequest(
        input=TurnInput(**given),
        target=TurnTarget(**target),
        policy=TurnPolicy(system=system_policy, **fields),
    )

"""`cllm.open_store`: the stores that keep conversations, for programs."""

from cllm.app import now
from cllm.core.ports import Store
from cllm.stores import registry


def open_store(url: str) -> Store:
    """The store that the URL names, such as `json:PATH`; its operations are asynchronous.

    Nothing is created before something is written.
    """
    return registry.open_store(url, clock=now)

"""The confirmation of `cllm conversations delete`."""

from types import SimpleNamespace

import pytest

from cllm.cli.conversations.delete import _delete_all
from cllm.cli.inputs import OptionError


class Store:
    def __init__(self) -> None:
        self.deleted: list[str] = []

    async def summary(self, ref: str) -> None:
        if ref == "none":
            raise KeyError(ref)

    async def delete(self, ref: str) -> None:
        self.deleted.append(ref)


@pytest.fixture
def app():
    store = Store()
    return SimpleNamespace(store=store, delete_conversation=store.delete)


async def test_nothing_is_deleted_if_one_does_not_exist(app):
    with pytest.raises(KeyError):
        await _delete_all(app, ("cats", "none"), yes=True)
    assert app.store.deleted == []


async def test_without_a_terminal_yes_is_needed(app):
    with pytest.raises(OptionError, match=r"Delete conversations 'a', 'b'\? .* --yes"):
        await _delete_all(app, ("a", "b"), yes=False)
    assert await _delete_all(app, ("a", "b"), yes=True) == 0
    assert app.store.deleted == ["a", "b"]

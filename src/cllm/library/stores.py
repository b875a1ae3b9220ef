"""`cllm.open_store`: stores that run on cllm's own event loop, from any thread or loop."""

import os
from collections.abc import Callable, Coroutine
from functools import cache, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from cllm.app import now
from cllm.core.ports import OpeningStore, Store
from cllm.library.loop import background
from cllm.stores import registry

P = ParamSpec("P")
T = TypeVar("T")
IN_MEMORY = "memory:"
Operation = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]


def _delegate(
    operation: Operation[P, T],
) -> Callable[Concatenate["OpenStore", P], Coroutine[Any, Any, T]]:
    @wraps(operation)
    async def call(self: "OpenStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        work: Operation[P, T] = getattr(self.kept, operation.__name__)
        return await background().run_async(work(*args, **kwargs))

    return call


def _delegate_blocking(operation: Operation[P, T]) -> Callable[Concatenate["BlockingStore", P], T]:
    @wraps(operation)
    def call(self: "BlockingStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        work: Operation[P, T] = getattr(self.store.kept, operation.__name__)
        return background().run(work(*args, **kwargs))

    return call


class BlockingStore:
    def __init__(self, store: "OpenStore") -> None:
        self.store = store

    create = _delegate_blocking(Store.create)
    add = _delegate_blocking(Store.add)
    load = _delegate_blocking(Store.load)
    summary = _delegate_blocking(Store.summary)
    list_conversations = _delegate_blocking(Store.list_conversations)
    count_conversations = _delegate_blocking(Store.count_conversations)
    read_overviews = _delegate_blocking(Store.read_overviews)
    list_owners = _delegate_blocking(Store.list_owners)
    search = _delegate_blocking(Store.search)
    usage = _delegate_blocking(Store.usage)
    update = _delegate_blocking(Store.update)
    capture = _delegate_blocking(Store.capture)
    delete = _delegate_blocking(Store.delete)
    delete_from = _delegate_blocking(Store.delete_from)
    branch = _delegate_blocking(Store.branch)
    choose_variant = _delegate_blocking(Store.choose_variant)
    find_paths = _delegate_blocking(Store.find_paths)
    list_family = _delegate_blocking(Store.list_family)
    close = _delegate_blocking(Store.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OpenStore:
    """A store opened by its URL, again in each forked process, and closed at the program's end."""

    def __init__(self, url: str) -> None:
        if not isinstance(url, str):
            raise TypeError(
                f"The URL of a store must be a string such as 'json:PATH', not {url!r}."
            )
        self.url = url
        self.blocking = BlockingStore(self)
        self._opened: dict[int, Store] = {}
        self._open()

    @property
    def kept(self) -> Store:
        """The store of this process, for use on cllm's own event loop."""
        opened = self._opened.get(os.getpid())
        return self._open() if opened is None else opened

    def _open(self) -> Store:
        opened = registry.open_store(self.url, clock=now)
        self._opened[os.getpid()] = opened
        background().on_stop(opened.close)
        return opened

    begin_turn = _delegate(Store.begin_turn)
    renew_lease = _delegate(Store.renew_lease)
    save_opening = _delegate(OpeningStore.save_opening)
    finish_turn = _delegate(Store.finish_turn)
    drop_turn = _delegate(Store.drop_turn)
    create = _delegate(Store.create)
    add = _delegate(Store.add)
    load = _delegate(Store.load)
    summary = _delegate(Store.summary)
    list_conversations = _delegate(Store.list_conversations)
    count_conversations = _delegate(Store.count_conversations)
    read_overviews = _delegate(Store.read_overviews)
    list_owners = _delegate(Store.list_owners)
    search = _delegate(Store.search)
    usage = _delegate(Store.usage)
    update = _delegate(Store.update)
    capture = _delegate(Store.capture)
    delete = _delegate(Store.delete)
    delete_from = _delegate(Store.delete_from)
    branch = _delegate(Store.branch)
    choose_variant = _delegate(Store.choose_variant)
    find_paths = _delegate(Store.find_paths)
    list_family = _delegate(Store.list_family)
    close = _delegate(Store.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def open_store(url: str) -> OpenStore:
    """Open the store with a URL such as `json:PATH`. Creates no file before the first write."""
    return OpenStore(url)


_open_shared = cache(OpenStore)


def resolve_store(store: Store | str | None) -> Store | None:
    """Return the store, or open its URL; a URL is opened once unless it is in memory."""
    if isinstance(store, str):
        return OpenStore(store) if store.startswith(IN_MEMORY) else _open_shared(store)
    if store is not None and not hasattr(store, "begin_turn"):
        raise TypeError(f"store must be a store or its URL, such as 'json:PATH', not {store!r}.")
    return store

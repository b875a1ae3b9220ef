"""`cllm.open_store`: stores whose operations run on cllm's own loop, for any thread and loop."""

import os
from collections.abc import Callable, Coroutine
from functools import cache, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from cllm.app import now
from cllm.core.ports import Store
from cllm.library.loop import background
from cllm.stores import registry

P = ParamSpec("P")
T = TypeVar("T")
IN_MEMORY = "memory:"
Operation = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]


def _relayed(
    operation: Operation[P, T],
) -> Callable[Concatenate["OpenStore", P], Coroutine[Any, Any, T]]:
    @wraps(operation)
    async def call(self: "OpenStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        work: Operation[P, T] = getattr(self.kept, operation.__name__)
        return await background().run_async(work(*args, **kwargs))

    return call


def _waited(operation: Operation[P, T]) -> Callable[Concatenate["BlockingStore", P], T]:
    @wraps(operation)
    def call(self: "BlockingStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        work: Operation[P, T] = getattr(self.store.kept, operation.__name__)
        return background().run(work(*args, **kwargs))

    return call


class BlockingStore:
    def __init__(self, store: "OpenStore") -> None:
        self.store = store

    create = _waited(Store.create)
    add = _waited(Store.add)
    load = _waited(Store.load)
    summary = _waited(Store.summary)
    list_conversations = _waited(Store.list_conversations)
    count_conversations = _waited(Store.count_conversations)
    search = _waited(Store.search)
    usage = _waited(Store.usage)
    update = _waited(Store.update)
    capture = _waited(Store.capture)
    delete = _waited(Store.delete)
    delete_from = _waited(Store.delete_from)
    branch = _waited(Store.branch)
    choose_variant = _waited(Store.choose_variant)
    close = _waited(Store.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OpenStore:
    """A store opened by its URL, and again in a forked process; closed at the program's end."""

    def __init__(self, url: str) -> None:
        if not isinstance(url, str):
            raise TypeError(f"A store is opened by a URL such as 'json:PATH', not {url!r}.")
        self.url = url
        self.blocking = BlockingStore(self)
        self._opened: dict[int, Store] = {}
        self._open()

    @property
    def kept(self) -> Store:
        """The store of this process, for work on cllm's own loop."""
        opened = self._opened.get(os.getpid())
        return self._open() if opened is None else opened

    def _open(self) -> Store:
        opened = registry.open_store(self.url, clock=now)
        self._opened[os.getpid()] = opened
        background().at_stop(opened.close)
        return opened

    begin_turn = _relayed(Store.begin_turn)
    renew_lease = _relayed(Store.renew_lease)
    finish_turn = _relayed(Store.finish_turn)
    drop_turn = _relayed(Store.drop_turn)
    create = _relayed(Store.create)
    add = _relayed(Store.add)
    load = _relayed(Store.load)
    summary = _relayed(Store.summary)
    list_conversations = _relayed(Store.list_conversations)
    count_conversations = _relayed(Store.count_conversations)
    search = _relayed(Store.search)
    usage = _relayed(Store.usage)
    update = _relayed(Store.update)
    capture = _relayed(Store.capture)
    delete = _relayed(Store.delete)
    delete_from = _relayed(Store.delete_from)
    branch = _relayed(Store.branch)
    choose_variant = _relayed(Store.choose_variant)
    close = _relayed(Store.close)

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
    """Open the store of a URL such as `json:PATH`. Creates nothing before a write."""
    return OpenStore(url)


_shared = cache(OpenStore)


def resolve_store(given: Store | str | None) -> Store | None:
    """The store, or that of a URL, which is opened once unless it is in memory."""
    if isinstance(given, str):
        return OpenStore(given) if given.startswith(IN_MEMORY) else _shared(given)
    if given is not None and not hasattr(given, "begin_turn"):
        raise TypeError(f"store must be a store or its URL, such as 'json:PATH', not {given!r}.")
    return given

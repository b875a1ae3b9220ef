"""One asynchronous method, two ways to call it.

A class writes what it does once, as a coroutine for cllm's own loop under a name with an
underscore; `synchronous` and `asynchronous` make the public methods of it.
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from cllm.library.loop import background

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
Method = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


def synchronous(method: Method[S, P, T]) -> Callable[Concatenate[S, P], T]:
    """The method for code that waits."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return background().run(method(self, *args, **kwargs))

    call.__name__ = method.__name__.removeprefix("_")
    return call


def asynchronous(method: Method[S, P, T]) -> Method[S, P, T]:
    """The method for asynchronous code, on whichever loop that runs."""

    @wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await background().elsewhere(method(self, *args, **kwargs))

    call.__name__ = f"a{method.__name__.removeprefix('_')}"
    return call

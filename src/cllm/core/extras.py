"""Optional packages (extras): the error of a missing one names the extra to install."""

from collections.abc import Iterator
from contextlib import contextmanager

from cllm.core.errors import MissingExtraError


@contextmanager
def require_extra(extra: str, *, feature: str) -> Iterator[None]:
    """Raise MissingExtraError for a missing package; a missing module of cllm is a bug."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "cllm":
            raise
        raise MissingExtraError(feature=feature, extra=extra) from error

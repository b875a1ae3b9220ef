"""When another model is asked in place of one that gave nothing, and how that is said.

Knows which providers are ready; asks none.
"""

from http import HTTPStatus

from cllm.core.errors import (
    CllmError,
    InvalidRequestError,
    LocalModelError,
    PromptTooLongError,
    ProviderError,
    WindowTooSmallError,
)
from cllm.core.notice import Notice
from cllm.core.ports import Provider
from cllm.core.reply import Noticed


def may_fall_back(error: CllmError) -> bool:
    """Whether another model could do better: never when the request itself is at fault.

    A prompt too long for one model, or for its window, may fit another, and a model that is gone
    is not the request's fault.
    """
    if isinstance(error, InvalidRequestError):
        return isinstance(error, PromptTooLongError) or error.status == HTTPStatus.NOT_FOUND
    return isinstance(error, ProviderError | LocalModelError | WindowTooSmallError)


def fell_back(model: str, following: str, error: CllmError) -> Noticed:
    """The notice that another model is asked."""
    return Noticed(
        notice=Notice(
            code="fallback",
            path="model",
            message=f"Model '{model}' gave no answer; asking '{following}'. {error}",
        )
    )


class Readiness:
    """Which models' providers are prepared, and what kept others from being."""

    def __init__(self) -> None:
        self.ready: set[str] = set()
        self.failed: dict[str, CllmError] = {}

    async def prepare(self, model: str, provider: Provider) -> None:
        """Prepare it now, unless that has failed in this turn already."""
        if model in self.failed:
            raise self.failed[model]
        await provider.prepare()
        self.ready.add(model)

"""The names that a chat completes: conversations that are stored, and models that can be asked."""

from collections.abc import Sequence

from cllm.app import App
from cllm.core.errors import CllmError
from cllm.providers.local.models import list_models
from cllm.providers.registry import LOCAL, ROWS
from cllm.repl.chat import Chat

MOST = 500

Named = Sequence[tuple[str, str]]


class KnownNames:
    """Looks them up once for each line that is typed; a mistake in the store offers nothing."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._conversations: Named | None = None

    def forget(self) -> None:
        """Look again, the next time."""
        self._conversations = None

    async def conversations(self) -> Named:
        if self._conversations is None:
            try:
                page = await self._chat.store.list_conversations(limit=MOST)
            except CllmError:
                return ()
            self._conversations = [(one.id, one.title or "") for one in page.items]
        return self._conversations

    async def models(self) -> Named:
        return model_names(self._chat.app)


def model_names(app: App) -> Named:
    """Models that are named somewhere, and the beginnings of those that are not."""
    names = [(f"{LOCAL}/{model.name}", "on this machine") for model in list_models(app.cache_paths)]
    for provider, row in app.settings.providers.items():
        names += [(f"{provider}/{name}", "configured") for name in row.models]
    return [*names, *((f"{provider}/", "…") for provider in ROWS)]

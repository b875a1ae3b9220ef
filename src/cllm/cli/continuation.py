"""`-c`: finds the last conversation that the shell or chat used in this place."""

from cllm.app import App
from cllm.cli import output
from cllm.cli.inputs import is_interactive
from cllm.core.conversation import OWN_SOURCES, Summary
from cllm.core.errors import ConversationNotFoundError, UsageError
from cllm.settings.load import JSON, Settings
from cllm.stores.registry import store_location

RECENT = 100
NO_CONVERSATION = (
    "The shell and chat have saved no conversation in {place}: name one with --conversation ID, or "
    "set `save: all` to save every question."
)
NOT_SAVED = (
    "The last question was not saved: set `save: all` to save every question, or continue '{ref}' "
    "with --conversation {ref}"
)
DELETED = (
    "The last conversation used here, '{ref}', no longer exists; name another one with "
    "--conversation ID."
)


def find_last_conversation(settings: Settings) -> Summary:
    """Return the conversation of the last question; UsageError if there is none or it was unsaved.

    The stores are opened and closed here: connections belong to one event loop.
    """
    app = App(settings, warn=output.warn)

    async def find() -> Summary:
        try:
            return await _find(app)
        finally:
            await app.close()

    return app.run(find())


async def _find(app: App) -> Summary:
    """Without a record, it is the newest conversation file that is not recorded from a client."""
    last = app.read_last_use()
    if last is None:
        return await _find_newest(app)
    try:
        summary = await app.store.summary(last.conversation)
    except ConversationNotFoundError:
        raise UsageError(DELETED.format(ref=last.conversation)) from None
    if not last.is_saved and not _confirm(summary.ref):
        raise UsageError(NOT_SAVED.format(ref=summary.ref))
    return summary


async def _find_newest(app: App) -> Summary:
    """A database also has the conversations of API clients, which look the same."""
    url = app.settings.store
    if url.startswith(JSON):
        page = await app.own_store.list_conversations(limit=RECENT)
        for summary in page.items:
            if summary.source in OWN_SOURCES:
                return summary
    raise UsageError(NO_CONVERSATION.format(place=store_location(url)))


def _confirm(ref: str) -> bool:
    if not is_interactive():
        return False
    from cllm.cli.confirmation import ask_on_terminal

    return ask_on_terminal(
        "The last question was not saved; the setting `save: all` saves every question.\n"
        f"Continue '{ref}'? [y/N] "
    )

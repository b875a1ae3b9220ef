"""What an empty list shows: why it is empty, and the commands that would fill it."""

import shlex

import msgspec

from cllm.server.page.selection import Selection
from cllm.server.page.texts import TEXTS

ASK, CHAT = 'cllm "Explain this error" < error.log', "cllm chat"


class EmptyList(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    text: str
    commands: tuple[str, ...]
    reset_url: str | None = None


def describe_empty_list(selection: Selection, address: str) -> EmptyList:
    """Return the text for a selection without conversations. `address` is that of the server."""
    if selection.q:
        words = shlex.quote(selection.q)
        return EmptyList(
            title=TEXTS["empty_search_title"],
            text=TEXTS["empty_search_text"],
            commands=(
                f"cllm search {words}",
                f"cllm search --archived {words}",
                f"cllm {words}",
            ),
            reset_url=selection.url(q=""),
        )
    if selection.archive_filter == "archived":
        return EmptyList(
            title=TEXTS["empty_archive_title"],
            text=TEXTS["empty_archive_text"],
            commands=(
                "cllm conversations list",
                "cllm conversations archive ID",
                "cllm conversations unarchive ID",
            ),
            reset_url="/",
        )
    client = f"OPENAI_BASE_URL={address}/v1 python app.py"
    if selection.has_conversation_filter:
        return EmptyList(
            title=TEXTS["empty_filter_title"],
            text=TEXTS["empty_filter_text"],
            commands=(ASK, CHAT, client),
            reset_url="/",
        )
    return EmptyList(
        title=TEXTS["empty_title"], text=TEXTS["empty_text"], commands=(ASK, CHAT, client)
    )

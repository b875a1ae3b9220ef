"""What an empty list shows: why it is empty, and the commands that would fill it."""

import json
import shlex

import msgspec

from cllm.server.page.selection import Selection
from cllm.server.page.texts import TEXTS

ASK, CHAT = 'cllm --conversation cats "Why do cats purr?"', "cllm chat"
RECORD = "cllm serve --record auto"


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the commands need. With keys, the server does not show conversations of the shell."""

    address: str
    model: str
    has_keys: bool = False


class EmptyList(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    text: str
    commands: tuple[str, ...]
    reset_url: str | None = None


def describe_empty_list(selection: Selection, server: ServerFacts) -> EmptyList:
    """Return the text for a selection without conversations."""
    if selection.q:
        words = shlex.quote(selection.q)
        return EmptyList(
            title=TEXTS["empty_search_title"],
            text=TEXTS["empty_search_text"],
            commands=(f"cllm search {words}", f"cllm search --archived {words}", CHAT),
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
    commands = _list_first_commands(server)
    if selection.has_conversation_filter:
        return EmptyList(
            title=TEXTS["empty_filter_title"],
            text=TEXTS["empty_filter_text"],
            commands=commands,
            reset_url="/",
        )
    text = TEXTS["empty_text_keys" if server.has_keys else "empty_text"]
    return EmptyList(title=TEXTS["empty_title"], text=text, commands=commands)


def _list_first_commands(server: ServerFacts) -> tuple[str, ...]:
    """Return commands that start a conversation."""
    key = " -H 'Authorization: Bearer KEY'" if server.has_keys else ""
    message = {"role": "user", "content": "Hello"}
    body = shlex.quote(json.dumps({"model": server.model, "messages": [message]}))
    url = f"{server.address}/v1"
    client = f"curl {url}/chat/completions{key} -H 'X-Conversation-ID;' -d {body}"
    app = f"OPENAI_BASE_URL={url} OPENAI_API_KEY=KEY python app.py"
    return (client, RECORD, app) if server.has_keys else (ASK, CHAT, client)

"""A conversation as a file: `json`, `jsonl`, `markdown` or `html`.

The first two contain everything and can be imported; the others contain the default path to read.
"""

from collections.abc import Callable

import msgspec

from cllm.core.conversation import StoredConversation
from cllm.wire.conversation_file.codec import encode_conversation
from cllm.wire.conversation_file.transcript import (
    HTML_END,
    encode_markdown,
    start_html,
    transcript_of,
)


def encode_line(conversation: StoredConversation) -> bytes:
    """Return the conversation file as one line."""
    return msgspec.json.format(encode_conversation(conversation), indent=-1).strip() + b"\n"


def encode_markdown_file(conversation: StoredConversation) -> bytes:
    transcript = transcript_of(conversation, shown_id=conversation.ref)
    return encode_markdown(transcript).encode("utf-8", "replace")


def encode_html_file(conversation: StoredConversation) -> bytes:
    """Return a page without scripts and external resources."""
    transcript = transcript_of(conversation, shown_id=conversation.ref)
    return (start_html(transcript) + HTML_END).encode("utf-8", "replace")


ENCODERS: dict[str, Callable[[StoredConversation], bytes]] = {
    "json": encode_conversation,
    "jsonl": encode_line,
    "markdown": encode_markdown_file,
    "html": encode_html_file,
}
EXTENSIONS = {"json": "json", "jsonl": "jsonl", "markdown": "md", "html": "html"}

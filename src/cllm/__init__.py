"""cllm keeps conversations with language models whole.

    import cllm

    print(cllm.ask("Why is the sky blue?"))
    for piece in cllm.stream("Tell me a story.", model="openai/gpt-4o"):
        print(piece, end="")

`aask` and `astream` are the same for asynchronous code. `Conversation` is one kept in a store,
`ConversationManager` one that is trimmed by turns, `open_store` gives the stores themselves. A name
is imported when it is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cllm.assembly.window import ByTokens, ByTurns, Summarise
    from cllm.core.conversation import Conversation as StoredConversation
    from cllm.core.errors import CllmError
    from cllm.core.message import Message
    from cllm.library.answer import Answer, AsyncTextStream, TextStream
    from cllm.library.asking import aask, ask, astream, stream
    from cllm.library.conversation import Conversation
    from cllm.library.manager import (
        DEFAULT_MAX_TURNS,
        DEFAULT_SYSTEM_PROMPT,
        ConversationManager,
    )
    from cllm.library.stores import OpenStore, open_store

__version__ = "0.1.0"
__all__ = [
    "DEFAULT_MAX_TURNS",
    "DEFAULT_SYSTEM_PROMPT",
    "Answer",
    "AsyncTextStream",
    "ByTokens",
    "ByTurns",
    "CllmError",
    "Conversation",
    "ConversationManager",
    "Message",
    "OpenStore",
    "StoredConversation",
    "Summarise",
    "TextStream",
    "__version__",
    "aask",
    "ask",
    "astream",
    "open_store",
    "stream",
]
_PLACES = {
    "DEFAULT_MAX_TURNS": "cllm.library.manager",
    "DEFAULT_SYSTEM_PROMPT": "cllm.library.manager",
    "Answer": "cllm.library.answer",
    "AsyncTextStream": "cllm.library.answer",
    "ByTokens": "cllm.assembly.window",
    "ByTurns": "cllm.assembly.window",
    "CllmError": "cllm.core.errors",
    "Conversation": "cllm.library.conversation",
    "ConversationManager": "cllm.library.manager",
    "Message": "cllm.core.message",
    "OpenStore": "cllm.library.stores",
    "StoredConversation": "cllm.core.conversation:Conversation",
    "Summarise": "cllm.assembly.window",
    "TextStream": "cllm.library.answer",
    "aask": "cllm.library.asking",
    "ask": "cllm.library.asking",
    "astream": "cllm.library.asking",
    "open_store": "cllm.library.stores",
    "stream": "cllm.library.asking",
}


def __getattr__(name: str) -> Any:
    """A public name, imported now."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'cllm' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - `cllm --version` needs none

    module, _, there = place.partition(":")
    return getattr(import_module(module), there or name)


def __dir__() -> list[str]:
    return __all__

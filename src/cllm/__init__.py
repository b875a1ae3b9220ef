"""cllm keeps conversations with language models whole.

    import cllm

    print(cllm.ask("Why is the sky blue?"))
    for piece in cllm.stream("Tell me a story.", model="openai/gpt-4o"):
        print(piece, end="")

`aask` and `astream` are asynchronous. `StoredConversation` is a stored conversation,
`ConversationManager` trims one by turns, `open_store` opens a store. Names are imported on first
use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cllm.core.conversation import StoredConversation
    from cllm.core.errors import CllmError
    from cllm.core.message import Message
    from cllm.library.ask import aask, ask, astream, stream
    from cllm.library.conversation import Conversation
    from cllm.library.manager import (
        DEFAULT_MAX_TURNS,
        DEFAULT_SYSTEM_PROMPT,
        ConversationManager,
    )
    from cllm.library.session import Answer, AsyncTextStream, TextStream
    from cllm.library.stores import OpenStore, open_store
    from cllm.window.strategies import ByTokens, ByTurns, Summarise

__version__ = "0.1.0"
WINDOWS = "cllm runs on Linux and macOS. On Windows, use the Windows Subsystem for Linux (WSL)."
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
_MODULES = {
    "cllm.window.strategies": "ByTokens ByTurns Summarise",
    "cllm.core.conversation": "StoredConversation",
    "cllm.core.errors": "CllmError",
    "cllm.core.message": "Message",
    "cllm.library.session": "Answer AsyncTextStream TextStream",
    "cllm.library.ask": "aask ask astream stream",
    "cllm.library.conversation": "Conversation",
    "cllm.library.manager": "DEFAULT_MAX_TURNS DEFAULT_SYSTEM_PROMPT ConversationManager",
    "cllm.library.stores": "OpenStore open_store",
}


def __getattr__(name: str) -> Any:
    import sys
    from importlib import import_module

    if sys.platform == "win32" and not name.startswith("_"):
        raise ImportError(WINDOWS)
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'cllm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

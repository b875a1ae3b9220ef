"""cllm keeps conversations with language models whole.

    import cllm

    print(cllm.ask("Why is the sky blue?"))
    for piece in cllm.stream("Tell me a story.", model="openai/gpt-4o"):
        print(piece, end="")

`ask` and `stream` have the asynchronous twins `aask` and `astream`; `ConversationManager` keeps a
conversation in memory, `open_store` gives the stores that keep them on disk. A name is imported
when it is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cllm.core.conversation import Conversation
    from cllm.core.errors import CllmError
    from cllm.library.answer import Answer
    from cllm.library.asking import aask, ask, astream, stream
    from cllm.library.manager import (
        DEFAULT_MAX_TURNS,
        DEFAULT_SYSTEM_PROMPT,
        ConversationManager,
    )
    from cllm.library.stores import open_store

__version__ = "0.1.0"
__all__ = [
    "DEFAULT_MAX_TURNS",
    "DEFAULT_SYSTEM_PROMPT",
    "Answer",
    "CllmError",
    "Conversation",
    "ConversationManager",
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
    "CllmError": "cllm.core.errors",
    "Conversation": "cllm.core.conversation",
    "ConversationManager": "cllm.library.manager",
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

    return getattr(import_module(place), name)


def __dir__() -> list[str]:
    return __all__

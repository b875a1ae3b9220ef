"""`cllm.ask` and `cllm.stream`, and their asynchronous twins `cllm.aask` and `cllm.astream`.

Each makes one `TurnRequest`; everything else is the engine's work. The twins differ only in who
runs the loop.
"""

from collections.abc import AsyncGenerator, Iterator
from typing import Any

from cllm.app import new_conversation_id, new_id, now
from cllm.assembly.system import GivenPrompt
from cllm.core.message import plain_message
from cllm.core.ports import NewConversation
from cllm.engine.turn import TurnRequest
from cllm.library.answer import Answer
from cllm.library.session import Session, session


def ask(
    prompt: str,
    *,
    model: str | None = None,
    system: str | None = None,
    conversation: str | bool | None = None,
    **parameters: Any,
) -> Answer:
    """Ask once, or in a conversation, and wait for the whole answer.

    `conversation` is the id of one to begin or go on with; True begins a new one, whose id is in
    the answer. Without it nothing is kept. Other keywords go into the request, such as
    `temperature` and `max_tokens`. What the Cllmfiles of this place say holds here too.
    """
    running = session()
    request = make_request(
        running,
        prompt,
        model=model,
        system=system,
        conversation=conversation,
        parameters=parameters,
        stream=False,
    )
    return running.loop.run(running.answer(request))


def stream(
    prompt: str,
    *,
    model: str | None = None,
    system: str | None = None,
    conversation: str | bool | None = None,
    **parameters: Any,
) -> "TextStream":
    """As `ask`, with the text as it comes; the answer is in `.answer` once it is whole."""
    running = session()
    request = make_request(
        running,
        prompt,
        model=model,
        system=system,
        conversation=conversation,
        parameters=parameters,
        stream=True,
    )
    return TextStream(running.loop.iterate(running.pieces(request)))


async def aask(
    prompt: str,
    *,
    model: str | None = None,
    system: str | None = None,
    conversation: str | bool | None = None,
    **parameters: Any,
) -> Answer:
    """`ask` for asynchronous code."""
    running = session()
    request = make_request(
        running,
        prompt,
        model=model,
        system=system,
        conversation=conversation,
        parameters=parameters,
        stream=False,
    )
    return await running.elsewhere(running.answer(request))


async def astream(
    prompt: str,
    *,
    model: str | None = None,
    system: str | None = None,
    conversation: str | bool | None = None,
    **parameters: Any,
) -> AsyncGenerator[str, None]:
    """`stream` for asynchronous code: the pieces of the text."""
    running = session()
    request = make_request(
        running,
        prompt,
        model=model,
        system=system,
        conversation=conversation,
        parameters=parameters,
        stream=True,
    )
    async for piece in running.iterate_elsewhere(running.pieces(request)):
        if isinstance(piece, str):
            yield piece


class TextStream:
    """The pieces of an answer's text; iterate over it, then look at `answer`."""

    def __init__(self, pieces: Iterator[str | Answer]) -> None:
        self._pieces = pieces
        self.answer: Answer | None = None

    def __iter__(self) -> Iterator[str]:
        for piece in self._pieces:
            if isinstance(piece, Answer):
                self.answer = piece
            else:
                yield piece

    def close(self) -> None:
        """Stop early; in a conversation what was said so far is kept."""
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()


def make_request(
    running: Session,
    prompt: str,
    *,
    model: str | None,
    system: str | None,
    conversation: str | bool | None,
    parameters: dict[str, Any],
    stream: bool,
) -> TurnRequest:
    """The turn that is asked for, with the settings under what was given."""
    settings = running.app.settings
    ref = new_conversation_id(now(), new_id()) if conversation is True else conversation or None
    chosen = model or running.app.model
    given = GivenPrompt(text=system, source="system=", explicit=True)
    return TurnRequest(
        messages=(plain_message("user", prompt),),
        model=chosen,
        model_is_explicit=model is not None,
        ref=ref,
        create=None if ref is None else NewConversation(id=ref, model=chosen),
        system=settings.system if system is None else given,
        context=settings.context,
        parameters={**settings.parameters, **parameters},
        fallbacks=settings.fallbacks,
        strict=settings.strict,
        stream=stream,
        cache_key=None if ref is None else running.app.cache_key(ref),
    )

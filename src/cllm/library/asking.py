"""`cllm.ask` and `cllm.stream`, and the same for asynchronous code: `cllm.aask`, `cllm.astream`.

Each makes one `TurnRequest`; everything else is the engine's work. They differ in who runs the
loop, and in whether the text comes in pieces.
"""

from collections.abc import Sequence
from typing import Unpack

from cllm.app import App, new_conversation_id, new_id, now
from cllm.assembly.system import GivenPrompt
from cllm.core.message import Message, plain_message
from cllm.core.ports import NewConversation
from cllm.engine.request import TurnInput, TurnPolicy, TurnRequest, TurnTarget
from cllm.library.answer import Answer, AsyncTextStream, Pieces, TextStream, whole
from cllm.library.given import (
    Options,
    check_names,
    check_optional_text,
    check_ref,
    check_said,
    flat,
)
from cllm.library.loop import background
from cllm.library.session import session

Said = str | Message | Sequence[Message]
"""What somebody says: a text, or messages in a provider's words, such as the result of a tool."""


def ask(prompt: Said, **options: Unpack[Options]) -> Answer:
    """Ask once, or in a conversation, and wait for the whole answer.

    What the Cllmfiles of this place say holds here too. The keywords are those of `Options`.
    """
    return background().run(whole(_pieces(prompt, options, stream=False)))


def stream(prompt: Said, **options: Unpack[Options]) -> TextStream:
    """As `ask`, with the text as it comes; the answer is in `.answer` once it is whole."""
    return TextStream(_pieces(prompt, options, stream=True))


async def aask(prompt: Said, **options: Unpack[Options]) -> Answer:
    """`ask` for asynchronous code."""
    return await background().elsewhere(whole(_pieces(prompt, options, stream=False)))


def astream(prompt: Said, **options: Unpack[Options]) -> AsyncTextStream:
    """`stream` for asynchronous code."""
    return AsyncTextStream(_pieces(prompt, options, stream=True))


def _pieces(prompt: Said, options: Options, *, stream: bool) -> Pieces:
    check_names("stream" if stream else "ask", options)
    running = session()
    return running.pieces(_request(running.app, prompt, options, stream=stream))


def _request(app: App, prompt: Said, given: Options, *, stream: bool) -> TurnRequest:
    """The turn that is asked for, with the settings under what was given."""
    settings = app.settings
    model = check_optional_text("model", given.get("model"))
    system = check_optional_text("system", given.get("system"))
    ref = _ref(given)
    chosen = model or app.model
    explicit = GivenPrompt(text=system, source="system=", explicit=True)
    return TurnRequest(
        input=TurnInput(
            messages=messages_of(prompt),
            system=settings.system if system is None else explicit,
            context=settings.context,
        ),
        target=TurnTarget(
            model=chosen,
            model_is_explicit=model is not None,
            fallbacks=settings.fallbacks,
            parameters={**settings.parameters, **flat(given)},
            stream=stream,
            strict=settings.strict,
        ),
        policy=TurnPolicy(
            ref=ref,
            cache_key=None if ref is None else app.cache_key(ref),
            create=None if ref is None else NewConversation(id=ref, model=chosen),
            window=None if ref is None else app.window_for,
        ),
    )


def _ref(given: Options) -> str | None:
    """The id of the conversation that is asked in, a new one for True; None without one."""
    match given.get("conversation"):
        case True:
            return automatic_id()
        case None | False | "":
            return None
        case ref:
            return check_ref(ref)


def messages_of(said: Said) -> tuple[Message, ...]:
    """What is said as messages; a text is the user's."""
    match said:
        case str():
            return (plain_message("user", check_said(said)),)
        case Message():
            return (said,)
        case Sequence():
            return tuple(map(_message, said))
        case _:
            return (_message(said),)


def _message(said: object) -> Message:
    if not isinstance(said, Message):
        raise TypeError(f"What is said must be a text or a Message or several, not {said!r}.")
    return said


def automatic_id() -> str:
    """An id for a conversation that was given none."""
    return new_conversation_id(now(), new_id())

"""`cllm.ask`, `cllm.stream`, `cllm.aask` and `cllm.astream`."""

from typing import Unpack

from cllm.core.message import Message
from cllm.engine.request import TurnStorage
from cllm.history.system_prompt import GivenPrompt
from cllm.library.arguments import (
    SYSTEM_PATH,
    MessageInput,
    Options,
    check_option_names,
    check_optional_text,
    merge_parameters,
    split_system,
)
from cllm.library.conversation import Conversation
from cllm.library.loop import background
from cllm.library.session import Answer, AsyncTextStream, Pieces, TextStream, read_answer, session


def ask(prompt: MessageInput, **options: Unpack[Options]) -> Answer:
    """Call a model once, or in a conversation, with the settings of the current directory."""
    return background().run(read_answer(_stream_pieces(prompt, options, stream=False)))


def stream(prompt: MessageInput, **options: Unpack[Options]) -> TextStream:
    """Like `ask`, but yields the text as it arrives; `.answer` is set at the end."""
    return TextStream(_stream_pieces(prompt, options, stream=True))


async def aask(prompt: MessageInput, **options: Unpack[Options]) -> Answer:
    """`ask` for asynchronous code."""
    return await background().run_async(read_answer(_stream_pieces(prompt, options, stream=False)))


def astream(prompt: MessageInput, **options: Unpack[Options]) -> AsyncTextStream:
    """`stream` for asynchronous code."""
    return AsyncTextStream(_stream_pieces(prompt, options, stream=True))


def _stream_pieces(prompt: MessageInput, options: Options, *, stream: bool) -> Pieces:
    check_option_names("stream" if stream else "ask", options)
    model = check_optional_text("model", options.get("model"))
    system = check_optional_text("system", options.get("system"))
    parameters = merge_parameters(options)
    match options.get("conversation"):
        case None | False | "":
            current = session()
            settings = current.app.settings
            first, messages = split_system(prompt, system=system)
            own_prompt = _build_prompt(system, first, messages)
            request = current.build_request(
                messages,
                model=model,
                system=settings.system if own_prompt is None else own_prompt,
                context=settings.context,
                parameters=parameters,
                stream=stream,
                storage=TurnStorage(),
            )
            return current.pieces(request)
        case ref:
            new_id = None if ref is True else ref
            conversation = Conversation(new_id, model=model, system=system)
            return conversation.pieces(prompt, {"parameters": parameters}, stream=stream)


def _build_prompt(
    system: str | None, first: Message | None, messages: tuple[Message, ...]
) -> GivenPrompt | None:
    """Return the system prompt of a call that is not saved; None for the configured one."""
    if system is not None:
        return GivenPrompt(text=system, source="system=", explicit=True)
    if first is not None:
        return GivenPrompt(said=first, text=first.text, source=SYSTEM_PATH, explicit=True)
    has_later = any(message.role == "system" for message in messages)
    return GivenPrompt() if has_later else None

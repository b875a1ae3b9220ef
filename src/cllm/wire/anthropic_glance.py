"""A look at a request in Anthropic's words that tells whether anything of it may have to change.

It knows the plainest requests, which are sent as they came: texts said in turn, under a system
prompt of texts, and nothing asked beside them that the model does not take. All others have to be
looked into; what is wrong with one, or how it is mended, is not said here.
"""

from collections.abc import Sequence

import msgspec

from cllm.core.message import Message, Text
from cllm.core.prompt import Prompt
from cllm.wire.aliases import Aliases, with_named_tools
from cllm.wire.anthropic_history import Turn, count_marks
from cllm.wire.anthropic_options import Fields, Notices, fit, without_idle_choice
from cllm.wire.anthropic_parts import DIALECT, UNREADABLE, decode_parts
from cllm.wire.anthropic_request import IDS, NAMES

SPEAKERS = ("user", "assistant")
NO_HEAD = Turn(role="system", parts=())


class _Words(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="text"):
    text: str


class _Said(msgspec.Struct, forbid_unknown_fields=True):
    role: str
    content: str | list[_Words]


_said = msgspec.json.Decoder(_Said)


def is_plain_talk(prompt: Prompt) -> bool:
    """Whether a prompt of Anthropic's own is such that all of it is sent as it is."""
    if not _is_in_turn(prompt.messages):
        return False
    head = _head(prompt.system)
    return head is not None and _is_taken(prompt.parameters, head, prompt.model)


def _is_in_turn(messages: Sequence[Message]) -> bool:
    """Whether the user and the model say something in turn, the user first and last."""
    if len(messages) % 2 == 0:
        return False
    try:
        for place, message in enumerate(messages):
            if message.role != SPEAKERS[place % 2] or message.dialect != DIALECT:
                return False
            if not _says_something(_said.decode(message.raw).content):
                return False
    except UNREADABLE:
        return False
    return True


def _says_something(content: str | list[_Words]) -> bool:
    if isinstance(content, str):
        return not _is_blank(content)
    return bool(content) and not any(_is_blank(block.text) for block in content)


def _head(system: Message | None) -> Turn | None:
    """The system prompt; None if not all of it can be sent."""
    if system is None:
        return NO_HEAD
    parts = decode_parts(system)
    if any(type(part) is not Text or _is_blank(part.text) for part in parts):
        return None
    return Turn(role="system", parts=parts)


def _is_taken(parameters: Fields, head: Turn, model: str) -> bool:
    """Whether the parameters fit the model and one another, under tools' own names."""
    if parameters.get("max_tokens") is None:
        return False
    notices = Notices()
    named = with_named_tools(parameters, Aliases(names=NAMES, ids=IDS), "name")
    fitted = fit(without_idle_choice(dict(named), notices), model, notices)
    return fitted == parameters and not notices and count_marks(fitted, head, ()) <= 1


def _is_blank(text: str) -> bool:
    return not text or text.isspace()

"""Separates the system prompt of a request from its messages, which are saved without it.

Changes no text of a message, except for the operator's prefix of a system prompt.
"""

import msgspec
from msgspec.structs import replace

from cllm.core.message import Message
from cllm.core.notice import Notice, NoticeCollector
from cllm.core.prompt import Original, Prompt
from cllm.engine.request import TurnInput
from cllm.history.system_prompt import GivenPrompt, prefix_message


class SplitMessages(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a request, and its system prompt.

    `prompt_messages`: those to send, without a system prompt that is the first message.
    `saved_messages`: those without the role `system`. `index` is that of the system prompt,
    `ignored_indexes` are those of other system messages; a continued conversation ignores them.
    """

    system: Message | None
    prompt_messages: tuple[Message, ...]
    saved_messages: tuple[Message, ...]
    ignored_indexes: tuple[int, ...] = ()
    index: int = 0

    @property
    def has_inner_system(self) -> bool:
        """Whether system messages are among the messages of the prompt."""
        return len(self.prompt_messages) != len(self.saved_messages)

    @property
    def system_prompt(self) -> GivenPrompt:
        if self.system is None:
            return GivenPrompt()
        path = f"messages[{self.index}]"
        return GivenPrompt(said=self.system, text=self.system.text, source=path)

    def ignored_notices(self) -> tuple[Notice, ...]:
        return tuple(NoticeCollector(map(_ignored_notice, self.ignored_indexes)))


def split_messages(prompt: Prompt) -> SplitMessages:
    messages = prompt.messages
    indexes = [index for index, message in enumerate(messages) if message.role == "system"]
    if prompt.system is None and not indexes:
        return SplitMessages(system=None, prompt_messages=messages, saved_messages=messages)
    saved = tuple(message for message in messages if message.role != "system")
    if prompt.system is not None:
        return SplitMessages(
            system=prompt.system,
            prompt_messages=messages,
            saved_messages=saved,
            ignored_indexes=tuple(indexes),
        )
    first = indexes[0]
    return SplitMessages(
        system=messages[first],
        index=first,
        prompt_messages=messages[1:] if first == 0 else messages,
        saved_messages=saved,
        ignored_indexes=tuple(indexes[1:]),
    )


def adjust_original(prompt: Prompt, split: SplitMessages) -> Original | None:
    """Return the original body without the system prompt among its messages."""
    if prompt.original is None or split.system is None or split.index != 0:
        return prompt.original
    return replace(prompt.original, system=split.system, messages=split.prompt_messages)


def set_system_prompt(base: TurnInput, split: SplitMessages) -> TurnInput:
    """Return the input with the system prompt and the messages to send.

    A system prompt after other messages stays there and gets the operator's prefix here. The
    engine adds the prefix to any other system prompt.
    """
    if split.system is None or split.index == 0:
        return replace(base, system=split.system_prompt, messages=split.prompt_messages)
    messages = list(split.prompt_messages)
    if base.prefix:
        messages[split.index] = prefix_message(messages[split.index], base.prefix)
    return replace(base, system=GivenPrompt(), messages=tuple(messages), prefix=None)


def _ignored_notice(index: int) -> Notice:
    return Notice(
        code="system_message_ignored",
        path=f"messages[{index}]",
        message="A request can have only one system prompt; this system message was ignored.",
    )

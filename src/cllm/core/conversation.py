"""Conversations and their turns as frozen values, the same for every store."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import takewhile
from typing import Any, Literal

import msgspec

from cllm.core.errors import InvalidIdError, InvalidTextError
from cllm.core.message import Message, plain_message
from cllm.core.notice import Notice
from cllm.core.reply import Usage

LOCAL_OWNER = "local"
ITEMS_SOURCE = "openai-conversations"
"""The source of conversations whose client adds the messages itself."""
SHELL_SOURCE, CHAT_SOURCE = "shell", "chat"
"""The sources of conversations that a person starts with `cllm` and `cllm chat`."""
OWN_SOURCES = (None, SHELL_SOURCE, CHAT_SOURCE)
"""None: conversations of older versions, and of API clients that name no source."""
CONTEXT_START = re.compile(r"(?:\A|\n\n)--- Context(?: Error)?:")
CONTEXT_MARKER = re.compile(r"--- Context(?: Error)?:")
CONTEXT_END = "--- End Context ---"

TurnState = Literal["running", "complete", "incomplete", "failed"]
HISTORY_STATES = ("complete", "incomplete")
Policy = Literal["captured", "dynamic", "pinned"]


class SystemRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`prompt` is the prompt of a pinned conversation, which is not in its messages."""

    policy: Policy
    source: str | None = None
    prompt: str | None = None


class ContextCommandRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A static context command that ran, with the command line from the settings."""

    name: str
    command: str
    state: str
    exit_code: int | None = None


class ContextRecord(msgspec.Struct, frozen=True, kw_only=True):
    executed_at: datetime
    commands: tuple[ContextCommandRecord, ...] = ()


class ClientPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt of a client that sent its whole history: hashes of its messages' contents.

    `count` messages without system messages, with the hash `digest` of all of them. `hashes` are
    those from index `first` on; the others are those of the turn before.
    """

    count: int
    digest: str
    first: int
    hashes: tuple[str, ...]


class WindowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the history that a turn sent.

    `summary_through` is the last message in a summary. `counted` is the provider's token count of
    the last prompt, about `context` of it for this turn's context. `client` is the prompt of a
    client that sent its whole history. `parameters` are those of a request of the Responses API, as
    a JSON object.
    """

    first_sequence: int
    sent_messages: int
    left_out_messages: int = 0
    summary_through: int | None = None
    counted: int | None = None
    context: int = 0
    client: ClientPrompt | msgspec.UnsetType = msgspec.UNSET
    parameters: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class StandingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A summary that replaces the messages through a sequence number in prompts.

    `tokens` is its length in a prompt, `before` the summary that it replaces.
    """

    text: str
    through: int
    tokens: int
    model: str | None = None
    usage: Usage | None = None
    cost: float | None = None
    made_at: datetime | None = None
    before: "StandingSummary | None" = None

    def up_to(self, sequence: int) -> "StandingSummary | None":
        """Return the newest of this and the earlier summaries that ends at or before a number."""
        summary: StandingSummary | None = self
        while summary is not None and summary.through > sequence:
            summary = summary.before
        return summary


class TurnFailure(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str


INTERRUPTION = TurnFailure(code="interrupted", message="The turn was interrupted before it ended.")
"""The failure of a cancelled turn, or of one whose process died; incomplete if it has text."""

CANCELLATION = TurnFailure(code="cancelled", message="The client cancelled the response.")


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn. Turns with the same `place` are variants; one of them is on the default path."""

    id: str
    place: str
    state: TurnState
    messages: tuple[Message, ...]
    started_at: datetime
    ended_at: datetime | None = None
    model: str | None = None
    provider: str | None = None
    usage: Usage | None = None
    cost: float | None = None
    notices: tuple[Notice, ...] = ()
    window: WindowRecord | None = None
    failure: TurnFailure | None = None

    @property
    def asked(self) -> tuple[Message, ...]:
        """The messages before the first reply."""
        return tuple(takewhile(lambda message: message.role != "assistant", self.messages))

    @property
    def is_history(self) -> bool:
        return self.state in HISTORY_STATES

    @property
    def has_failed(self) -> bool:
        """Whether a repeated request replaces it: also if part of the reply was sent."""
        return self.state == "failed" or self.failure is not None


ParentKind = Literal["branch", "compaction", "side"]


class Branch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parent of a conversation, and the sequence number of its last message that belongs here.

    - `branch`: the conversation starts with the parent's messages up to that one; 0 is none.
    - `compaction`: its first messages summarise the parent's messages up to that one.
    - `side`: an agent sent the parent's messages up to that one before the messages here.
    """

    conversation: str
    sequence: int
    kind: ParentKind = "branch"


class StoredConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation: the turns of its default path, and their variants.

    `first_sequence` is the number of the first message in `turns`; it is above 1 if only the newest
    messages are loaded. The system prompt has no number. `pins` are the numbers of messages that
    stay in every window.

    `family` is the same for a conversation and its branches: the ID of the first one, or the key of
    a client's session. None is the conversation's own ID. `source` is the client that it was
    recorded from. A side conversation is work of an agent that is not part of its conversation; its
    `path_start` is the digest of the parent's messages that were sent before its own.
    """

    id: str
    created_at: datetime
    updated_at: datetime
    model: str | None = None
    owner: str = LOCAL_OWNER
    name: str | None = None
    title: str | None = None
    system: Message | None = None
    system_record: SystemRecord | None = None
    context_record: ContextRecord | None = None
    turns: tuple[Turn, ...] = ()
    variants: tuple[Turn, ...] = ()
    first_sequence: int = 1
    pins: tuple[int, ...] = ()
    summary: StandingSummary | None = None
    parent: Branch | None = None
    family: str | None = None
    source: str | None = None
    is_side: bool = False
    path_start: bytes | None = None
    archived_at: datetime | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def ref(self) -> str:
        return choose_ref(self.name, self.id)

    @property
    def family_key(self) -> str:
        return self.id if self.family is None else self.family

    @property
    def messages(self) -> tuple[Message, ...]:
        head = () if self.system is None else (self.system,)
        return head + tuple(message for turn in self.turns for message in turn.messages)

    @property
    def message_count(self) -> int:
        """Messages on the default path, without the system prompt."""
        return self.first_sequence - 1 + sum([len(turn.messages) for turn in self.turns])

    @property
    def is_untouched(self) -> bool:
        """Whether it has no message yet."""
        has_history = self.first_sequence > 1 or any(turn.is_history for turn in self.turns)
        return self.system is None and not has_history

    @property
    def kept_prompt(self) -> Message | None:
        record = self.system_record
        if self.system is not None or record is None or record.prompt is None:
            return self.system
        return plain_message("system", record.prompt)

    def history(self, *, before: str | None = None) -> tuple[Turn, ...]:
        """Return the turns to send: all, or those before the turn that is answered again."""
        turns = self.turns
        if before is not None:
            places = [turn.place for turn in turns]
            turns = turns[: places.index(before)] if before in places else turns
        return tuple([turn for turn in turns if turn.state in HISTORY_STATES])

    def has_system_message(self) -> bool:
        return self.system is not None

    def has_context_in_system_message(self) -> bool:
        if self.system is None:
            return False
        text = self.system.text
        return CONTEXT_MARKER.search(text) is not None and CONTEXT_END in text

    def numbered_messages(self) -> Iterator[tuple[int, Turn, Message]]:
        number = self.first_sequence
        for turn in self.turns:
            for message in turn.messages:
                yield number, turn, message
                number += 1

    @property
    def total_tokens(self) -> int:
        turns = self.turns + self.variants
        return sum(turn.usage.total for turn in turns if turn.usage is not None)


def find_turn(conversation: StoredConversation, turn_id: str) -> Turn | None:
    """Return the turn or variant with this ID."""
    turns = conversation.turns + conversation.variants
    return next((turn for turn in turns if turn.id == turn_id), None)


def find_running(conversation: StoredConversation) -> tuple[Turn, ...]:
    turns = conversation.turns + conversation.variants
    return tuple([turn for turn in turns if turn.state == "running"])


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation in a list: everything but its messages."""

    id: str
    created_at: datetime
    updated_at: datetime
    message_count: int
    model: str | None = None
    name: str | None = None
    title: str | None = None
    source: str | None = None
    is_side: bool = False
    parent: Branch | None = None
    archived_at: datetime | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def ref(self) -> str:
        return choose_ref(self.name, self.id)


REMINDER, REMINDER_END = "<system-reminder>", "</system-reminder>"
"""The tags of a text that Claude Code adds to a user message."""
INJECTED = (
    "Here are summaries of some files present in my git repository.",
    "Here are READ ONLY files",
    "I have *added these files to the chat*",
    "I am not sharing any files that you can edit yet.",
    "I committed the changes with git hash",
    "^C KeyboardInterrupt",
    "This is the Qwen Code. We are setting up the context for our chat.",
)
"""Starts of user messages that aider and Qwen Code add with a reply.

aider moves and rewrites these pairs. That of Qwen Code contains the date and the files.
"""


def remove_reminders(text: str) -> str:
    """Return the text without reminders and without white space around it."""
    if REMINDER_END not in text:
        return text.strip()
    *pieces, rest = text.split(REMINDER_END)
    split = (piece.partition(REMINDER) for piece in pieces)
    kept = [before if tag else before + REMINDER_END for before, tag, _ in split]
    return "".join([*kept, rest]).strip()


TITLE_LENGTH = 100
MAX_TITLE_LENGTH = 200
BRANCH_PREFIX = "Branch of "


def choose_ref(name: str | None, conversation_id: str) -> str:
    """Return the name, or the ID if the name is not a valid ID, as in a file."""
    return name if name and is_valid_id(name) else conversation_id


MAX_TITLE_MESSAGES = 8
"""The number of user messages that are read for a title."""


def choose_title(texts: Iterable[str]) -> str | None:
    """Return a title from the first user message that the client did not add itself."""
    first = ""
    for text in texts:
        if not remove_reminders(text).startswith(INJECTED):
            return make_title(text)
        first = first or text
    return make_title(first)


def make_title(text: str) -> str | None:
    """Return the start of the text on one line, without reminders.

    Databases refuse NUL in a title.
    """
    shown = remove_reminders(text) or text
    line = " ".join(shown.replace("\0", " ").split())
    if not line:
        return None
    return cut_text(line, TITLE_LENGTH)


def make_branch_title(title: str | None) -> str:
    """Return the title of a branch of a conversation with this title."""
    if title is None:
        return f"{BRANCH_PREFIX}Conversation"
    if title.startswith(BRANCH_PREFIX):
        return title
    quoted = cut_text(title, MAX_TITLE_LENGTH - len(BRANCH_PREFIX) - len("''"))
    return f"{BRANCH_PREFIX}'{quoted}'"


def cut_text(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."


def check_title(title: str | None) -> str | None:
    """Return the title without surrounding white space, or None if it is blank."""
    trimmed = (title or "").strip()
    if len(trimmed) > MAX_TITLE_LENGTH:
        raise InvalidTextError(
            f"The title has {len(trimmed)} characters; use at most {MAX_TITLE_LENGTH}."
        )
    return trimmed or None


def make_message_id(turn_id: str, ordinal: int) -> str:
    """Return the ID of a message: its turn and its index in the turn."""
    return f"{turn_id}-{ordinal}"


VALID_ID = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)


def is_valid_id(ref: str) -> bool:
    return VALID_ID.fullmatch(ref) is not None


FILES_PREFIX = "files:"
"""Before the ID of a conversation file, as in the lists of a server."""


def check_ref(ref: str) -> str:
    """Check an ID or a name, which can have the prefix of conversation files."""
    check_id(ref.removeprefix(FILES_PREFIX))
    return ref


def check_id(ref: str) -> str:
    if not is_valid_id(ref):
        raise InvalidIdError(ref)
    return ref

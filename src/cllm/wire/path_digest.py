"""Path digests: identify a path of messages by its meaning.

The digest of a message covers all messages of its path up to it, except system messages. Equal
digests mean the same history, however a client formats it. The following does not change a digest:

- the protocol, text as a string or as blocks, the order of keys, `null` or absent fields;
- cache marks, reminders that an agent adds to user messages;
- reasoning, also as `<think>` in the text of a reply;
- pairs of messages that a client adds to the history (`INJECTED`);
- white space around user text, white space in replies;
- arguments of tool calls and contents of tool results.

A digest has a version, 16 bytes for the meaning, and 8 bytes for the IDs of the tool calls. Two
digests with the same meaning and other IDs differ in the last 8 bytes only.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TypeGuard

import msgspec

from cllm.core.conversation import (
    INJECTED,
    ClientPrompt,
    StoredConversation,
    Turn,
    WindowRecord,
    remove_reminders,
)
from cllm.core.message import (
    AnyPart,
    Dialect,
    Document,
    Image,
    Message,
    Refusal,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.wire.convert import parts_of
from cllm.wire.errors import MalformedError

VERSION = b"\x01"
MEANING_SIZE, IDS_SIZE, WHOLE_SIZE = 16, 8, 4
MEANING_END = len(VERSION) + MEANING_SIZE
ROOT = VERSION + bytes(MEANING_SIZE + IDS_SIZE)
"""The digest of a path without messages."""

UNREADABLE = (MalformedError, RecursionError, ValueError, msgspec.MsgspecError)
THINKING_TAG = "<think>"
THINKING = re.compile(r"<think>.*?</think>")
"""Reasoning in the text of a reply: some clients send it back this way."""
INJECTED_REPLIES = (
    "Ok.",
    "Ok, ",
    "I see that you interrupted my previous reply.",
    "Got it. Thanks for the context!",
)
"""Starts of the replies in these pairs."""
MAX_INJECTED_REPLY = 200


def meaning_of(digest: bytes) -> bytes:
    """Return the digest without the IDs of tool calls."""
    return digest[:MEANING_END]


def digest_path(messages: Iterable[Message], start: bytes = ROOT) -> list[bytes]:
    """Return the digest after each message of a path that continues after `start`."""
    return digest_contents([read_content(message) for message in messages], start)


def digest_contents(contents: Sequence["MessageContent"], start: bytes = ROOT) -> list[bytes]:
    """Return the digests of a path from the contents of its messages."""
    digests: list[bytes] = []
    meaning, ids = start[len(VERSION) : MEANING_END], start[MEANING_END:]
    injected = find_injected(contents)
    for index, content in enumerate(contents):
        if index not in injected:
            for token in content.tokens:
                meaning = blake2b(meaning + token, digest_size=MEANING_SIZE).digest()
            for call in content.calls:
                ids = blake2b(ids + call, digest_size=IDS_SIZE).digest()
        digests.append(VERSION + meaning + ids)
    return digests


def find_injected(contents: Sequence["MessageContent"]) -> set[int]:
    """Return the indexes of the messages in pairs that a client added itself."""
    users = [
        index
        for index, content in enumerate(contents[:-1])
        if content.is_injected and contents[index + 1].is_injected_reply
    ]
    return {*users, *(index + 1 for index in users)}


def digest_turn(messages: Sequence[Message], before: bytes | None) -> Sequence[bytes | None]:
    """Return the digests of a turn's messages; all None if the digest before it is."""
    return [None] * len(messages) if before is None else digest_path(messages, before)


class TurnPaths(msgspec.Struct, frozen=True):
    """The digests of the messages of each turn, and the turn before it, by the ID of the turn."""

    digests: dict[str, list[bytes]]
    parents: dict[str, str | None]

    def path_to(self, turn_id: str) -> list[str]:
        """Return the IDs of the turns from the first one to this one."""
        path: list[str] = []
        current: str | None = turn_id
        while current is not None:
            path.append(current)
            current = self.parents[current]
        return path[::-1]


def trace_paths(conversation: StoredConversation) -> TurnPaths:
    """Return the paths of all turns of a conversation that is loaded from its start.

    The path of a turn is the turns with a history before it. A failed turn is not part of the path
    of others. The path of a turn whose slot is not on the default path is that of the turn that
    ran before it.
    """
    paths = TurnPaths({}, {})
    start = path_start_of(conversation)
    slot_parents: dict[str, str | None] = {}
    parent: str | None = None

    def add(turn: Turn, parent: str | None) -> None:
        before = start if parent is None else paths.digests[parent][-1]
        paths.digests[turn.id] = digest_path(turn.messages, before)
        paths.parents[turn.id] = parent

    for turn in conversation.turns:
        slot_parents[turn.place] = parent
        add(turn, parent)
        parent = turn.id if turn.is_history and turn.messages else parent
    for turn in conversation.variants:
        if turn.place in slot_parents:
            add(turn, slot_parents[turn.place])
    if len(paths.digests) < len(conversation.turns) + len(conversation.variants):
        previous: str | None = None
        for turn in _in_order(conversation):
            if turn.id not in paths.digests:
                add(turn, slot_parents.setdefault(turn.place, previous))
            previous = turn.id if turn.is_history and turn.messages else previous
    return paths


def _in_order(conversation: StoredConversation) -> list[Turn]:
    return sorted(conversation.turns + conversation.variants, key=lambda turn: turn.started_at)


def digest_turns(conversation: StoredConversation) -> dict[str, list[bytes]]:
    """Return the digests of the messages of each turn, by its ID."""
    return trace_paths(conversation).digests


def path_start_of(conversation: StoredConversation) -> bytes:
    return ROOT if conversation.path_start is None else conversation.path_start


class MessageContent(msgspec.Struct, frozen=True, gc=False):
    """What is compared of a message: hashes of its texts, tools and files, and IDs of its calls.

    `is_injected` and `is_injected_reply`: it can be the first or second message of a pair that a
    client adds. `whole` is a short hash of the whole content, without cache marks and IDs.
    """

    tokens: tuple[bytes, ...]
    calls: tuple[bytes, ...] = ()
    is_injected: bool = False
    is_injected_reply: bool = False
    whole: str = ""


NO_CONTENT = MessageContent(())


class _RecentContents:
    """The contents of recent messages by their JSON: an agent sends its history again and again.

    docs/decisions/0024-recognise-whole-histories.md has the measurement and the bound.
    """

    MAX_BYTES = 16 * 1024 * 1024

    def __init__(self) -> None:
        self._by_raw: dict[tuple[Dialect, Role], dict[bytes, MessageContent]] = {}
        self._size = 0

    def get(self, message: Message) -> MessageContent | None:
        contents = self._by_raw.get((message.dialect, message.role))
        return None if contents is None else contents.get(message.raw)

    def add(self, message: Message, content: MessageContent) -> None:
        tokens = len(content.tokens) + len(content.calls)
        size = len(message.raw) + ENTRY_BYTES + TOKEN_BYTES * tokens
        self._size += size
        if self._size > self.MAX_BYTES:
            self._by_raw = {}
            self._size = size
        if self._size <= self.MAX_BYTES:
            contents = self._by_raw.setdefault((message.dialect, message.role), {})
            contents[message.raw] = content


ENTRY_BYTES, TOKEN_BYTES = 400, 60
"""Approximate memory of an entry without its JSON, and of each token."""
_recent = _RecentContents()


def read_content(message: Message) -> MessageContent:
    if message.role == "system":
        return NO_CONTENT
    content = _recent.get(message)
    if content is None:
        content = _read_content(message)
        _recent.add(message, content)
    return content


def _read_content(message: Message) -> MessageContent:
    tokens, calls = _tokens(message)
    return MessageContent(
        tuple(blake2b(token, digest_size=MEANING_SIZE).digest() for token in tokens),
        tuple(blake2b(_encode(call), digest_size=IDS_SIZE).digest() for call in calls),
        is_injected=message.role == "user" and any(map(_is_injected, tokens)),
        is_injected_reply=message.role == "assistant" and _is_injected_reply(tokens),
        whole=blake2b(_encode_whole(message), digest_size=WHOLE_SIZE).hexdigest(),
    )


def have_same_meaning(one: Message, other: Message) -> bool:
    return read_content(one).tokens == read_content(other).tokens


def is_cut_short(message: Message, whole: Message) -> bool:
    """Whether a reply is only the beginning of the text of another one."""
    tokens, whole_tokens = _tokens(message)[0], _tokens(whole)[0]
    if tokens == whole_tokens or len(tokens) > 1:
        return False
    return not tokens or (bool(whole_tokens) and whole_tokens[0].startswith(tokens[0]))


def describe_client_prompt(hashes: tuple[str, ...], previous: WindowRecord | None) -> ClientPrompt:
    """Return the record of a client's prompt; `previous` is that of the turn before.

    `hashes` are those of the whole contents of its messages, without system messages.
    """
    earlier = msgspec.UNSET if previous is None else previous.client
    first = 0
    if not isinstance(earlier, msgspec.UnsetType) and earlier.count <= len(hashes):
        is_same = earlier.digest == _join_hashes(hashes[: earlier.count])
        first = earlier.count if is_same else 0
    return ClientPrompt(
        count=len(hashes), digest=_join_hashes(hashes), first=first, hashes=hashes[first:]
    )


def _join_hashes(hashes: Sequence[str]) -> str:
    return blake2b("".join(hashes).encode(), digest_size=IDS_SIZE).hexdigest()


def _encode_whole(message: Message) -> bytes:
    try:
        return msgspec.json.encode([_describe_part(part) for part in _read_parts(message)])
    except UNREADABLE:
        return message.raw


def _describe_part(part: AnyPart) -> object:
    match part:
        case ToolCall():
            return part.name, _parse_arguments(part.arguments)
        case ToolResult():
            return [_describe_part(each) for each in part.content]
        case Unknown():
            return part.raw.decode("utf-8", "replace")
        case Thinking() | Text() | Refusal():
            return type(part).__name__, part.text
        case Image() | Document():
            return part.data, part.url, getattr(part, "text", None), getattr(part, "file_id", None)
        case _:
            return None


def _parse_arguments(arguments: str) -> object:
    """Return the arguments in a form that does not depend on white space and order."""
    try:
        value = msgspec.json.decode(arguments)
        return msgspec.json.encode(value, order="sorted").decode()
    except UNREADABLE:
        return arguments.encode("utf-8", "replace").decode()


def _tokens(message: Message) -> tuple[list[bytes], list[str]]:
    """Return the content of a message that is compared, and the IDs of its tool calls."""
    try:
        parts = _read_parts(message)
        if message.role == "assistant":
            tokens, calls = _reply_tokens(parts)
            return (tokens, calls) if tokens else (_function_tokens(message), [])
        tokens = [token for part in parts for token in _input_tokens(part)]
        # A message that has only reminders is a message of its own, such as a sub-agent's report.
        tokens = tokens or [b"u" + _encode(part.text) for part in parts if _is_text(part)]
    except UNREADABLE:
        return [b"!" + message.raw], []
    return tokens or [b"u"], []


def _is_text(part: AnyPart) -> TypeGuard[Text]:
    return isinstance(part, Text) and bool(part.text.strip())


def _read_parts(message: Message) -> tuple[AnyPart, ...]:
    """Return the parts; a damaged message need not be an object."""
    if not message.raw.lstrip().startswith(b"{"):
        raise MalformedError("A message must be a JSON object.")
    return parts_of(message)


def _reply_tokens(parts: tuple[AnyPart, ...]) -> tuple[list[bytes], list[str]]:
    """Return the whole text, then the tools: protocols order and split them differently."""
    texts = [part.text for part in parts if isinstance(part, Text | Refusal)]
    calls = [part for part in parts if isinstance(part, ToolCall)]
    text = "".join("".join(texts).split())
    if THINKING_TAG in text:
        text = THINKING.sub("", text)
    tokens = [b"a" + _encode(text)] if text else []
    tokens += [token for part in parts if isinstance(part, Image) for token in _input_tokens(part)]
    tokens += [b"c" + _encode(call.name) for call in calls]
    tokens += [b"?" + _describe_unknown(part) for part in parts if isinstance(part, Unknown)]
    return tokens, [call.id or call.arguments for call in calls]


def _describe_unknown(part: Unknown) -> bytes:
    """Return the type and name of a block: clients change the rest."""
    value = msgspec.json.decode(part.raw)
    fields = value if isinstance(value, dict) else {}
    return msgspec.json.encode([fields.get("type"), fields.get("name")])


def _function_tokens(message: Message) -> list[bytes]:
    """Return the call in the format of OpenAI's older functions, which has no ID."""
    call = message.json().get("function_call") if b'"function_call"' in message.raw else None
    return [] if call is None else [b"f" + msgspec.json.encode(call, order="sorted")]


def _input_tokens(part: AnyPart) -> Iterator[bytes]:
    match part:
        case Text():
            if text := remove_reminders(part.text):
                yield b"u" + _encode(text)
        case ToolResult():
            yield b"r"
        case Image():
            yield b"i" + _encode(part.data or part.url or "")
        case Document():
            content = part.data or part.text or part.url or part.file_id or ""
            yield b"d" + _encode(content)
        case Unknown():
            value = msgspec.json.decode(part.raw)
            yield b"?" + msgspec.json.encode(value, order="deterministic")
        case _:
            pass


def _is_injected_reply(tokens: list[bytes]) -> bool:
    is_short = len(tokens) == 1 and len(tokens[0]) <= MAX_INJECTED_REPLY
    return is_short and tokens[0].startswith(_INJECTED_REPLY_TOKENS)


def _is_injected(token: bytes) -> bool:
    return token.startswith(_INJECTED_TOKENS)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


_INJECTED_TOKENS = tuple(b"u" + _encode(text) for text in INJECTED)
_INJECTED_REPLY_TOKENS = tuple(b"a" + _encode("".join(text.split())) for text in INJECTED_REPLIES)

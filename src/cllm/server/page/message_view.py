"""Turns as values for the templates: messages, tool calls, states, variants.

A result is shown at its call. System messages are never shown here.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal, assert_never
from urllib.parse import quote

import msgspec
from markupsafe import Markup, escape

from cllm.core.conversation import StoredConversation, Turn, make_message_id
from cllm.core.message import (
    AnyPart,
    Document,
    Image,
    Message,
    RedactedThinking,
    Refusal,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.server.page.code import render_code
from cllm.server.page.conversation_list import conversation_url
from cllm.server.page.figures import UNKNOWN, format_cost, format_tokens
from cllm.server.page.markdown import (
    MAX_MARKDOWN,
    is_data_image,
    is_link,
    render_image,
    render_markdown,
    render_plain,
)
from cllm.server.page.texts import TEXTS
from cllm.wire.convert import parts_of
from cllm.wire.errors import MalformedError

MAX_TEXT = 200_000
"""The characters of texts that one response renders; later ones are cut."""
MAX_MEDIA = 6_000_000
"""The characters of images and files in one response; others are not shown."""
MAX_OUTPUT = 20_000
MAX_CUT = 2_000
MAX_ARGUMENT = 80
MILLISECONDS = 1000
MINUTE = 60

PartKind = Literal["text", "thinking", "tool", "media", "refusal", "unknown", "note"]
ToolState = Literal["done", "error", "running", "open"]


class ToolLine(msgspec.Struct, frozen=True, kw_only=True):
    """A call and its result. `argument` is the first one."""

    name: str
    argument: str
    state: ToolState
    seconds: str
    input: Markup
    output: tuple[Markup, ...]


class PartItem(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a message; `missing` is the number of characters that are not shown."""

    kind: PartKind
    html: Markup = Markup()
    label: str = ""
    missing: int = 0
    tool: ToolLine | None = None


class MessageArticle(msgspec.Struct, frozen=True, kw_only=True):
    """One message. `sequence` is None off the default path. Without parts it is an anchor."""

    id: str
    sequence: int | None
    role: str
    time: datetime
    parts: tuple[PartItem, ...]
    is_first_reply: bool = False
    is_last_reply: bool = False


class VariantSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a turn among the variants of its place, and the URLs of its neighbours."""

    number: int
    count: int
    previous_url: str | None
    next_url: str | None


class TurnArticle(msgspec.Struct, frozen=True, kw_only=True):
    turn: Turn
    url: str
    messages: tuple[MessageArticle, ...]
    facts: tuple[str, ...]
    variants: VariantSteps | None
    is_variant: bool
    has_reply: bool


class RenderLimits(msgspec.Struct, kw_only=True):
    """What one response may still contain, in characters. `is_whole`: texts are not cut."""

    text: int = MAX_TEXT
    media: int = MAX_MEDIA
    is_whole: bool = False

    def cut(self, text: str, limit: int) -> tuple[str, int]:
        """Return the text to show, and the number of characters that are missing."""
        limit = limit if self.text > 0 else min(limit, MAX_CUT)
        shown = text if self.is_whole else text[:limit]
        self.text -= len(shown)
        return shown, len(text) - len(shown)

    def take_media(self, size: int) -> bool:
        has_room = size <= self.media
        self.media -= size if has_room else 0
        return has_room


class NumberedTurn(msgspec.Struct, frozen=True):
    """A turn and the number of its first message."""

    turn: Turn
    first: int


class _Result(msgspec.Struct, frozen=True):
    part: ToolResult
    turn: Turn


def turn_url(public_id: str, turn_id: str) -> str:
    return f"{conversation_url(public_id)}/t/{quote(turn_id, safe='')}"


def view_turns(
    conversation: StoredConversation,
    shown: Sequence[NumberedTurn],
    *,
    public_id: str,
    limits: RenderLimits | None = None,
) -> list[TurnArticle]:
    """Return the turns, which can be variants in place of turns of the default path."""
    viewer = _TurnViewer(conversation, shown, public_id, limits or RenderLimits())
    return list(viewer.view())


def decode_parts(message: Message) -> tuple[AnyPart, ...]:
    """Return the parts; a message that cannot be read is an unknown part."""
    try:
        return parts_of(message)
    except MalformedError:
        return (Unknown(dialect=message.dialect, raw=message.raw, field="message"),)


class _TurnViewer:
    def __init__(
        self,
        conversation: StoredConversation,
        shown: Sequence[NumberedTurn],
        public_id: str,
        limits: RenderLimits,
    ) -> None:
        self._public_id = public_id
        self._limits = limits
        self._parts = {
            (one.turn.id, index): decode_parts(message)
            for one in shown
            for index, message in enumerate(one.turn.messages)
            if message.role != "system"
        }
        self._shown = shown
        self._on_path = {turn.id for turn in conversation.turns}
        self._places: dict[str, list[Turn]] = defaultdict(list)
        for turn in (*conversation.turns, *conversation.variants):
            self._places[turn.place].append(turn)
        self._results, self._merged = self._match_results()

    def view(self) -> Iterator[TurnArticle]:
        for one in self._shown:
            turn = one.turn
            messages = tuple(self._view_messages(one))
            yield TurnArticle(
                turn=turn,
                url=turn_url(self._public_id, turn.id),
                messages=messages,
                facts=tuple(list_facts(turn)),
                variants=self._find_variants(turn),
                is_variant=turn.id not in self._on_path,
                has_reply=any(message.is_first_reply for message in messages),
            )

    def _match_results(self) -> tuple[dict[str, deque[_Result]], set[int]]:
        """Return results by call ID in order, and the identities of those with a call."""
        calls: dict[str, int] = defaultdict(int)
        results: dict[str, deque[_Result]] = defaultdict(deque)
        merged: set[int] = set()
        for one in self._shown:
            for index, _ in enumerate(one.turn.messages):
                for part in self._parts.get((one.turn.id, index), ()):
                    if isinstance(part, ToolCall):
                        calls[part.id] += 1
                    elif isinstance(part, ToolResult) and calls[part.call_id] > 0:
                        calls[part.call_id] -= 1
                        results[part.call_id].append(_Result(part, one.turn))
                        merged.add(id(part))
        return results, merged

    def _find_variants(self, turn: Turn) -> VariantSteps | None:
        turns = sorted(self._places[turn.place], key=lambda one: one.started_at)
        if len(turns) <= 1:
            return None
        index = next(index for index, one in enumerate(turns) if one.id == turn.id)
        urls = [turn_url(self._public_id, one.id) for one in turns]
        return VariantSteps(
            number=index + 1,
            count=len(turns),
            previous_url=urls[index - 1] if index > 0 else None,
            next_url=urls[index + 1] if index + 1 < len(urls) else None,
        )

    def _view_messages(self, one: NumberedTurn) -> Iterator[MessageArticle]:
        turn = one.turn
        replies = [
            index for index, message in enumerate(turn.messages) if message.role == "assistant"
        ]
        for index, message in enumerate(turn.messages):
            if message.role == "system":
                continue
            is_reply = message.role in {"assistant", "tool"}
            parts = self._parts[turn.id, index]
            yield MessageArticle(
                id=make_message_id(turn.id, index),
                sequence=one.first + index if turn.id in self._on_path else None,
                role=message.role,
                time=(turn.ended_at if is_reply else None) or turn.started_at,
                parts=tuple(
                    item for part in parts for item in self._view_part(part, turn, message.role)
                ),
                is_first_reply=bool(replies) and index == replies[0],
                is_last_reply=bool(replies) and index == replies[-1],
            )

    def _view_part(self, part: AnyPart, turn: Turn, role: Role) -> Iterator[PartItem]:
        match part:
            case Text():
                yield self._view_text(part.text, role)
            case Thinking():
                shown, missing = self._limits.cut(part.text, MAX_OUTPUT)
                yield PartItem(kind="thinking", html=render_markdown(shown), missing=missing)
            case RedactedThinking():
                yield PartItem(kind="note", label=TEXTS["encrypted_thinking"])
            case Refusal():
                shown, missing = self._limits.cut(part.text, MAX_OUTPUT)
                yield PartItem(kind="refusal", html=render_plain(shown), missing=missing)
            case ToolCall():
                yield PartItem(kind="tool", tool=self._view_call(part, turn))
            case ToolResult():
                if id(part) not in self._merged:
                    yield PartItem(kind="tool", tool=self._view_lone_result(part))
            case Image() | Document():
                yield PartItem(kind="media", html=self._view_media(part))
            case Unknown():
                yield PartItem(kind="unknown", html=self._view_json(part.raw))
            case other:
                assert_never(other)

    def _view_text(self, text: str, role: Role) -> PartItem:
        """Show the text; that of a person, who does not write Markdown, with its line breaks."""
        is_long = len(text) > MAX_MARKDOWN or self._limits.text <= 0
        shown, missing = self._limits.cut(text, MAX_MARKDOWN)
        has_breaks = role == "user"
        html = render_plain(shown) if is_long else render_markdown(shown, has_breaks=has_breaks)
        return PartItem(kind="text", html=html, missing=missing)

    def _view_call(self, call: ToolCall, turn: Turn) -> ToolLine:
        results = self._results.get(call.id)
        result = results.popleft() if results else None
        pending: ToolState = "running" if turn.state == "running" else "open"
        return ToolLine(
            name=call.name,
            argument=find_first_argument(call.arguments),
            state=pending if result is None else _find_state(result.part),
            seconds=_measure_call(turn, result),
            input=self._view_code(format_json(call.arguments), "json"),
            output=() if result is None else tuple(self._view_output(result.part)),
        )

    def _view_lone_result(self, result: ToolResult) -> ToolLine:
        """The call is in an earlier message, which is not shown."""
        return ToolLine(
            name=TEXTS["tool_result"],
            argument="",
            state=_find_state(result),
            seconds="",
            input=Markup(),
            output=tuple(self._view_output(result)),
        )

    def _view_output(self, result: ToolResult) -> Iterator[Markup]:
        for part in result.content:
            match part:
                case Text():
                    yield self._view_code(part.text)
                case Image() | Document():
                    yield self._view_media(part)
                case Unknown():
                    yield self._view_json(part.raw)
                case other:
                    assert_never(other)

    def _view_code(self, text: str, language: str = "") -> Markup:
        shown, missing = self._limits.cut(text, MAX_OUTPUT)
        code = render_code(shown, language)
        if not missing:
            return code
        note = escape(TEXTS["characters_missing"].format(count=f"{missing:,}"))
        return code + Markup('<p class="cut">{}</p>').format(note)

    def _view_json(self, raw: bytes) -> Markup:
        return self._view_code(format_json(raw.decode("utf-8", "replace")), "json")

    def _view_media(self, part: Image | Document) -> Markup:
        name = getattr(part, "name", None) or part.media_type or TEXTS["image"]
        if isinstance(part, Document) and part.text is not None:
            summary = Markup("<summary><bdi>{}</bdi></summary>").format(name)
            code = self._view_code(part.text)
            return Markup('<details class="file">{}{}</details>').format(summary, code)
        url = part.url or (f"data:{part.media_type};base64,{part.data}" if part.data else "")
        if url.startswith("data:") and not self._limits.take_media(len(url)):
            return _note(name, TEXTS["too_large"])
        if isinstance(part, Image) and (is_data_image(url) or is_link(url)):
            return render_image(url, part.media_type or TEXTS["image"])
        return _view_file(name, url)


def _view_file(name: str, url: str) -> Markup:
    """Return a link to a file, or its name. Content is downloaded, never shown."""
    if is_link(url):
        return render_image(url, name)
    data = url.partition(";base64,")[2]
    if not data or not data.isascii() or '"' in data:
        return _note(name, TEXTS["not_stored_here"])
    return Markup('<a class="file" download="{}" href="{}"><bdi>{}</bdi></a>').format(
        name, f"data:application/octet-stream;base64,{data}", name
    )


def _note(name: str, text: str) -> Markup:
    return Markup('<span class="file"><bdi>{}</bdi> ({})</span>').format(name, text)


def _find_state(result: ToolResult) -> ToolState:
    return "error" if result.is_error else "done"


def _measure_call(turn: Turn, result: _Result | None) -> str:
    """Return the time until the next turn sent the result; unknown within a turn."""
    if result is None or result.turn.id == turn.id or turn.ended_at is None:
        return ""
    return format_seconds((result.turn.started_at - turn.ended_at).total_seconds())


def format_seconds(seconds: float) -> str:
    if seconds < 0:
        return ""
    if seconds < 1:
        return f"{seconds * MILLISECONDS:.0f} ms"
    if seconds < MINUTE:
        return f"{seconds:.1f} s"
    return f"{int(seconds // MINUTE)} min {int(seconds % MINUTE)} s"


def list_facts(turn: Turn) -> Iterator[str]:
    """Yield the model, the time, the tokens and the cost of a turn, those that are known."""
    if turn.model:
        yield turn.model
    if turn.ended_at is not None:
        yield format_seconds((turn.ended_at - turn.started_at).total_seconds()) or UNKNOWN
    if turn.usage is not None:
        yield f"{format_tokens(turn.usage.total)} {TEXTS['tokens']}"
    if turn.usage is not None or turn.cost is not None:
        yield format_cost(turn.cost)


def find_first_argument(arguments: str) -> str:
    """Return the first argument on one line, or the start of arguments that are not JSON."""
    try:
        decoded: Any = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        decoded = arguments
    if isinstance(decoded, dict):
        decoded = next(iter(decoded.values()), "")
    text = decoded if isinstance(decoded, str) else msgspec.json.encode(decoded).decode()
    line = " ".join(text[: 10 * MAX_ARGUMENT].split())
    return line if len(line) <= MAX_ARGUMENT else f"{line[: MAX_ARGUMENT - 1]}…"


def format_json(text: str) -> str:
    """Return indented JSON, or the text if it is long or not JSON."""
    if len(text) > MAX_OUTPUT:
        return text
    try:
        return msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, RecursionError):
        return text


def number_turns(conversation: StoredConversation) -> Iterator[NumberedTurn]:
    number = conversation.first_sequence
    for turn in conversation.turns:
        yield NumberedTurn(turn, number)
        number += len(turn.messages)


def replace_turn(turns: Iterable[NumberedTurn], variant: Turn) -> list[NumberedTurn]:
    """Return the turns with a variant in its place."""
    return [
        NumberedTurn(variant, one.first) if one.turn.place == variant.place else one
        for one in turns
    ]

"""Random histories that a provider takes, and a second opinion on what a window must keep.

The second opinion goes through the messages one by one and shares nothing with the code that it
judges.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from cllm.core.message import AnyPart, Role, Text, Thinking, ToolCall, ToolResult
from cllm.history.rules import HistoryProfile
from cllm.window.turn_index import IndexedMessage, TurnIndex, make_indexed_message
from cllm.wire.messages import OutgoingMessage

IDS = ("call_1", "call_2", "call_3")


class SampleHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A history, message by message, and how many tokens each has."""

    messages: tuple[OutgoingMessage, ...]
    tokens: tuple[int, ...]

    def items(self, count: int | None = None) -> list[IndexedMessage]:
        pairs = zip(self.messages[:count], self.tokens[:count], strict=True)
        return [
            make_indexed_message(message.role, message.parts, tokens) for message, tokens in pairs
        ]

    def turn_index(self, count: int | None = None) -> TurnIndex:
        return TurnIndex(self.items(count))

    def chosen(self, positions: Sequence[int]) -> "SampleHistory":
        return SampleHistory(
            messages=tuple(self.messages[n] for n in positions),
            tokens=tuple(self.tokens[n] for n in positions),
        )


def _spoken(role: Role, *parts: AnyPart) -> OutgoingMessage:
    return OutgoingMessage(role=role, parts=parts)


def _text(draw: Any, word: str) -> Text:
    return Text(text=f"{word} {draw(st.integers(0, 9))}")


def _system(draw: Any, profile: HistoryProfile) -> list[OutgoingMessage]:
    allowed = profile.system in ("anywhere", "after_user")
    if allowed and draw(st.integers(0, 5)) == 0:
        return [_spoken("system", _text(draw, "Note"))]
    return []


def _results(draw: Any, profile: HistoryProfile, ids: Sequence[str]) -> list[OutgoingMessage]:
    """All results of an assistant's message: as messages of tools, or in one of the user's."""
    results = [
        ToolResult(call_id=i, content=(_text(draw, "found"),) if draw(st.booleans()) else ())
        for i in ids
    ]
    if profile.has_tool_role:
        return [_spoken("tool", result) for result in results]
    beside: tuple[AnyPart, ...] = ()
    if profile.content_with_results != "nothing" and draw(st.integers(0, 4)) == 0:
        beside = (_text(draw, "and"),)
    return [_spoken("user", *results, *beside)]


def _calling(draw: Any) -> tuple[OutgoingMessage, tuple[str, ...]]:
    """The same ids come again and again; they differ within one message."""
    ids = IDS[: draw(st.integers(1, 3))]
    parts: list[AnyPart] = []
    if draw(st.booleans()):
        parts.append(Thinking(text="Hm", signature="signed"))
    if draw(st.booleans()):
        parts.append(_text(draw, "Looking"))
    parts += [ToolCall(id=i, name="look", arguments="{}") for i in ids]
    return _spoken("assistant", *parts), ids


def _units(draw: Any, profile: HistoryProfile) -> list[OutgoingMessage]:
    found: list[OutgoingMessage] = []
    for _ in range(draw(st.integers(0, 4))):
        found += _system(draw, profile)
        calling, ids = _calling(draw)
        found += [calling, *_results(draw, profile, ids)]
    return found


def _run(draw: Any, profile: HistoryProfile) -> list[OutgoingMessage]:
    count = 1 if profile.repeated_roles == "refused" else draw(st.integers(1, 2))
    return [_spoken("user", _text(draw, "Please")) for _ in range(count)]


@st.composite
def histories(draw: Any, profile: HistoryProfile) -> SampleHistory:
    """A history at a call: its last turn waits for the user's words or for results."""
    messages: list[OutgoingMessage] = []
    for _ in range(draw(st.integers(0, 6))):
        messages += [*_run(draw, profile), *_units(draw, profile), *_system(draw, profile)]
        messages.append(_spoken("assistant", _text(draw, "Done")))
    messages += [*_run(draw, profile), *_units(draw, profile), *_system(draw, profile)]
    tokens = draw(st.lists(st.integers(0, 60), min_size=len(messages), max_size=len(messages)))
    return SampleHistory(messages=tuple(messages), tokens=tuple(tokens))


def _answers(message: OutgoingMessage) -> bool:
    return message.role == "tool" or any(isinstance(part, ToolResult) for part in message.parts)


def split_turns(messages: Sequence[OutgoingMessage]) -> list[list[int]]:
    """The positions of each turn, found by going through all messages."""
    turns: list[list[int]] = []
    speaker = ""
    for position, message in enumerate(messages):
        plain = message.role == "user" and not _answers(message)
        if not turns or (plain and speaker not in ("", "user")):
            turns.append([])
        turns[-1].append(position)
        if message.role != "system":
            speaker = "user" if plain else "other"
    return turns


def split_units(messages: Sequence[OutgoingMessage], turn: Sequence[int]) -> list[list[int]]:
    """A turn in pieces: the user's messages, then each unit."""
    pieces: list[list[int]] = [[]]
    system: list[int] = []
    speaker = ""
    for position in turn:
        message = messages[position]
        if message.role == "system":
            system.append(position)
            continue
        if message.role == "assistant" and speaker != "assistant":
            pieces.append(system)
        else:
            pieces[-1] += system
        system = []
        pieces[-1].append(position)
        speaker = message.role
    pieces[-1] += system
    return pieces


def required_positions(sample: SampleHistory, pins: Sequence[int] = ()) -> list[int]:
    """The positions that no window may leave out. Pins are positions here."""
    turns = split_turns(sample.messages)
    kept = {position for turn in turns if set(turn) & set(pins) for position in turn}
    pieces = split_units(sample.messages, turns[-1])
    spoken = [piece for piece in pieces if any(_says_more(sample.messages[n]) for n in piece)]
    for piece in (pieces[0], *spoken[-1:], pieces[-1]):
        kept.update(piece)
    return sorted(kept)


def _says_more(message: OutgoingMessage) -> bool:
    """Whether the user says something beside results."""
    results = [isinstance(part, ToolResult) for part in message.parts]
    return message.role == "user" and any(results) and not all(results)

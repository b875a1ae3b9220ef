"""Hypothesis strategies for valid histories, and an independent rule for what a window contains.

The rule (`required_positions`) goes through the messages one by one and shares no code with the
implementation.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from cllm.core.message import AnyPart, Role, Text, Thinking, ToolCall, ToolResult
from cllm.history.rules import Profile
from cllm.window.turn_index import IndexedMessage, TurnIndex, make_indexed_message
from cllm.wire.messages import OutgoingMessage

IDS = ("call_1", "call_2", "call_3")


class WeightedHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a history and the tokens of each."""

    messages: tuple[OutgoingMessage, ...]
    tokens: tuple[int, ...]

    def items(self, count: int | None = None) -> list[IndexedMessage]:
        pairs = zip(self.messages[:count], self.tokens[:count], strict=True)
        return [
            make_indexed_message(message.role, message.parts, tokens) for message, tokens in pairs
        ]

    def ledger(self, count: int | None = None) -> TurnIndex:
        return TurnIndex(self.items(count))

    def chosen(self, positions: Sequence[int]) -> "WeightedHistory":
        return WeightedHistory(
            messages=tuple(self.messages[n] for n in positions),
            tokens=tuple(self.tokens[n] for n in positions),
        )


def _make_message(role: Role, *parts: AnyPart) -> OutgoingMessage:
    return OutgoingMessage(role=role, parts=parts)


def _text(draw: Any, word: str) -> Text:
    return Text(text=f"{word} {draw(st.integers(0, 9))}")


def _system(draw: Any, profile: Profile) -> list[OutgoingMessage]:
    allowed = profile.system in ("anywhere", "after_user")
    if allowed and draw(st.integers(0, 5)) == 0:
        return [_make_message("system", _text(draw, "Note"))]
    return []


def _results(draw: Any, profile: Profile, ids: Sequence[str]) -> list[OutgoingMessage]:
    """Draw the results of an assistant message: tool messages, or one user message."""
    results = [
        ToolResult(call_id=i, content=(_text(draw, "found"),) if draw(st.booleans()) else ())
        for i in ids
    ]
    if profile.has_tool_role:
        return [_make_message("tool", result) for result in results]
    extra: tuple[AnyPart, ...] = ()
    if profile.beside_results != "nothing" and draw(st.integers(0, 4)) == 0:
        extra = (_text(draw, "and"),)
    return [_make_message("user", *results, *extra)]


def _draw_calls(draw: Any) -> tuple[OutgoingMessage, tuple[str, ...]]:
    """Draw an assistant message with calls. IDs repeat across messages, not within one."""
    ids = IDS[: draw(st.integers(1, 3))]
    parts: list[AnyPart] = []
    if draw(st.booleans()):
        parts.append(Thinking(text="Hm", signature="signed"))
    if draw(st.booleans()):
        parts.append(_text(draw, "Looking"))
    parts += [ToolCall(id=i, name="look", arguments="{}") for i in ids]
    return _make_message("assistant", *parts), ids


def _units(draw: Any, profile: Profile) -> list[OutgoingMessage]:
    messages: list[OutgoingMessage] = []
    for _ in range(draw(st.integers(0, 4))):
        messages += _system(draw, profile)
        calls, ids = _draw_calls(draw)
        messages += [calls, *_results(draw, profile, ids)]
    return messages


def _run(draw: Any, profile: Profile) -> list[OutgoingMessage]:
    count = 1 if profile.repeats == "refused" else draw(st.integers(1, 2))
    return [_make_message("user", _text(draw, "Please")) for _ in range(count)]


@st.composite
def histories(draw: Any, profile: Profile) -> WeightedHistory:
    """A history before a model call: its last turn ends with user text or tool results."""
    messages: list[OutgoingMessage] = []
    for _ in range(draw(st.integers(0, 6))):
        messages += [*_run(draw, profile), *_units(draw, profile), *_system(draw, profile)]
        messages.append(_make_message("assistant", _text(draw, "Done")))
    messages += [*_run(draw, profile), *_units(draw, profile), *_system(draw, profile)]
    tokens = draw(st.lists(st.integers(0, 60), min_size=len(messages), max_size=len(messages)))
    return WeightedHistory(messages=tuple(messages), tokens=tuple(tokens))


def _has_result(message: OutgoingMessage) -> bool:
    return message.role == "tool" or any(isinstance(part, ToolResult) for part in message.parts)


def split_turns(messages: Sequence[OutgoingMessage]) -> list[list[int]]:
    """Return the positions of each turn."""
    turns: list[list[int]] = []
    speaker = ""
    for position, message in enumerate(messages):
        plain = message.role == "user" and not _has_result(message)
        if not turns or (plain and speaker not in ("", "user")):
            turns.append([])
        turns[-1].append(position)
        if message.role != "system":
            speaker = "user" if plain else "other"
    return turns


def split_units(messages: Sequence[OutgoingMessage], turn: Sequence[int]) -> list[list[int]]:
    """Split a turn into the user messages and each unit."""
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


def required_positions(history: WeightedHistory, pins: Sequence[int] = ()) -> list[int]:
    """Return the positions that every window contains. Pins are positions here."""
    turns = split_turns(history.messages)
    required = {position for turn in turns if set(turn) & set(pins) for position in turn}
    pieces = split_units(history.messages, turns[-1])
    with_text = [
        piece for piece in pieces if any(_has_text_and_results(history.messages[n]) for n in piece)
    ]
    for piece in (pieces[0], *with_text[-1:], pieces[-1]):
        required.update(piece)
    return sorted(required)


def _has_text_and_results(message: OutgoingMessage) -> bool:
    """Whether a user message contains tool results and other parts."""
    results = [isinstance(part, ToolResult) for part in message.parts]
    return message.role == "user" and any(results) and not all(results)

"""The messages of a request in the order and company that Converse accepts.

Roles alternate, calls are answered at once and in order, nothing is empty. Only what is sent is
repaired, and every repair is told; the stored messages are not touched.
"""

from collections.abc import Iterator, Sequence

import msgspec

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Document,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.wire.bedrock_blocks import Block, encode_blocks, encode_mark
from cllm.wire.bedrock_clean import EMPTY, Aliases, Cleaner
from cllm.wire.bedrock_models import Features
from cllm.wire.bedrock_options import Notes
from cllm.wire.spoken import Spoken

ATTACHED = "(document attached)"
CONTINUED = "(continued)"
NO_RESULT = "No result: the call was interrupted."
VIDEO = b'{"video"'


class Turn(msgspec.Struct, kw_only=True):
    """What one side says until the other does. `raw` are its bytes as long as nothing changed."""

    role: Role
    parts: list[AnyPart]
    path: str
    raw: bytes | None = None


class Sent(msgspec.Struct, kw_only=True):
    """A message as it is sent: its blocks, and its own bytes if they say the same."""

    role: Role
    blocks: list[Block]
    raw: bytes | None = None


def encode_history(
    messages: Sequence[Spoken], cleaner: Cleaner, known: Features, notes: Notes
) -> list[Sent]:
    """The messages to send, never none; system messages are not among them."""
    turns = _merge(_cleaned(messages, cleaner))
    turns = _from_user(_without_bare_thinking(turns, notes), notes)
    _pair_calls(turns, cleaner.aliases, notes)
    if known.claude and turns[-1].role == "assistant":
        _trim_end(turns[-1])
    return [sent for turn in turns for sent in _encode_turn(turn, known, notes)]


def _cleaned(messages: Sequence[Spoken], cleaner: Cleaner) -> Iterator[Turn]:
    for place, spoken in enumerate(messages):
        if spoken.role != "system":
            role: Role = "assistant" if spoken.role == "assistant" else "user"
            yield _clean_message(spoken, role, f"messages[{place}]", cleaner)


def _clean_message(spoken: Spoken, role: Role, path: str, cleaner: Cleaner) -> Turn:
    parts: list[AnyPart] = []
    same = True
    for part in spoken.parts:
        kept = cleaner.clean(part, role=role, path=path, own=spoken.raw is not None)
        same = same and kept is part
        if kept is not None:
            parts.append(kept)
        elif part.cache is not None and parts and _can_be_marked(parts[-1]):
            mark = cleaner.clean_mark(part.cache, path)
            parts[-1] = msgspec.structs.replace(parts[-1], cache=mark)
    return Turn(role=role, parts=parts, path=path, raw=spoken.raw if same else None)


def _can_be_marked(part: AnyPart) -> bool:
    return part.cache is None and not isinstance(part, Thinking | RedactedThinking)


def _merge(turns: Iterator[Turn]) -> list[Turn]:
    """Neighbours of one role as one turn; an assistant who said nothing is not heard."""
    merged: list[Turn] = []
    for turn in turns:
        if turn.role == "assistant" and not turn.parts:
            continue
        if merged and merged[-1].role == turn.role:
            merged[-1].parts += turn.parts
            merged[-1].raw = None
        else:
            merged.append(turn)
    return merged


def _without_bare_thinking(turns: list[Turn], notes: Notes) -> list[Turn]:
    """Turns without those that are thinking and nothing else, which no provider takes."""
    kept = [turn for turn in turns if not _is_bare_thinking(turn)]
    if len(kept) == len(turns):
        return turns
    notes.add("thinking_dropped", "messages", "thinking without anything said after it")
    return _merge(iter(kept))


def _is_bare_thinking(turn: Turn) -> bool:
    return turn.role == "assistant" and all(
        isinstance(part, Thinking | RedactedThinking) for part in turn.parts
    )


def _from_user(turns: list[Turn], notes: Notes) -> list[Turn]:
    if turns and turns[0].role == "user":
        return turns
    notes.add("message_added", "messages[0]", "a conversation on Bedrock begins with the user")
    return [Turn(role="user", parts=[Text(text=EMPTY)], path="messages[0]"), *turns]


def _pair_calls(turns: list[Turn], aliases: Aliases, notes: Notes) -> None:
    """Every call answered in the next turn, in call order; every result has its call there."""
    place = 0
    while place < len(turns):
        turn = turns[place]
        calls = _number_calls(turn, aliases) if turn.role == "assistant" else []
        after = place + 1
        if calls and after == len(turns):
            turns.append(Turn(role="user", parts=[], path=turn.path))
        if turn.role == "assistant" and after < len(turns):
            _answer_calls(turns[after], calls, notes)
        elif place == 0:
            _answer_calls(turn, [], notes)
        place += 1


def _number_calls(turn: Turn, aliases: Aliases) -> list[tuple[str, str]]:
    """The calls of a turn: the id each has, and the one it is sent under."""
    calls: list[tuple[str, str]] = []
    seen: dict[str, int] = {}
    for place, part in enumerate(turn.parts):
        if isinstance(part, ToolCall):
            again = seen.get(part.id, 0)
            seen[part.id] = again + 1
            sent = aliases.id(part.id, again=again)
            calls.append((part.id, sent))
            if sent != part.id:
                turn.parts[place] = msgspec.structs.replace(part, id=sent)
                turn.raw = None
        elif isinstance(part, ToolResult):
            turn.parts[place] = Text(text=_result_text(part))
            turn.raw = None
    return calls


def _answer_calls(turn: Turn, calls: list[tuple[str, str]], notes: Notes) -> None:
    open_results = [part for part in turn.parts if isinstance(part, ToolResult)]
    answers: list[AnyPart] = []
    for said, sent in calls:
        found = next((part for part in open_results if part.call_id == said), None)
        if found is None:
            notes.add("result_added", turn.path, f"the call {said!r} was never answered")
            found = ToolResult(call_id=sent, content=(Text(text=NO_RESULT),), is_error=True)
        else:
            open_results = [part for part in open_results if part is not found]
            if sent != said:
                found = msgspec.structs.replace(found, call_id=sent)
        answers.append(found)
    rest = [part for part in turn.parts if not isinstance(part, ToolResult)]
    ordered = [*answers, *_as_said(open_results, turn.path, notes), *rest]
    if list(map(id, ordered)) != list(map(id, turn.parts)):
        turn.parts = ordered
        turn.raw = None


def _as_said(results: list[ToolResult], path: str, notes: Notes) -> Iterator[AnyPart]:
    """Results whose call is gone, as what they say: nothing is lost, and no pair is claimed."""
    for result in results:
        notes.add("result_without_call", path, f"nothing called for {result.call_id!r}")
        for piece in result.content:
            yield Text(text=piece.text) if isinstance(piece, Text) else piece


def _result_text(result: ToolResult) -> str:
    texts = [piece.text for piece in result.content if isinstance(piece, Text)]
    return "\n".join(texts) or EMPTY


def _trim_end(turn: Turn) -> None:
    """The assistant's last word without the white space that Claude refuses at its end."""
    last = turn.parts[-1]
    if isinstance(last, Text) and not last.extra and last.text != last.text.rstrip():
        turn.parts[-1] = msgspec.structs.replace(last, text=last.text.rstrip())
        turn.raw = None


def _encode_turn(turn: Turn, known: Features, notes: Notes) -> Iterator[Sent]:
    results = sum(isinstance(part, ToolResult) for part in turn.parts)
    rest = turn.parts[results:]
    if results and rest and _must_part(rest, known):
        notes.add("message_split", turn.path, "this model takes tool results alone")
        yield _encode_parts("user", turn.parts[:results], None)
        yield Sent(role="assistant", blocks=[{"text": CONTINUED}])
        yield _encode_parts("user", rest, None)
    else:
        yield _encode_parts(turn.role, turn.parts, turn.raw)


def _must_part(rest: Sequence[AnyPart], known: Features) -> bool:
    if known.results_alone:
        return True
    return not known.documents_beside_results and any(
        isinstance(part, Document) or (isinstance(part, Unknown) and part.raw.startswith(VIDEO))
        for part in rest
    )


def _encode_parts(role: Role, parts: Sequence[AnyPart], raw: bytes | None) -> Sent:
    """The blocks of a message, which are not none."""
    if any(isinstance(part, Document) for part in parts):
        return _encode_documents(role, parts, raw)
    blocks = [block for part in parts for block in encode_blocks(part)]
    return Sent(role=role, blocks=blocks or [{"text": EMPTY}], raw=raw if blocks else None)


def _encode_documents(role: Role, parts: Sequence[AnyPart], raw: bytes | None) -> Sent:
    """The same with documents: a text beside them, and no cache point directly after one."""
    blocks: list[Block] = []
    waiting: CacheMark | None = None
    for part in parts:
        if isinstance(part, Document):
            waiting = part.cache or waiting
            blocks += encode_blocks(msgspec.structs.replace(part, cache=None))
            raw = raw if part.cache is None else None
            continue
        blocks += encode_blocks(part)
        if waiting is not None and _can_be_marked(part):
            blocks.append(encode_mark(waiting))
        waiting = waiting if isinstance(part, Thinking | RedactedThinking) else None
    if waiting is not None or not any(isinstance(p, Text) and not p.extra for p in parts):
        blocks.append({"text": ATTACHED})
        raw = None
    if waiting is not None:
        blocks.append(encode_mark(waiting))
    return Sent(role=role, blocks=blocks, raw=raw)

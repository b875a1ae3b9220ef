"""Puts a history in order for the provider it is for, or says in one sentence why that cannot be.

The rules are in `cllm.assembly`, the words in `cllm.wire`; here the two meet. Nothing is sent and
nothing is stored: a mended message is one on its way out.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cllm.assembly.marks import NO_MARKS, Block, minimum_for, place_marks
from cllm.assembly.repair import Repaired, repair
from cllm.assembly.tokens import TOKENS_PER_IMAGE, weigh_text
from cllm.assembly.validity import OPENAI, PROFILES, Problem, ProblemCode, Profile, profile_for
from cllm.core.errors import SettingsError, UnsendableError
from cllm.core.message import (
    AnyPart,
    CacheMark,
    Dialect,
    Document,
    Image,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.core.notice import Notice
from cllm.core.prompt import Continuity
from cllm.wire.bedrock.models import features
from cllm.wire.spoken import Mended, Spoken, left_out_fields, rewritten
from cllm.wire.translate import Mark, Translated, unmarked

ADVICE: dict[ProblemCode, str] = {
    "assistant_last": "end with a message of the user's, or ask a model that goes on from there",
    "duplicate_call_id": "give every tool call of a message an id of its own",
    "empty_message": "say something in it, or leave it out",
    "misplaced_part": "let the assistant think and call tools, and the user answer with results",
    "no_messages": "send at least one message",
    "starts_without_user": "begin with a message of the user's",
    "system_message": "put it into the system prompt",
}
ANY_ADVICE = "correct the messages and ask again"


class Mending:
    """Mends histories for one provider by one profile; is called with the messages of a prompt."""

    def __init__(self, profile: Profile, *, provider: str) -> None:
        self._profile = profile
        self._provider = provider

    @property
    def takes_texts_as_they_are(self) -> bool:
        """Whether a history without tools needs no look."""
        return self._profile is OPENAI

    def __call__(self, messages: Sequence[Spoken]) -> Mended:
        places = [message.place for message in messages]
        mended = repair(messages, self._profile, make=_make, places=places)
        if mended.problems:
            raise self._unsendable(mended.problems[0])
        return Mended(
            messages=mended.messages, notices=(*mended.notices, *_unsaid(messages, mended))
        )

    def _unsendable(self, problem: Problem) -> UnsendableError:
        advice = ADVICE.get(problem.code, ANY_ADVICE)
        return UnsendableError(
            f"Provider '{self._provider}' cannot be sent this: {problem.path}: {problem.message}; "
            f"{advice}.",
            provider=self._provider,
            path=problem.path,
        )


def _unsaid(messages: Sequence[Spoken], mended: Repaired[Spoken]) -> tuple[Notice, ...]:
    """What is told of fields that went with messages which are sent as others."""
    sent = set(map(id, mended.messages))
    return left_out_fields(m for m in messages if m.extra and id(m) not in sent)


def _make(role: Role, parts: tuple[AnyPart, ...]) -> Spoken:
    return Spoken(role=role, parts=parts)


def mending_for(
    dialect: Dialect, model: str, *, provider: str, profile: str | None = None
) -> Mending:
    """What mends a history for this model; by the profile of this name, if one is given."""
    rules = profile_for(dialect, model) if profile is None else named_profile(profile)
    return Mending(rules, provider=provider)


def named_profile(name: str) -> Profile:
    try:
        return PROFILES[name]
    except KeyError:
        known = ", ".join(sorted(PROFILES))
        raise SettingsError(f"there is no profile {name!r}; choose one of {known}") from None


WRITTEN = ("cache_control", "cachePoint")
MARKED: dict[Dialect, tuple[type[AnyPart], ...]] = {
    "anthropic": (Text, Image, Document, ToolCall, ToolResult),
    # A cache point may not stand directly behind a document there.
    "bedrock": (Text, Image, ToolCall, ToolResult),
}
MARKABLE = Block(tokens=0)
UNMARKABLE = Block(tokens=0, takes_mark=False)


def marking_for(dialect: Dialect, model: str, continuity: Continuity | None) -> Mark:
    """What marks the prompts of this model; nothing, if no other prompt will begin as this one."""
    if continuity is None or (dialect == "bedrock" and not _is_known_to_cache(model)):
        return unmarked
    return Marking(continuity, minimum=minimum_for(model), takes=MARKED[dialect])


def _is_known_to_cache(model: str) -> bool:
    """Whether it is a model with a cache, and not one that an ARN hides."""
    known = features(model)
    return known.cache and known.thinking != "as_said"


class Marking:
    """Marks one prompt; is called with its pieces."""

    def __init__(
        self, continuity: Continuity, *, minimum: int, takes: tuple[type[AnyPart], ...]
    ) -> None:
        self._continuity = continuity
        self._minimum = minimum
        self._takes = takes

    def __call__(self, said: Translated) -> Translated:
        if is_marked(said):
            return said
        system = said.system or ()
        before = sum(map(_weight, system)) + _weight_of_tools(said.parameters)
        blocks = list(self._blocks(said.messages, before))
        marks = place_marks(
            blocks,
            system_tokens=before,
            minimum=self._minimum,
            persistent=len(blocks) - _parts_in_last(said.messages, self._continuity.passing),
            kept=len(blocks) - _parts_in_last(said.messages, self._continuity.fresh),
        )
        last = _last_text(system) if marks.system else None
        if marks == NO_MARKS or (last is None and not marks.blocks):
            return said
        return msgspec.structs.replace(
            said,
            system=said.system if last is None else _with_mark(system, {last}),
            system_raw=said.system_raw if last is None else None,
            messages=tuple(_marked(said.messages, set(marks.blocks))),
            marked=True,
        )

    def _blocks(self, messages: Sequence[Spoken], before: int) -> Iterator[Block]:
        """The parts as blocks; they are weighed until there is enough to keep."""
        sum_so_far = before
        for spoken in messages:
            for part in spoken.parts:
                takes = spoken.role != "system" and isinstance(part, self._takes)
                block = MARKABLE if takes and not _is_blank(part) else UNMARKABLE
                if sum_so_far < self._minimum:
                    tokens = _weight(part)
                    sum_so_far += tokens
                    block = Block(tokens=tokens, takes_mark=block.takes_mark)
                yield block


def is_marked(said: Translated) -> bool:
    """Whether somebody has set a mark already."""
    parts = (part for spoken in said.messages for part in spoken.parts)
    if any(map(_has_mark, said.system or ())) or any(map(_has_mark, parts)):
        return True
    config = said.parameters.get("toolConfig")
    tools = (config if isinstance(config, Mapping) else said.parameters).get("tools")
    holders = (said.parameters, *(tools if isinstance(tools, list | tuple) else ()))
    return any(name in holder for holder in holders for name in WRITTEN)


def _has_mark(part: AnyPart) -> bool:
    match part:
        case Unknown():
            return any(name.encode() in part.raw for name in WRITTEN)
        case ToolResult() if any(map(_has_mark, part.content)):
            return True
        case _:
            return part.cache is not None


def _is_blank(part: AnyPart) -> bool:
    return isinstance(part, Text) and not part.text.strip()


def _last_text(system: Sequence[AnyPart]) -> int | None:
    places = range(len(system) - 1, -1, -1)
    return next(
        (n for n in places if isinstance(system[n], Text) and not _is_blank(system[n])), None
    )


def _parts_in_last(messages: Sequence[Spoken], count: int) -> int:
    return sum(len(spoken.parts) for spoken in messages[-count:]) if count else 0


def _marked(messages: Sequence[Spoken], places: set[int]) -> Iterator[Spoken]:
    """The messages with marks on the parts at these places, counted through all of them."""
    start = 0
    for spoken in messages:
        end = start + len(spoken.parts)
        here = {place - start for place in places if start <= place < end}
        yield rewritten(spoken, _with_mark(spoken.parts, here)) if here else spoken
        start = end


def _with_mark(parts: Sequence[AnyPart], places: set[int]) -> tuple[AnyPart, ...]:
    return tuple(
        msgspec.structs.replace(part, cache=CacheMark()) if place in places else part
        for place, part in enumerate(parts)
    )


def _weight(part: AnyPart) -> int:
    """About how many tokens a part comes to."""
    match part:
        case Text() | Thinking():
            return weigh_text(part.text).tokens
        case ToolCall():
            return weigh_text(part.name + part.arguments).tokens
        case ToolResult():
            return sum(map(_weight, part.content))
        case Document(text=str(text)):
            return weigh_text(text).tokens
        case Image() | Document():
            return TOKENS_PER_IMAGE
        case _:
            return 0


def _weight_of_tools(parameters: Mapping[str, Any]) -> int:
    tools = parameters.get("tools") or parameters.get("toolConfig")
    return weigh_text(msgspec.json.encode(tools, enc_hook=str).decode()).tokens if tools else 0

"""The conversations: whether each can be read, and whether its model would take its history.

Judged by the rules of the model's provider (`assembly.profiles`), as if the user said something
next. Nothing is mended in what is stored: that is done on the way out, turn by turn.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from cllm.assembly.profiles import Profile, profile_for
from cllm.assembly.repair import Repaired, repair
from cllm.core.conversation import Conversation, Summary
from cllm.core.errors import CllmError, StoreError
from cllm.core.message import AnyPart, Dialect, Role, plain_message
from cllm.core.ports import Page
from cllm.doctoring.finding import Finding, ok, problem, warning
from cllm.doctoring.store import JSON
from cllm.opening import ProviderOpener
from cllm.providers.mending import named_profile
from cllm.stores.json_folder import LOCKS
from cllm.stores.locks import is_held
from cllm.wire.malformed import MalformedError
from cllm.wire.spoken import Spoken
from cllm.wire.translate import spoken_for

CHECK = "conversations"
DIALECTS: dict[str, Dialect] = {"anthropic": "anthropic", "bedrock": "bedrock"}
NEXT = spoken_for(plain_message("user", "And now?"), "openai")

Load = Callable[[str], Conversation]
Count = Callable[[Iterable[Summary], int], Iterable[Summary]]


class _Rules(msgspec.Struct, frozen=True):
    """How a model takes histories."""

    dialect: Dialect
    profile: Profile


class HistoryCheck:
    """Looks at conversations one by one. `model` is for those that name none."""

    def __init__(self, opener: ProviderOpener, *, model: str, store: str) -> None:
        self._opener = opener
        self._model = model
        self._locks = Path(store.removeprefix(JSON)) / LOCKS if store.startswith(JSON) else None
        self._rules: dict[str, _Rules | str] = {}

    def check(self, page: Page, load: Load, *, counted: Count) -> Iterator[Finding]:
        """A line for each conversation with which something is wrong, and one for all others."""
        for notice in page.notices:
            yield problem(CHECK, notice.message)
        good = 0
        for summary in counted(page.items, len(page.items)):
            found = list(self._look(summary.id, load))
            good += not found
            yield from found
        total = len(page.items)
        if total:
            yield ok(CHECK, f"{good} of {total} can be read and sent as they are.")
        elif not page.notices:
            yield ok(CHECK, "there are none yet.")

    def _look(self, ref: str, load: Load) -> Iterator[Finding]:
        try:
            conversation = load(ref)
        except StoreError as error:
            yield problem(CHECK, str(error))
            return
        if self._was_interrupted(conversation):
            said = "has a turn that was interrupted; the next turn marks it so."
            yield warning(CHECK, f"'{ref}' {said}")
        rules = self._rules_for(conversation.model or self._model)
        if isinstance(rules, str):
            yield warning(CHECK, f"'{ref}' cannot be sent now: {rules}")
            return
        try:
            judged = _judge(conversation, rules)
        except MalformedError as error:
            yield problem(CHECK, f"'{ref}' cannot be sent: {error}.")
            return
        if judged.problems:
            first = judged.problems[0]
            yield problem(CHECK, f"'{ref}' cannot be sent: {first.path}: {first.message}.")
        elif judged.notices:
            said = judged.notices[0].message
            yield warning(CHECK, f"'{ref}' will be mended when it is sent: {said}")

    def _was_interrupted(self, conversation: Conversation) -> bool:
        turns = conversation.turns + conversation.variants
        if self._locks is None or all(turn.state != "running" for turn in turns):
            return False
        return not is_held(self._locks / f"{conversation.id}.lock")

    def _rules_for(self, model: str) -> _Rules | str:
        """The rules of a model, or why there are none."""
        if model not in self._rules:
            self._rules[model] = self._find_rules(model)
        return self._rules[model]

    def _find_rules(self, model: str) -> _Rules | str:
        try:
            served = self._opener.find(model)
            access = self._opener.access(served.provider)
            dialect = DIALECTS.get(access.kind, "openai")
            if access.profile is not None:
                return _Rules(dialect, named_profile(access.profile))
        except CllmError as error:
            return str(error)
        return _Rules(dialect, profile_for(dialect, served.name))


def _judge(conversation: Conversation, rules: _Rules) -> Repaired[Spoken]:
    said = [message for turn in conversation.turns if turn.is_history for message in turn.messages]
    # A system message among the others is put with the system prompt where it may not stay.
    moved = rules.profile.system in ("nowhere", "after_user")
    spoken = [
        spoken_for(message, rules.dialect, place=place)
        for place, message in enumerate(said)
        if not (moved and message.role == "system")
    ]
    places = [*(message.place for message in spoken), len(said)]
    return repair([*spoken, NEXT], rules.profile, make=_make, places=places)


def _make(role: Role, parts: tuple[AnyPart, ...]) -> Spoken:
    return Spoken(role=role, parts=parts)

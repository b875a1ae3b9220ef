"""Puts a history in order for the provider it is for, or says in one sentence why that cannot be.

The rules are in `cllm.assembly`, the words in `cllm.wire`; here the two meet. Nothing is sent and
nothing is stored: a mended message is one on its way out.
"""

from collections.abc import Sequence

from cllm.assembly.profiles import OPENAI, PROFILES, Profile, profile_for
from cllm.assembly.repair import Repaired, repair
from cllm.assembly.validity import Problem, ProblemCode
from cllm.core.errors import SettingsError, UnsendableError
from cllm.core.message import AnyPart, Dialect, Role
from cllm.core.notice import Notice
from cllm.wire.spoken import Mended, Spoken, left_out_fields

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

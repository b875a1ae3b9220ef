"""What each provider accepts as a history, as data: one profile of rules for each kind of model.

Facts only. What they mean for a history is in `validity`; nothing here looks at a message.
"""

import re
from functools import lru_cache
from typing import Literal

import msgspec

from cllm.core.message import Dialect


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one provider.

    `repeats`: what becomes of two messages of one role side by side. `system`: where among the
    messages a system message may stand; `after_user` is between the user and the answer. `ending`:
    whether the last message may be the assistant's; as a `prefill` it may, without white space at
    its end. `thinking`: sent back if it is signed, or by a rule of the codec. `beside_results`:
    what may stand in one message with tool results; Claude on Bedrock takes no document there,
    Llama and Mistral (`bedrock-plain`) nothing at all.
    """

    name: str
    repeats: Literal["kept", "merged", "refused"]
    starts_with_user: bool
    system: Literal["anywhere", "first", "after_user", "nowhere"]
    ending: Literal["anything", "prefill", "not_assistant"]
    thinking: Literal["signed", "left_out"]
    takes_blank: bool
    has_tool_role: bool
    document_needs_text: bool = False
    beside_results: Literal["anything", "no_document", "nothing"] = "anything"


ANTHROPIC = Profile(
    name="anthropic",
    repeats="merged",
    starts_with_user=True,
    system="nowhere",
    ending="not_assistant",
    thinking="signed",
    takes_blank=False,
    has_tool_role=False,
)
ANTHROPIC_PREFILL = msgspec.structs.replace(ANTHROPIC, name="anthropic-prefill", ending="prefill")
ANTHROPIC_SYSTEM = msgspec.structs.replace(ANTHROPIC, name="anthropic-system", system="after_user")
OPENAI = Profile(
    name="openai",
    repeats="kept",
    starts_with_user=False,
    system="anywhere",
    ending="anything",
    thinking="left_out",
    takes_blank=True,
    has_tool_role=True,
)
BEDROCK = Profile(
    name="bedrock",
    repeats="refused",
    starts_with_user=True,
    system="nowhere",
    ending="not_assistant",
    thinking="signed",
    takes_blank=False,
    has_tool_role=False,
    document_needs_text=True,
    beside_results="no_document",
)
BEDROCK_PREFILL = msgspec.structs.replace(BEDROCK, name="bedrock-prefill", ending="prefill")
BEDROCK_PLAIN = msgspec.structs.replace(BEDROCK, name="bedrock-plain", beside_results="nothing")
BEDROCK_OTHER = msgspec.structs.replace(
    BEDROCK_PREFILL, name="bedrock-other", beside_results="anything"
)
STRICT = Profile(
    name="strict",
    repeats="refused",
    starts_with_user=True,
    system="first",
    ending="not_assistant",
    thinking="left_out",
    takes_blank=False,
    has_tool_role=True,
)
PROFILES = {
    profile.name: profile
    for profile in (
        ANTHROPIC,
        ANTHROPIC_PREFILL,
        ANTHROPIC_SYSTEM,
        OPENAI,
        BEDROCK,
        BEDROCK_PREFILL,
        BEDROCK_PLAIN,
        BEDROCK_OTHER,
        STRICT,
    )
}
NO_PREFILL_SINCE = (4, 6)
SYSTEM_TURNS_SINCE = (4, 8)
NEWEST = (99, 0)
_VERSION = re.compile(r"\D*?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_RESULTS_ALONE = re.compile(r"(?:^|[./])(?:meta\.llama|mistral\.)")


@lru_cache(maxsize=1000)
def profile_for(dialect: Dialect, model: str) -> Profile:
    """The rules by which a model of this name takes a history in this protocol.

    A name that says nothing of a version is given what most models take, and the provider's word.
    """
    if dialect in ("openai", "responses"):
        return OPENAI
    version = _claude_version(model)
    if dialect == "anthropic":
        if version is None or version < NO_PREFILL_SINCE:
            return ANTHROPIC_PREFILL
        return ANTHROPIC if version < SYSTEM_TURNS_SINCE else ANTHROPIC_SYSTEM
    if version is not None:
        return BEDROCK_PREFILL if version < NO_PREFILL_SINCE else BEDROCK
    return BEDROCK_PLAIN if _RESULTS_ALONE.search(model) else BEDROCK_OTHER


def _claude_version(model: str) -> tuple[int, int] | None:
    """4.6 of claude-opus-4-6-20260205; a Claude without a number is the newest, another none."""
    _, claude, rest = model.lower().partition("claude")
    if not claude:
        return None
    found = _VERSION.match(rest)
    return (int(found[1]), int(found[2] or 0)) if found else NEWEST

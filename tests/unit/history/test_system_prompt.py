"""The system prompt by policy: what is sent, saved and reported."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from cllm.core.conversation import (
    ContextCommandRecord,
    ContextRecord,
    Policy,
    StoredConversation,
    SystemRecord,
    Turn,
    TurnState,
)
from cllm.core.errors import UsageError
from cllm.core.message import Message, plain_message
from cllm.core.ports import Opening
from cllm.core.prompt import Prompt
from cllm.history.system_prompt import (
    GivenPrompt,
    SystemChoice,
    build_branch_opening,
    build_captured_opening,
    choose_system,
    find_prompt_difference,
    prompt_without_context,
    split_messages,
)

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
BRIEF = "Be brief."
CONFIGURED = GivenPrompt(text=BRIEF, source="Cllmfile.yml: default_system_message")
EXPLICIT = GivenPrompt(text="Be loud.", source="--system", explicit=True)
NOTHING = GivenPrompt()
RAN = ContextCommandRecord(name="date", command="date", state="ok", exit_code=0)
BLOCK = "--- Context: date ---\nMonday\n--- End Context ---"


def system(text: str) -> Message:
    return plain_message("system", text)


def conversation(
    *,
    stored: str | None = None,
    record: SystemRecord | None = None,
    state: TurnState | None = "complete",
    **fields: Any,
) -> StoredConversation:
    said = (plain_message("user", "Hi"), plain_message("assistant", "Yes"))
    turn = Turn(id="t", place="t", state=state or "complete", messages=said, started_at=NOW)
    return StoredConversation(
        id="demo",
        created_at=NOW,
        updated_at=NOW,
        system=None if stored is None else system(stored),
        system_record=record,
        turns=() if state is None else (turn,),
        **fields,
    )


def captured(stored: str | None = "Be brief.", source: str = "Cllmfile.yml", **fields: Any):
    record = SystemRecord(policy="captured", source=source)
    return conversation(stored=stored, record=record, **fields)


def choose(
    value: StoredConversation | None, configured: GivenPrompt, policy: Policy = "captured"
) -> SystemChoice:
    return choose_system(value, configured, new_policy=policy, now=NOW)


@pytest.mark.parametrize("text", [None, "", "  ", "\n\t"])
def test_a_blank_prompt_is_none(text):
    assert GivenPrompt(text=text).message is None


def test_a_prompt_is_sent_unchanged():
    assert GivenPrompt(text=" Be brief.\n").message == system(" Be brief.\n")


def pinned(text: str, *, state: TurnState | None = "complete") -> StoredConversation:
    record = SystemRecord(policy="pinned", source="ConversationManager", prompt=text)
    return conversation(record=record, state=state)


class TestWithoutAConversation:
    @pytest.mark.parametrize(
        ("configured", "expected"),
        [(CONFIGURED, system("Be brief.")), (EXPLICIT, system("Be loud.")), (NOTHING, None)],
    )
    def test_the_prompt_is_sent_and_nothing_is_saved(self, configured, expected):
        assert choose(None, configured) == SystemChoice(message=expected)


class TestNewConversation:
    @pytest.mark.parametrize(
        ("configured", "message", "source"),
        [
            (CONFIGURED, system("Be brief."), CONFIGURED.source),
            (EXPLICIT, system("Be loud."), "--system"),
            (NOTHING, None, "none"),
            (GivenPrompt(text=" ", source="Cllmfile.yml"), None, "none"),
        ],
        ids=["configured", "explicit", "nothing", "blank"],
    )
    def test_a_captured_conversation_saves_its_prompt_and_the_source(
        self, configured, message, source
    ):
        choice = choose(conversation(state=None), configured)

        assert choice == SystemChoice(
            message=message,
            opening=Opening(
                system=message,
                system_record=SystemRecord(policy="captured", source=source),
                context_record=ContextRecord(executed_at=NOW),
            ),
        )
        assert choice.opening == build_captured_opening(configured, now=NOW)

    def test_a_dynamic_conversation_sends_its_prompt_and_saves_nothing(self):
        choice = choose(conversation(state=None), CONFIGURED, "dynamic")

        assert choice.message == system("Be brief.")
        assert choice.opening is not None
        assert choice.opening.system is None
        assert choice.opening.system_record == SystemRecord(policy="dynamic")
        assert choice.opening.context_record == ContextRecord(executed_at=NOW)

    @pytest.mark.parametrize(
        ("configured", "record"),
        [
            (CONFIGURED, SystemRecord(policy="pinned", source=CONFIGURED.source, prompt=BRIEF)),
            (NOTHING, SystemRecord(policy="pinned", source="none")),
            (GivenPrompt(text=" ", source="x"), SystemRecord(policy="pinned", source="none")),
        ],
    )
    def test_a_pinned_conversation_saves_its_prompt_in_the_record(self, configured, record):
        choice = choose(conversation(state=None), configured, "pinned")

        assert choice.message == configured.message
        assert choice.opening is not None
        assert choice.opening.system is None
        assert choice.opening.system_record == record

    @pytest.mark.parametrize("recorded", ["captured", "dynamic", "pinned"])
    @pytest.mark.parametrize("asked", ["captured", "dynamic"])
    def test_a_policy_recorded_before_the_first_turn_applies(self, recorded, asked):
        untouched = conversation(state=None, record=SystemRecord(policy=recorded))

        choice = choose(untouched, CONFIGURED, asked)

        assert choice.opening is not None
        assert choice.opening.system_record.policy == recorded
        assert (choice.opening.system is not None) is (recorded == "captured")

    @pytest.mark.parametrize("state", ["failed", "running"])
    def test_a_conversation_without_a_successful_turn_is_captured_as_new(self, state):
        choice = choose(conversation(state=state), EXPLICIT)

        assert choice.message == system("Be loud.")
        assert choice.opening is not None
        assert choice.opening.system == system("Be loud.")


class TestCaptured:
    def test_the_stored_prompt_is_sent_as_the_same_bytes_and_not_saved_again(self):
        stored = Message(role="system", raw=b'{"content":"Be brief.","role":"system"}')
        value = msgspec.structs.replace(captured(), system=stored)

        choice = choose(value, CONFIGURED)

        assert choice == SystemChoice(message=stored)

    def test_a_conversation_without_a_prompt_continues_without_one(self):
        assert choose(captured(None, "none"), CONFIGURED).message is None

    def test_a_conversation_with_a_prompt_and_no_turn_is_captured(self):
        choice = choose(captured(state=None), GivenPrompt(text="Other."))

        assert choice.message == system("Be brief.")
        assert choice.opening is None

    @pytest.mark.parametrize("policy", ["captured", "dynamic", "pinned"])
    def test_the_policy_for_new_conversations_does_not_matter(self, policy):
        assert choose(captured(), CONFIGURED, policy) == SystemChoice(message=system("Be brief."))

    @pytest.mark.parametrize(
        ("value", "name"),
        [(captured(), "demo"), (captured(name="trip"), "trip"), (captured(None, "none"), "demo")],
    )
    def test_an_explicit_prompt_is_refused_and_the_branch_command_named(self, value, name):
        with pytest.raises(UsageError) as caught:
            choose(value, EXPLICIT)
        assert f"'{name}'" in str(caught.value)
        assert f"cllm conversations branch {name} --system" in str(caught.value)

    @pytest.mark.parametrize(
        ("value", "configured", "words"),
        [
            (captured(), GivenPrompt(text="Other."), "uses its own system prompt"),
            (captured(None, "none"), CONFIGURED, "has no system prompt"),
            (captured(f"Be brief.\n\n{BLOCK}"), GivenPrompt(text="Other."), "uses its own"),
            (captured(BLOCK), CONFIGURED, "has no system prompt"),
            (conversation(stored="Be brief."), GivenPrompt(text="Other."), "uses its own"),
        ],
        ids=["other", "new one", "with context", "only context", "old file"],
    )
    def test_a_different_configured_prompt_is_reported_and_not_sent(self, value, configured, words):
        choice = choose(value, configured)

        assert choice.message == value.system
        assert choice.opening is None
        (notice,) = choice.notices
        assert (notice.code, notice.path) == ("system_prompt_differs", "messages[0]")
        assert words in notice.message
        assert "cllm conversations branch demo" in notice.message

    @pytest.mark.parametrize(
        ("value", "configured"),
        [
            (captured(), CONFIGURED),
            (captured(), GivenPrompt(text="\nBe brief. \n")),
            (captured("Be brief.\n"), CONFIGURED),
            (captured(f"Be brief.\n\n{BLOCK}\n\n{BLOCK}"), CONFIGURED),
            (captured(None, "none"), NOTHING),
            (captured(None, "none"), GivenPrompt(text=" ")),
            (captured(BLOCK, "none"), NOTHING),
            (captured("Be loud.", "--system"), CONFIGURED),
            (captured("Be loud.", "--system-file x.txt"), CONFIGURED),
            (captured("Be loud.", "--system"), NOTHING),
            (conversation(stored="Be brief."), NOTHING),
            (conversation(stored="Be brief."), CONFIGURED),
        ],
        ids=[
            "same",
            "other blanks given",
            "other blanks stored",
            "same under context",
            "none and none",
            "none and blank",
            "only context",
            "from the command line",
            "from a file on the command line",
            "from the command line, none configured",
            "old file, none configured",
            "old file, same",
        ],
    )
    def test_an_equal_prompt_is_not_reported(self, value, configured):
        assert choose(value, configured).notices == ()

    @pytest.mark.parametrize("configured", [NOTHING, GivenPrompt(text=" ")], ids=["none", "blank"])
    @pytest.mark.parametrize("source", ["Cllmfile.yml", "llm"], ids=["settings", "import"])
    def test_without_a_configured_prompt_no_difference_is_reported(self, source, configured):
        value = captured(source=source)

        assert choose(value, configured) == SystemChoice(message=value.system)

    @pytest.mark.parametrize(
        "value",
        [conversation(), conversation(state=None), captured(None, "none", state=None)],
        ids=["old file without a prompt", "no messages", "no messages, captured"],
    )
    def test_a_conversation_that_uses_the_configured_prompt_has_no_difference(self, value):
        assert find_prompt_difference(value, CONFIGURED) is None
        assert choose(value, CONFIGURED).message == CONFIGURED.message

    def test_a_context_error_block_is_no_difference(self):
        failed = "--- Context Error: date ---\nCommand exited with code 1\n--- End Context ---"

        assert choose(captured(f"Be brief.\n\n{failed}"), CONFIGURED).notices == ()


class TestDynamicAndPinned:
    @pytest.mark.parametrize("policy", ["dynamic", "pinned"])
    @pytest.mark.parametrize(
        ("configured", "expected"),
        [(CONFIGURED, system("Be brief.")), (EXPLICIT, system("Be loud.")), (NOTHING, None)],
    )
    def test_the_prompt_of_this_request_is_sent_and_never_saved(self, policy, configured, expected):
        value = conversation(record=SystemRecord(policy=policy))

        assert choose(value, configured) == SystemChoice(message=expected)


class TestPinned:
    def test_the_pinned_prompt_is_sent_regardless_of_the_settings(self):
        choice = choose(pinned("Be kind."), CONFIGURED)

        assert choice == SystemChoice(message=system("Be kind."))

    def test_a_conversation_pinned_without_a_prompt_continues_without_one(self):
        record = SystemRecord(policy="pinned", source="none")

        assert choose(conversation(record=record), CONFIGURED) == SystemChoice(message=None)

    def test_a_prompt_pinned_before_the_first_turn_stays(self):
        choice = choose(pinned("Be kind.", state=None), CONFIGURED)

        assert choice == SystemChoice(message=system("Be kind."))

    def test_an_explicit_prompt_is_refused_and_the_branch_command_named(self):
        with pytest.raises(UsageError, match="cllm conversations branch demo --system TEXT"):
            choose(pinned("Be kind."), EXPLICIT)

    def test_the_same_explicit_prompt_is_accepted(self):
        again = GivenPrompt(text="Be kind.", source="--system", explicit=True)

        assert choose(pinned("Be kind."), again) == SystemChoice(message=system("Be kind."))

    def test_a_branch_with_another_prompt_is_pinned_too(self):
        opening = build_branch_opening(pinned("Be kind."), EXPLICIT, now=NOW)

        assert opening.system is None
        assert opening.system_record == SystemRecord(
            policy="pinned", source="--system", prompt="Be loud."
        )

    def test_the_pinned_prompt_is_not_a_message(self):
        value = pinned("Be kind.")

        assert value.kept_prompt == system("Be kind.")
        assert [message.role for message in value.messages] == ["user", "assistant"]


class TestOldFile:
    @pytest.mark.parametrize(
        ("configured", "expected"),
        [(CONFIGURED, system("Be brief.")), (EXPLICIT, system("Be loud.")), (NOTHING, None)],
    )
    def test_an_old_file_without_a_prompt_gets_the_configured_one_and_is_not_changed(
        self, configured, expected
    ):
        assert choose(conversation(), configured) == SystemChoice(message=expected)

    def test_an_old_file_with_a_prompt_is_captured(self):
        value = conversation(stored="Old words.")

        assert choose(value, NOTHING) == SystemChoice(message=system("Old words."))
        with pytest.raises(UsageError):
            choose(value, EXPLICIT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("Be brief.", "Be brief."),
        (f"Be brief.\n\n{BLOCK}", "Be brief."),
        (f"Be brief.\n\nReally.\n\n{BLOCK}\n\n{BLOCK}", "Be brief.\n\nReally."),
        (BLOCK, ""),
        (f"{BLOCK}\n\n{BLOCK}", ""),
        ("About --- Context: blocks", "About --- Context: blocks"),
    ],
)
def test_a_stored_prompt_is_separated_from_its_context(text, expected):
    assert prompt_without_context(text) == expected


class TestBranchOpening:
    def test_a_branch_with_another_prompt_has_the_captured_context(self):
        value = conversation(stored=f"Old words.\n\n{BLOCK}\n\n{BLOCK}")

        opening = build_branch_opening(value, EXPLICIT, now=NOW)

        assert opening.system == system(f"Be loud.\n\n{BLOCK}\n\n{BLOCK}")

    def test_the_context_record_stays(self):
        record = ContextRecord(executed_at=NOW, commands=(RAN,))
        value = msgspec.structs.replace(conversation(stored=BLOCK), context_record=record)

        opening = build_branch_opening(value, EXPLICIT, now=NOW + timedelta(days=1))

        assert opening.context_record == record
        assert opening.system == system(f"Be loud.\n\n{BLOCK}")

    @pytest.mark.parametrize("stored", [None, "Old words."])
    def test_without_context_the_opening_has_only_the_prompt(self, stored):
        opening = build_branch_opening(conversation(stored=stored), EXPLICIT, now=NOW)

        assert opening.system == system("Be loud.")


SYSTEM, USER = plain_message("system", BRIEF), plain_message("user", "Hello.")
LATER = plain_message("system", "Be loud.")


def request_prompt(*messages, system=None) -> Prompt:
    return Prompt(model="openai/gpt-test", messages=messages, system=system)


@pytest.mark.parametrize(
    ("prompt", "prompt_messages", "ignored"),
    [
        (request_prompt(USER), (USER,), ()),
        (request_prompt(SYSTEM, USER), (USER,), ()),
        (request_prompt(SYSTEM, USER, LATER), (USER, LATER), (2,)),
        (request_prompt(USER, SYSTEM), (USER, SYSTEM), ()),
        (request_prompt(USER, LATER, system=SYSTEM), (USER, LATER), (1,)),
    ],
    ids=["none", "first", "two", "last", "separate"],
)
def test_only_messages_without_the_system_role_are_saved(prompt, prompt_messages, ignored):
    split = split_messages(prompt)

    assert split.saved_messages == (USER,)
    assert split.prompt_messages == prompt_messages
    assert split.has_inner_system == (prompt_messages != (USER,))
    assert [notice.path for notice in split.ignored_notices()] == [
        f"messages[{index}]" for index in ignored
    ]

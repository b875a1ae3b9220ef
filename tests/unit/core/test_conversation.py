"""Conversations and turns as values."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.conversation import (
    StoredConversation,
    Turn,
    TurnState,
    check_id,
    check_title,
    choose_title,
    find_running,
    find_turn,
    is_valid_id,
    make_title,
)
from cllm.core.errors import InvalidIdError, InvalidTextError
from cllm.core.message import plain_message
from cllm.core.reply import Usage

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def turn(name: str, *texts: str, state: TurnState = "complete", **fields: Any) -> Turn:
    roles = ("user", "assistant")
    messages = tuple(plain_message(roles[i % 2], text) for i, text in enumerate(texts))  # type: ignore[arg-type]
    return Turn(id=name, place=name, state=state, messages=messages, started_at=NOW, **fields)


def conversation(*turns: Turn, **fields: Any) -> StoredConversation:
    return StoredConversation(id="demo", created_at=NOW, updated_at=NOW, turns=turns, **fields)


@pytest.mark.parametrize(
    ("state", "expected"),
    [("complete", True), ("incomplete", True), ("failed", False), ("running", False)],
)
def test_only_turns_with_an_answer_are_history(state, expected):
    assert turn("a", "Hi", state=state).is_history is expected


def test_the_messages_are_the_system_prompt_and_then_the_turns_in_order():
    system = plain_message("system", "Be brief.")
    value = conversation(turn("a", "1", "2"), turn("b", "3", "4"), system=system)

    assert [message.text for message in value.messages] == ["Be brief.", "1", "2", "3", "4"]


def test_without_a_system_prompt_the_messages_are_only_the_turns():
    assert [message.text for message in conversation(turn("a", "1", "2")).messages] == ["1", "2"]


def test_turns_and_variants_are_found_by_their_id_and_state():
    path, variant = turn("a"), turn("b", state="running")
    both = conversation(path, variants=(variant,))

    assert (find_turn(both, "a"), find_turn(both, "b")) == (path, variant)
    assert find_turn(both, "c") is None
    assert find_running(both) == (variant,)
    assert find_running(conversation(path)) == ()


def test_the_system_prompt_is_not_counted_and_has_no_number():
    value = conversation(turn("a", "1", "2"), system=plain_message("system", "Be brief."))

    assert value.message_count == 2
    assert [number for number, _, _ in value.numbered_messages()] == [1, 2]


def test_messages_of_a_loaded_tail_have_their_full_numbers():
    value = conversation(turn("b", "3", "4"), turn("c", "5"), first_sequence=3)

    assert value.message_count == 5
    assert [(n, t.id, m.text) for n, t, m in value.numbered_messages()] == [
        (3, "b", "3"),
        (4, "b", "4"),
        (5, "c", "5"),
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (conversation(), True),
        (conversation(turn("a", "Hi", state="failed")), True),
        (conversation(turn("a", "Hi", state="running")), True),
        (conversation(turn("a", "Hi", state="incomplete")), False),
        (conversation(turn("a", "Hi", "Yes")), False),
        (conversation(system=plain_message("system", "Be brief.")), False),
    ],
    ids=["empty", "only failed", "only running", "interrupted", "answered", "captured"],
)
def test_a_conversation_is_untouched_until_it_has_history(value, expected):
    assert value.is_untouched is expected


def test_a_conversation_with_unloaded_messages_is_not_untouched():
    assert not conversation(first_sequence=7).is_untouched


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, False),
        ("Be brief.", False),
        ("--- Context: date ---\nno end", False),
        ("only\n--- End Context ---", False),
        ("Be brief.\n\n--- Context: date ---\nMonday\n--- End Context ---", True),
    ],
)
def test_context_is_recognised_by_both_of_its_markers(text, expected):
    system = None if text is None else plain_message("system", text)
    value = conversation(turn("a", "Hi", "Yes"), system=system)

    assert value.has_context_in_system_message() is expected
    assert value.has_system_message() is (text is not None)


def test_total_tokens_include_variants_and_skip_turns_without_a_count():
    value = conversation(
        turn("a", "Hi", usage=Usage(input=1, output=2, cache_read=4, cache_write=8, reasoning=16)),
        turn("b", "Hi"),
        variants=(turn("c", "Hi", usage=Usage(input=32)),),
    )

    assert value.total_tokens == 63


def test_a_conversation_cannot_be_changed():
    with pytest.raises(AttributeError):
        conversation().title = "Other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello", "Hello"),
        ("  Hello\n\n  world\t! ", "Hello world !"),
        ("", None),
        (" \n\t ", None),
        ("x" * 100, "x" * 100),
        ("x" * 101, "x" * 97 + "..."),
        ("a\0b", "a b"),
        ("<system-reminder>\nToday.\n</system-reminder>\nFix it", "Fix it"),
        (
            "Fix <system-reminder>a</system-reminder>it<system-reminder>b</system-reminder>",
            "Fix it",
        ),
        ("<system-reminder>Only this", "<system-reminder>Only this"),
        ("<system-reminder>a</system-reminder>", "<system-reminder>a</system-reminder>"),
    ],
)
def test_a_title_is_one_line_of_at_most_100_characters(text, expected):
    assert make_title(text) == expected


def test_the_title_is_from_the_first_message_that_the_client_did_not_add():
    added = "Here are READ ONLY files, provided for your reference."
    assert choose_title([added, "Fix it", "Thanks"]) == "Fix it"
    assert choose_title([added]) == added
    assert choose_title([]) is None


@given(st.text(max_size=400))
def test_every_title_is_short_and_on_one_line(text):
    title = make_title(text)

    assert title is None or (0 < len(title) <= 100 and title.splitlines() == [title])


def test_conversations_are_compared_by_value():
    first = conversation(turn("a", "Hi"))

    assert first == conversation(turn("a", "Hi"))
    assert first != msgspec.structs.replace(first, title="Other")


@pytest.mark.parametrize("ref", ["a", "A-b_9", "-", "c-20261115-120000-1a2b", "x" * 128])
def test_letters_digits_dashes_and_underscores_are_a_valid_id(ref):
    assert is_valid_id(ref)
    assert check_id(ref) == ref


@pytest.mark.parametrize(
    "ref",
    ["", "../../x", "a/b", "a.json", "a b", "a\n", "\na", "ä", "\u0661", "a\x00", "x" * 129, "~"],
)
def test_other_characters_are_no_valid_id(ref):
    assert not is_valid_id(ref)
    with pytest.raises(InvalidIdError) as caught:
        check_id(ref)
    assert caught.value.ref == ref


@pytest.mark.parametrize(
    ("title", "checked"),
    [(" Cats\n", "Cats"), ("  ", None), ("", None), (None, None), ("t" * 200, "t" * 200)],
)
def test_a_checked_title_is_trimmed_or_none(title, checked):
    assert check_title(title) == checked


def test_a_title_of_more_than_200_characters_is_refused():
    with pytest.raises(InvalidTextError, match="has 201 characters; use at most 200"):
        check_title(" " + "t" * 201)

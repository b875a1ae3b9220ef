"""Seed 000: the system prompt is captured when a conversation is created, and then stays.

The first eight tests are the seed's "Test Expectations", five unit and three integration, each
with the real command; the others hold the rules of the captured policy that follow from it.
"""

import json
import os

import pytest

PIRATE = "You are a pirate."


def test_unit_1_a_configured_prompt_is_stored_as_the_first_message(home, provider, settings, cllm):
    settings(default_system_message=PIRATE)
    provider.queue_reply("Arr.")

    cllm("Hello", "--conversation", "demo").succeeded()

    expected = [("system", PIRATE), ("user", "Hello"), ("assistant", "Arr.")]
    assert home.messages("demo") == expected
    assert provider.requests[0].message_pairs == expected[:2]


def test_unit_2_without_a_configured_prompt_none_is_stored_and_none_is_sent(
    home, provider, settings, cllm
):
    provider.queue_reply("Hi.")

    cllm("Hello", "--conversation", "demo").succeeded()

    assert home.messages("demo") == [("user", "Hello"), ("assistant", "Hi.")]
    assert provider.requests[0].message_pairs == [("user", "Hello")]


def test_unit_3_a_stored_prompt_is_preserved_when_the_conversation_is_loaded(
    home, provider, settings, cllm
):
    home.write_old_conversation(
        "demo", ("system", PIRATE), ("user", "Hello"), ("assistant", "Arr.")
    )

    cllm("And now?", "--conversation", "demo").succeeded()

    assert home.messages("demo")[:3] == [
        ("system", PIRATE),
        ("user", "Hello"),
        ("assistant", "Arr."),
    ]
    assert provider.requests[0].message_pairs[0] == ("system", PIRATE)


def test_unit_4_an_old_file_gets_the_prompt_when_it_is_sent_and_not_in_the_file(
    home, provider, settings, cllm
):
    settings(default_system_message=PIRATE)
    home.write_old_conversation("demo", ("user", "Hello"), ("assistant", "Hi."))
    provider.queue_reply("Arr.")
    provider.queue_reply("Arr again.")

    cllm("And now?", "--conversation", "demo").succeeded()
    cllm("And then?", "--conversation", "demo").succeeded()

    stored = [
        ("user", "Hello"),
        ("assistant", "Hi."),
        ("user", "And now?"),
        ("assistant", "Arr."),
        ("user", "And then?"),
        ("assistant", "Arr again."),
    ]
    assert home.messages("demo") == stored
    assert provider.requests[0].message_pairs == [("system", PIRATE), *stored[:3]]
    assert provider.requests[1].message_pairs == [("system", PIRATE), *stored[:5]]


def test_unit_4_an_old_file_works_without_any_prompt_configured(home, provider, settings, cllm):
    home.write_old_conversation("demo", ("user", "Hello"), ("assistant", "Hi."))

    cllm("And now?", "--conversation", "demo").succeeded()

    assert provider.requests[0].message_pairs == [
        ("user", "Hello"),
        ("assistant", "Hi."),
        ("user", "And now?"),
    ]


def test_unit_5_the_prompt_is_not_duplicated_on_later_turns(home, provider, settings, cllm):
    settings(default_system_message=PIRATE)

    for number in range(3):
        cllm(f"Question {number}", "--conversation", "demo").succeeded()

    roles = [role for role, _ in home.messages("demo")]
    assert roles == ["system", *("user", "assistant") * 3]
    for request in provider.requests:
        assert [role for role, _ in request.message_pairs].count("system") == 1
        assert request.message_pairs[0] == ("system", PIRATE)


def test_integration_1_create_add_save_load_continue(home, provider, settings, cllm):
    settings(default_system_message=PIRATE)
    provider.queue_reply("Noted.")
    provider.queue_reply("Luna.")

    first = cllm("My cat is called Luna.", "--conversation", "cats").succeeded()
    created = home.load("cats")
    second = cllm("What is my cat called?", "--conversation", "cats").succeeded()
    continued = home.load("cats")

    assert (first.out, second.out) == ("Noted.\n", "Luna.\n")
    assert provider.requests[1].message_pairs == [
        ("system", PIRATE),
        ("user", "My cat is called Luna."),
        ("assistant", "Noted."),
        ("user", "What is my cat called?"),
    ]
    assert continued["messages"][:3] == created["messages"]
    assert home.messages("cats")[3:] == [
        ("user", "What is my cat called?"),
        ("assistant", "Luna."),
    ]
    assert continued["created_at"] == created["created_at"]
    assert continued["updated_at"] > created["updated_at"]


def test_integration_2_the_prompt_is_that_of_the_effective_settings(home, provider, settings, cllm):
    settings(default_system_message="From home.")
    local = home.work / "Cllmfile.yml"
    local.write_text("default_system_message: From here.\n", encoding="utf-8")

    cllm("Hello", "--conversation", "demo").succeeded()

    assert home.messages("demo")[0] == ("system", "From here.")
    assert provider.requests[0].message_pairs[0] == ("system", "From here.")


def test_integration_2_a_prompt_of_several_lines_and_scripts_is_stored_unchanged(
    home, provider, settings, cllm
):
    prompt = "Zeile eins: ä, ö, ü.\n\n  二行目 🐈\n\tend"
    settings(default_system_message=prompt)

    cllm("Hello", "--conversation", "demo").succeeded()

    assert home.messages("demo")[0] == ("system", prompt)
    assert provider.requests[0].message_pairs[0] == ("system", prompt)


def test_integration_3_variables_of_the_environment_are_filled_in(home, provider, settings, cllm):
    settings(default_system_message="You help ${WHO} with ${WHAT}.")

    cllm("Hello", "--conversation", "demo", env={"WHO": "Ada", "WHAT": "engines"}).succeeded()
    cllm("Again", "--conversation", "demo", env={"WHO": "Bob", "WHAT": "bridges"}).succeeded()

    assert home.messages("demo")[0] == ("system", "You help Ada with engines.")
    assert provider.requests[1].message_pairs[0] == ("system", "You help Ada with engines.")


def test_integration_3_a_variable_that_is_not_set_stays_as_it_was_written(
    home, provider, settings, cllm
):
    settings(default_system_message="You help ${NOBODY_HAS_SET_THIS}.")

    cllm("Hello", "--conversation", "demo").succeeded()

    assert home.messages("demo")[0] == ("system", "You help ${NOBODY_HAS_SET_THIS}.")


def test_a_variable_that_is_not_text_ends_without_a_traceback(home, provider, settings, cllm):
    settings(default_system_message="You help ${WHO}.")

    result = cllm("Hello", "--conversation", "demo", env={"WHO": os.fsdecode(b"\xff")})

    assert "Traceback" not in result.err
    if result.code == 0:
        assert home.messages("demo")[0][0] == "system"
    else:
        result.failed_with_one_sentence("WHO", prefix="")
        assert provider.requests == []


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(None, id="null"),
        pytest.param("", id="empty"),
        pytest.param(" \n\t ", id="blank"),
    ],
)
def test_a_prompt_of_nothing_is_not_configured(value, home, provider, settings, cllm):
    settings(default_system_message=value)

    cllm("Hello", "--conversation", "demo").succeeded()
    cllm("Hello again").succeeded()

    assert [role for role, _ in home.messages("demo")] == ["user", "assistant"]
    for request in provider.requests:
        assert [role for role, _ in request.message_pairs] == ["user"]


def test_a_prompt_is_sent_without_a_conversation_too(home, provider, settings, cllm):
    settings(default_system_message=PIRATE)

    cllm("Hello").succeeded()

    assert provider.requests[0].message_pairs == [("system", PIRATE), ("user", "Hello")]
    assert not home.conversations.exists() or not list(home.conversations.glob("*.json"))


def test_the_policy_and_the_source_are_recorded(home, settings, cllm):
    path = settings(default_system_message=PIRATE)

    cllm("Hello", "--conversation", "demo").succeeded()

    record = home.load("demo")["metadata"]["system"]
    assert record["policy"] == "captured"
    assert path.name in record["source"]


def test_a_captured_prompt_is_never_updated_and_the_difference_is_reported(
    home, provider, settings, cllm
):
    settings(default_system_message=PIRATE)
    first = cllm("Hello", "--conversation", "demo").succeeded()
    settings(default_system_message="You are a clerk.")

    second = cllm("Who are you?", "--conversation", "demo").succeeded()

    assert first.err == ""
    assert "system prompt" in second.err.lower()
    assert len(second.warnings) == 1
    assert home.messages("demo")[0] == ("system", PIRATE)
    assert [
        message for message in provider.requests[1].message_pairs if message[0] == "system"
    ] == [("system", PIRATE)]
    assert "clerk" not in home.file("demo").read_text(encoding="utf-8")


def test_a_prompt_taken_out_of_the_settings_stays_in_the_conversation(
    home, provider, settings, cllm
):
    settings(default_system_message=PIRATE)
    cllm("Hello", "--conversation", "demo").succeeded()
    settings()

    cllm("Still?", "--conversation", "demo").succeeded()

    assert provider.requests[1].message_pairs[0] == ("system", PIRATE)
    assert home.messages("demo")[0] == ("system", PIRATE)


def test_a_conversation_captured_without_a_prompt_gets_none_later(home, provider, settings, cllm):
    cllm("Hello", "--conversation", "demo").succeeded()
    settings(default_system_message=PIRATE)

    second = cllm("Again", "--conversation", "demo").succeeded()

    assert [role for role, _ in provider.requests[1].message_pairs] == ["user", "assistant", "user"]
    assert [role for role, _ in home.messages("demo")] == ["user", "assistant"] * 2
    assert "system prompt" in second.err.lower()


def test_a_file_with_no_messages_is_captured_as_new(home, provider, settings, cllm):
    settings(default_system_message=PIRATE)
    home.write_old_conversation("demo", metadata={})

    cllm("Hello", "--conversation", "demo").succeeded()

    assert home.messages("demo")[:2] == [("system", PIRATE), ("user", "Hello")]
    assert home.load("demo")["created_at"].startswith("2025-10-31T12:00:00")
    assert provider.requests[0].message_pairs == [("system", PIRATE), ("user", "Hello")]


def test_a_named_prompt_wins_over_the_settings_when_the_conversation_is_created(
    home, provider, settings, cllm
):
    settings(default_system_message=PIRATE)

    cllm("Hello", "--conversation", "demo", "--system", "You are a clerk.").succeeded()
    cllm("Again", "--conversation", "demo").succeeded()

    assert home.messages("demo")[0] == ("system", "You are a clerk.")
    assert [request.message_pairs[0] for request in provider.requests] == [
        ("system", "You are a clerk.")
    ] * 2


def test_a_named_prompt_wins_without_a_conversation(provider, settings, cllm):
    settings(default_system_message=PIRATE)

    cllm("Hello", "--system", "You are a clerk.").succeeded()

    assert provider.requests[0].message_pairs == [("system", "You are a clerk."), ("user", "Hello")]


def test_a_named_prompt_on_an_existing_captured_conversation_is_refused(
    home, provider, settings, cllm
):
    settings(default_system_message=PIRATE)
    cllm("Hello", "--conversation", "demo").succeeded()
    before = home.snapshot()

    refused = cllm("Again", "--conversation", "demo", "--system", "You are a clerk.")

    refused.failed_with_one_sentence("cllm conversations branch")
    assert home.snapshot() == before
    assert len(provider.requests) == 1


def test_a_prompt_can_be_read_from_a_file(home, provider, settings, cllm):
    settings(default_system_message=PIRATE)
    (home.work / "clerk.txt").write_text("Du bist ein Schreiber: ä.", encoding="utf-8")

    cllm("Hello", "--conversation", "demo", "--system-file", "clerk.txt").succeeded()

    assert home.messages("demo")[0] == ("system", "Du bist ein Schreiber: ä.")
    assert provider.requests[0].message_pairs[0] == ("system", "Du bist ein Schreiber: ä.")


def test_a_prompt_file_that_is_not_there_is_an_error(home, provider, settings, cllm):
    result = cllm("Hello", "--system-file", "nowhere.txt")

    assert result.code in (1, 2), result.report()
    assert "nowhere.txt" in result.err
    assert "Traceback" not in result.err
    assert provider.requests == []


def test_a_prompt_by_text_and_by_file_at_once_is_an_error(home, provider, settings, cllm):
    (home.work / "clerk.txt").write_text("You are a clerk.", encoding="utf-8")

    result = cllm("Hello", "--system", "You are a judge.", "--system-file", "clerk.txt")

    assert result.code in (1, 2), result.report()
    assert "--system-file" in result.err
    assert "Traceback" not in result.err
    assert provider.requests == []


def test_the_file_with_a_prompt_is_larger_by_the_prompt_only(home, provider, settings, cllm):
    settings(default_system_message=PIRATE)
    provider.queue_reply("Same.")
    provider.queue_reply("Same.")
    cllm("Hello", "--conversation", "with1").succeeded()
    settings()
    cllm("Hello", "--conversation", "wout2").succeeded()

    larger, smaller = home.file("with1").stat().st_size, home.file("wout2").stat().st_size

    assert len(PIRATE) <= larger - smaller < len(PIRATE) + 300
    assert json.dumps(PIRATE) in home.file("with1").read_text(encoding="utf-8")

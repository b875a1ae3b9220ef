"""Conversation context management: its criteria, automated tests and edge cases, one by one."""

import time

import pytest

from cllm import DEFAULT_MAX_TURNS, DEFAULT_SYSTEM_PROMPT, ConversationManager

WARNING = "Trimmed old messages to fit context window"


def add_turns(manager: ConversationManager, turns: int) -> ConversationManager:
    for number in range(turns):
        manager.add_user_message(f"question {number}")
        manager.add_assistant_message(f"answer {number}")
    return manager


def contents(manager: ConversationManager) -> list[str]:
    return [message["content"] for message in manager.get_messages()]


class TestAcceptanceCriteria:
    def test_1_a_follow_up_question_is_sent_with_its_history(self, provider, program):
        provider.queue_reply("Paris.")
        provider.queue_reply("About two million people.")

        out = program(
            """
            from cllm import ConversationManager
            manager = ConversationManager()
            manager.ask("What is the capital of France?")
            print(manager.ask("How many people live there?"))
            """
        )

        assert out == "About two million people.\n"
        assert provider.requests[1].message_pairs == [
            ("system", DEFAULT_SYSTEM_PROMPT),
            ("user", "What is the capital of France?"),
            ("assistant", "Paris."),
            ("user", "How many people live there?"),
        ]

    def test_2_an_earlier_name_is_in_the_history(self, provider, program):
        provider.queue_reply("Nice to meet you.")
        provider.queue_reply("Alice")

        out = program(
            """
            from cllm import ConversationManager
            manager = ConversationManager()
            manager.ask("My name is Alice")
            print(manager.ask("What's my name?"))
            """
        )

        assert out == "Alice\n"
        assert ("user", "My name is Alice") in provider.requests[1].message_pairs

    def test_3_with_more_than_ten_turns_older_messages_are_trimmed(self, provider, program):
        program(
            """
            from cllm import ConversationManager
            manager = ConversationManager()
            for number in range(12):
                manager.ask(f"question {number}")
            """
        )

        texts = [text for role, text in provider.requests[11].message_pairs if role == "user"]
        assert texts == [f"question {number}" for number in range(1, 12)]

    def test_4_trimming_is_reported_in_the_chat(self, settings, cllm):
        settings()
        lines = "".join(f"question {number}\n" for number in range(11))

        result = cllm("chat", stdin=lines.encode()).succeeded()

        assert result.err.count(WARNING) + result.out.count(WARNING) == 1

    def test_4_trimming_is_reported_to_a_program(self):
        manager = add_turns(ConversationManager(), 10)
        assert not manager.was_trimmed()

        add_turns(manager, 1)

        assert manager.was_trimmed()

    def test_5_clear_removes_all_history(self, provider, settings, cllm):
        settings()

        result = cllm("chat", stdin=b"My name is Alice\nclear\nWhat's my name?\n").succeeded()

        assert "Conversation cleared" in result.out + result.err
        assert [text for _, text in provider.requests[1].message_pairs] == ["What's my name?"]

    def test_5_clear_in_a_program(self, provider, program):
        program(
            """
            from cllm import ConversationManager
            manager = ConversationManager(system_prompt="Be brief.")
            manager.ask("My name is Alice")
            manager.clear()
            manager.ask("What's my name?")
            """
        )

        assert provider.requests[1].message_pairs == [
            ("system", "Be brief."),
            ("user", "What's my name?"),
        ]

    @pytest.mark.parametrize("text", ["", "   ", "\n\t"])
    def test_6_an_empty_message_is_a_value_error_and_nothing_is_sent(self, provider, program, text):
        out = program(
            f"""
            from cllm import ConversationManager
            manager = ConversationManager()
            for say in (manager.add_user_message, manager.ask, manager.stream):
                try:
                    say({text!r})
                except ValueError as error:
                    print(error)
            """
        )

        assert out.splitlines() == ["A message must not be empty or blank."] * 3
        assert provider.requests == []


class TestAutomatedTests:
    def test_adding_user_messages(self):
        manager = ConversationManager()
        manager.add_user_message("Hello")

        assert manager.messages == [{"role": "user", "content": "Hello"}]

    def test_adding_assistant_messages(self):
        manager = ConversationManager()
        manager.add_user_message("Hello")
        manager.add_assistant_message("Hi")

        assert manager.messages[1] == {"role": "assistant", "content": "Hi"}

    @pytest.mark.parametrize("role", ["user", "assistant"])
    @pytest.mark.parametrize("message", ["", " ", "\n\t ", None, 7])
    def test_empty_message_validation(self, role, message):
        manager = ConversationManager()

        with pytest.raises(ValueError, match="must not be empty"):
            getattr(manager, f"add_{role}_message")(message)
        assert manager.messages == []

    def test_message_counting(self):
        manager = add_turns(ConversationManager(), 2)
        manager.add_user_message("and?")

        assert manager.get_message_count() == 5

    def test_turn_counting_where_a_turn_is_a_question_and_its_answer(self):
        manager = add_turns(ConversationManager(), 2)
        manager.add_user_message("and?")
        assert manager.get_turn_count() == 2

        manager.add_assistant_message("yes")
        assert manager.get_turn_count() == 3

    def test_automatic_trimming_at_max_turns(self):
        manager = add_turns(ConversationManager(max_turns=3), 5)

        assert contents(manager) == [
            *("question 2", "answer 2"),
            *("question 3", "answer 3"),
            *("question 4", "answer 4"),
        ]

    def test_system_prompt_handling(self):
        manager = add_turns(ConversationManager(system_prompt="Custom system prompt"), 12)

        assert manager.system_prompt == "Custom system prompt"
        assert {message["role"] for message in manager.messages} == {"user", "assistant"}
        assert ConversationManager().system_prompt == DEFAULT_SYSTEM_PROMPT

    def test_clear_functionality(self):
        manager = add_turns(ConversationManager(system_prompt="Custom", max_turns=1), 3)

        manager.clear()

        assert (manager.messages, manager.get_turn_count()) == ([], 0)
        assert manager.system_prompt == "Custom"
        assert manager._last_trimmed is False

    def test_trimming_flag_tracking(self):
        manager = add_turns(ConversationManager(max_turns=2), 2)
        assert manager._last_trimmed is False

        add_turns(manager, 1)
        assert manager._last_trimmed is True

        manager.max_turns = 5
        add_turns(manager, 1)
        assert manager._last_trimmed is False


class TestEdgeCases:
    def test_1_all_messages_of_a_long_monologue_stay_until_the_response(self):
        manager = add_turns(ConversationManager(max_turns=1), 1)
        for number in range(50):
            manager.add_user_message(f"word {number}")
        assert manager.get_message_count() == 52

        manager.add_assistant_message("I see.")

        assert contents(manager) == [*(f"word {number}" for number in range(50)), "I see."]
        assert manager.was_trimmed()

    def test_2_a_very_long_first_message_is_accepted(self):
        manager = ConversationManager()
        manager.add_user_message("x" * 5_000_000)

        assert len(manager.messages[0]["content"]) == 5_000_000

    def test_3_clearing_an_empty_conversation_is_no_error(self):
        manager = ConversationManager()
        manager.clear()

        assert manager.messages == []

    def test_4_nothing_is_trimmed_at_exactly_max_turns(self):
        manager = add_turns(ConversationManager(), DEFAULT_MAX_TURNS)
        assert (manager.get_turn_count(), manager.was_trimmed()) == (10, False)

        add_turns(manager, 1)
        assert (manager.get_turn_count(), manager.was_trimmed()) == (10, True)

    def test_5_consecutive_assistant_messages_all_stay(self):
        manager = add_turns(ConversationManager(max_turns=1), 1)
        manager.add_assistant_message("and another")

        assert contents(manager) == ["question 0", "answer 0", "and another"]


class TestPerformance:
    def test_memory_use_is_limited_to_the_window(self):
        manager = ConversationManager(max_turns=10)
        most = 0
        for _ in range(2_000):
            add_turns(manager, 1)
            most = max(most, manager.get_message_count())

        assert most == 20

    def test_trimming_costs_the_same_after_ten_turns_and_after_a_hundred_thousand(self):
        manager = add_turns(ConversationManager(max_turns=10), 11)
        early = min(_seconds(manager) for _ in range(5))
        add_turns(manager, 100_000)
        late = min(_seconds(manager) for _ in range(5))

        assert manager.get_turn_count() == 10
        assert late < early * 3

    def test_the_oldest_turn_is_dropped_completely(self):
        manager = ConversationManager(max_turns=2)
        for size in (1, 5, 2, 3):
            for number in range(size):
                manager.add_user_message(f"{size}-{number}")
            manager.add_assistant_message(f"answer to {size}")

        assert contents(manager) == [
            "2-0",
            "2-1",
            "answer to 2",
            "3-0",
            "3-1",
            "3-2",
            "answer to 3",
        ]


def _seconds(manager: ConversationManager) -> float:
    start = time.process_time()
    add_turns(manager, 2_000)
    return time.process_time() - start

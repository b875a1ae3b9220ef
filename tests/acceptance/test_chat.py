"""`cllm chat` in a terminal of its own."""

import json
import re
import signal

import pytest
from tests.fake_provider import WAIT, ToolCall
from tests.terminal_chat import ALT_ENTER, CTRL_C, CTRL_D, ENTER


def only_conversation(home) -> str:
    (file,) = home.conversations.glob("*.json")
    return str(file.stem)


@pytest.mark.usefixtures("settings")
class TestInATerminal:
    def test_a_conversation_is_stored_with_an_automatic_id(self, home, provider, start_chat):
        chat = start_chat()
        chat.say("My cat is called Luna.", "echo: My cat is called Luna.")
        chat.say("What is she called?", "echo: What is she called?")
        chat.type(CTRL_D)

        assert chat.finish().code == 0
        assert provider.requests[1].message_pairs == [
            ("user", "My cat is called Luna."),
            ("assistant", "echo: My cat is called Luna."),
            ("user", "What is she called?"),
        ]
        kept = only_conversation(home)
        assert re.fullmatch(r"c-\d{8}-\d{6}-[0-9a-f]{4}", kept)
        assert len(home.messages(kept)) == 4

    def test_thinking_is_seen_while_it_comes(self, provider, start_chat):
        gate = provider.queue_held_reply(
            "It is ", "a cat.", at=0, reasoning=("Four legs, ", "a tail.")
        )
        chat = start_chat()

        chat.type(b"What is it?", ENTER)
        chat.wait_for("Four legs, a tail.")
        assert "\x1b[2mFour legs" in chat.running.out
        gate.open()
        chat.wait_for_prompt_after("It is a cat.")

    def test_markdown_is_rendered_and_stays_in_the_scrollback(self, provider, start_chat):
        provider.queue_reply("# Rivers\n\n- **Rh", "ine**\n- Elbe\n\nUse <div>.")
        chat = start_chat()

        chat.say("Which?", "Use <div>.")

        assert "• Rhine" in chat.screen
        assert "**" not in chat.screen
        chat.type(b"quit", ENTER)
        assert chat.finish().code == 0

    def test_the_status_line_has_model_turns_tokens_and_cost(self, start_chat):
        chat = start_chat()
        chat.say("Hello", "echo: Hello")

        chat.wait_for("openai/gpt-test · 1 turn · 11 tokens in the last prompt · cost unknown")

    def test_several_lines_are_one_message(self, provider, start_chat):
        chat = start_chat()

        chat.type(b"one", ALT_ENTER, b"two\\", ENTER, b"three", ENTER)
        chat.wait_for("echo: one")

        assert provider.wait_for(1).message_pairs == [("user", "one\ntwo\nthree")]

    def test_pasted_text_is_one_message(self, provider, start_chat):
        chat = start_chat()

        chat.type(b"\x1b[200~one\ntwo\n/quit\x1b[201~")
        chat.wait_for("/quit")
        chat.type(ENTER)

        assert provider.wait_for(1).message_pairs == [("user", "one\ntwo\n/quit")]

    def test_ctrl_c_stops_the_answer_and_saves_the_partial_text(self, home, provider, start_chat):
        provider.queue_held_reply("Once upon a time ", "never", at=1)
        chat = start_chat()
        chat.type(b"Tell me.", ENTER)
        chat.wait_for("Once upon a time")

        chat.type(CTRL_C)
        chat.wait_for("Interrupted. The partial reply is saved.")
        chat.wait_for_prompt_after("saved.")
        chat.say("Go on.", "echo: Go on.")

        assert provider.requests[1].message_pairs == [
            ("user", "Tell me."),
            ("assistant", "Once upon a time "),
            ("user", "Go on."),
        ]
        assert home.turn_states(only_conversation(home)) == ["incomplete", "complete"]

    def test_ctrl_c_before_the_first_text_saves_the_message_as_a_failed_turn(
        self, home, provider, start_chat
    ):
        gate = provider.queue_held_reply("never", at=0)
        chat = start_chat()
        chat.type(b"Tell me.", ENTER)
        gate.wait_reached()

        chat.type(CTRL_C)
        chat.wait_for_prompt_after("Interrupted. Your message is saved.")
        chat.say("Go on.", "echo: Go on.")

        assert provider.requests[1].message_pairs == [("user", "Go on.")]
        assert home.turn_states(only_conversation(home)) == ["failed", "complete"]

    def test_ctrl_c_stops_a_summary_and_changes_nothing(self, home, provider, start_chat):
        chat = start_chat("demo")
        chat.say("One", "echo: One")
        chat.say("Two", "echo: Two")
        before = home.file("demo").read_bytes()
        gate = provider.queue_held_reply("A summary", ".", at=1)

        chat.type(b"/compact", ENTER)
        gate.wait_reached()
        chat.type(CTRL_C)
        chat.wait_for_prompt_after("Interrupted. Nothing was changed.")

        assert "^C" not in chat.screen
        assert home.file("demo").read_bytes() == before

    def test_ctrl_c_can_keep_nothing(self, home, provider, settings, start_chat):
        settings(on_interrupt="discard")
        provider.queue_held_reply("Once upon a time ", "never", at=1)
        chat = start_chat()
        chat.type(b"Tell me.", ENTER)
        chat.wait_for("Once upon a time")

        chat.type(CTRL_C)
        chat.wait_for("Interrupted. Nothing is saved.")
        chat.wait_for_prompt_after("saved.")

        assert list(home.conversations.glob("*.json")) == []

    def test_at_the_prompt_a_second_ctrl_c_leaves(self, start_chat):
        chat = start_chat()

        chat.type(CTRL_C)
        chat.wait_for("Press Ctrl-C again")
        chat.wait_for_prompt()
        chat.type(CTRL_C)

        assert chat.finish().code == 130

    def test_a_message_between_two_presses_resets_the_count(self, start_chat):
        chat = start_chat()

        chat.type(CTRL_C)
        chat.wait_for("Press Ctrl-C again")
        chat.say("Hello", "echo: Hello")
        chat.type(CTRL_C)
        chat.wait_for("Press Ctrl-C again")
        chat.type(CTRL_D)

        assert chat.finish().code == 0

    def test_ctrl_d_during_an_answer_leaves_after_it(self, home, provider, start_chat):
        gate = provider.queue_held_reply("It is ", "a cat.", at=1)
        chat = start_chat("demo")

        chat.type(b"What is it?", ENTER)
        gate.wait_reached()
        chat.type(CTRL_D)
        gate.open()

        assert chat.finish().code == 0
        assert home.messages("demo")[-1] == ("assistant", "It is a cat.")

    def test_clear_starts_a_new_conversation_and_the_old_one_is_unchanged(
        self, home, provider, start_chat
    ):
        chat = start_chat()
        chat.say("First", "echo: First")
        chat.say("clear", "Conversation cleared")
        chat.say("Second", "echo: Second")

        assert provider.requests[1].message_pairs == [("user", "Second")]
        assert len(list(home.conversations.glob("*.json"))) == 2

    def test_resuming_shows_the_tail(self, home, provider, start_chat):
        home.write_old_conversation(
            "cats", ("user", "My cat is Luna."), ("assistant", "A fine name.")
        )

        chat = start_chat("cats", ready=" · 1 turn")

        assert "You: My cat is Luna." in chat.screen
        assert "Model: A fine name." in chat.screen
        chat.say("Who?", "echo: Who?")
        assert provider.requests[0].message_pairs[0] == ("user", "My cat is Luna.")
        assert len(home.messages("cats")) == 4

    def test_the_input_history_is_saved_for_the_next_chat(self, home, start_chat, mode):
        chat = start_chat()
        chat.say("Hello", "echo: Hello")
        chat.type(CTRL_D)
        chat.finish()
        again = start_chat()

        again.type(b"\x1b[A")
        again.wait_for("Hello")

        assert mode(home.path / ".cllm/chat_history") == 0o600

    def test_a_provider_that_fails_in_the_middle_leaves_the_chat_usable(
        self, home, provider, start_chat
    ):
        chat = start_chat()
        chat.say("First", "echo: First")
        provider.queue_reply("Once ", "upon ", stop_after=1)
        chat.say("Second", "Error: ")
        chat.say("Third", "echo: Third")

        assert provider.requests[2].message_pairs == [
            ("user", "First"),
            ("assistant", "echo: First"),
            ("user", "Third"),
        ]
        assert home.turn_states(only_conversation(home)) == ["complete", "failed", "complete"]

    def test_the_user_confirms_a_command_of_the_model(self, home, provider, settings, start_chat):
        settings(allow_dynamic_commands=True, dynamic_commands={"require_confirmation": True})
        (home.work / "hello.txt").write_text("hello world", encoding="utf-8")
        arguments = json.dumps({"command": "cat hello.txt", "reason": "to see"})
        call = ToolCall(id="call_1", name="execute_bash_command", arguments=arguments)
        provider.queue_reply("Let me look.", tool_calls=(call,), finish="tool_calls")
        provider.queue_reply("It says hello.")
        chat = start_chat()
        chat.type(b"What does it say?", ENTER)
        chat.wait_for("Run it? [y/N]")

        chat.type(b"y", ENTER)
        chat.wait_for("It says hello.")

        assert provider.requests[1].messages[-1]["content"] == "hello world"

    def test_an_empty_message_is_not_sent(self, provider, start_chat):
        chat = start_chat()

        chat.type(b"   ", ENTER)
        chat.wait_for("The message is empty")

        assert provider.requests == []

    def test_completion_offers_conversations(self, home, start_chat):
        home.write_old_conversation("some-cats", ("user", "Hello"), ("assistant", "Hi."))
        chat = start_chat()

        chat.type(b"/open some")
        chat.wait_for("some-cats")

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_during_an_answer_saves_the_partial_text(
        self, number, home, provider, start_chat
    ):
        provider.queue_held_reply("Once upon a time ", "never", at=1)
        chat = start_chat()
        chat.type(b"Tell me.", ENTER)
        chat.wait_for("Once upon a time")

        chat.running.signal(number)

        assert chat.finish().code == 143
        assert home.messages(only_conversation(home))[1] == ("assistant", "Once upon a time ")

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_at_the_prompt_ends_the_chat(self, number, start_chat):
        chat = start_chat()

        chat.running.signal(number)

        assert chat.finish().code == 143

    @pytest.mark.parametrize(("columns", "lines"), [(1, 1), (2, 40), (15, 3), (300, 2)])
    def test_a_terminal_of_any_size_works(self, columns, lines, provider, start_chat):
        chat = start_chat(columns=columns, lines=lines, ready="/help")

        chat.type(b"Hi", ENTER)
        assert provider.wait_for(1).answered.wait(WAIT)
        chat.type(b"quit", ENTER)

        assert chat.finish().code == 0

    def test_a_dumb_terminal_gets_plain_lines(self, provider, start_chat):
        provider.queue_reply("# Not *rendered*")
        chat = start_chat(env={"TERM": "dumb"})

        chat.type(b"Hello\n")
        chat.wait_for("# Not *rendered*")
        chat.wait_for("received")
        chat.wait_for_prompt()
        assert "\x1b" not in chat.running.out
        chat.type(CTRL_D)
        assert chat.finish().code == 0


@pytest.mark.usefixtures("settings")
class TestWhatOthersDoMeanwhile:
    @pytest.mark.parametrize("command", [b"/undo", b"/regenerate"])
    def test_a_turn_of_another_process_is_not_changed(self, command, home, cllm, start_chat):
        chat = start_chat("demo")
        chat.say("One", "echo: One")
        cllm("--conversation", "demo", "From another window").succeeded()
        before = home.messages("demo")

        chat.type(command, ENTER)
        chat.wait_for("Another process changed")
        chat.wait_for("/open demo")
        assert home.messages("demo") == before
        chat.say("/open demo", "From another window")
        chat.type(command, ENTER)
        chat.wait_for(
            "Deleted the last turn" if command == b"/undo" else "echo: From another window"
        )

    @pytest.mark.parametrize("command", [b"/undo", b"/regenerate", b"/title x", b"/pin 1"])
    def test_a_conversation_that_is_gone_is_one_sentence(self, command, home, start_chat):
        chat = start_chat("demo")
        chat.say("One", "echo: One")
        home.file("demo").unlink()

        chat.type(command, ENTER)
        chat.wait_for("Conversation 'demo' does not exist")
        chat.say("Two", "echo: Two")
        assert home.messages("demo") == [("user", "Two"), ("assistant", "echo: Two")]

    def test_a_broken_conversation_is_reported_once_and_not_changed(self, home, start_chat):
        chat = start_chat("demo")
        chat.say("One", "echo: One")
        home.file("demo").write_text("{broken", encoding="utf-8")

        chat.type(b"Two", ENTER)
        chat.wait_for_prompt_after("was not changed")
        assert chat.screen.count("was not changed") == 1
        assert home.file("demo").read_text(encoding="utf-8") == "{broken"
        chat.say("/new", "New conversation")
        chat.say("Three", "echo: Three")

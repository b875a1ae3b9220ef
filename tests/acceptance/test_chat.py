"""`cllm chat` in a terminal of its own, and without one."""

import fcntl
import json
import re
import signal
import struct
import termios
import threading
import time

import pytest
from tests.fake_provider import WAIT

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()=>78][A-Z0-9]?")
ASKS_FOR_CURSOR = "\x1b[6n"
ENTER = b"\r"
ALT_ENTER = b"\x1b\r"
CTRL_C = b"\x03"
CTRL_D = b"\x04"


class Talk:
    """A chat in a terminal, which answers where its cursor is like a real one."""

    def __init__(self, running) -> None:
        self.running = running
        self._seen = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._answer_questions, daemon=True)
        self._thread.start()

    def _answer_questions(self) -> None:
        answered = 0
        while not self._ended.wait(0.01):
            if self.running.out.count(ASKS_FOR_CURSOR) > answered:
                answered += 1
                self.running.type(b"\x1b[1;1R")

    @property
    def screen(self) -> str:
        """What was printed since the last time something was typed, without its colours."""
        return ESCAPE.sub("", self.running.out[self._seen :])

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + WAIT
        while text not in self.screen:
            assert time.monotonic() < deadline, f"{text!r} was not shown: {self.screen!r}"
            assert self.running.process.poll() is None or text in self.screen, self.screen
            time.sleep(0.01)

    def wait_for_prompt(self) -> None:
        self.wait_for("You: ")

    def type(self, *keys: bytes) -> None:
        self._seen = len(self.running.out)
        for key in keys:
            self.running.type(key)

    def say(self, text: str, answer: str) -> None:
        """Say something at the prompt, and wait for the answer and the next prompt."""
        self.type(text.encode(), ENTER)
        self.wait_for(answer)
        self.wait_for_next_prompt()

    def wait_for_next_prompt(self) -> None:
        """Wait until the status line below the prompt is drawn after everything else."""
        deadline = time.monotonic() + WAIT
        while not re.search(
            r"You: (?!.*received)[^\n]*\s+\S+ · \d+ turns?", self.screen, re.DOTALL
        ):
            assert time.monotonic() < deadline, f"no prompt: {self.screen!r}"
            time.sleep(0.01)

    def resize(self, columns: int, lines: int) -> None:
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self.running._terminal, termios.TIOCSWINSZ, size)

    def finish(self):
        result = self.running.finish()
        self._ended.set()
        self._thread.join()
        assert "Traceback" not in result.out, result.report()
        return result


@pytest.fixture
def talk(cllm):
    started = []

    def start(*arguments, env=None, columns=100, lines=40):
        found = Talk(cllm.start("chat", *arguments, terminal=True, env=env))
        found.resize(columns, lines)
        started.append(found)
        found.wait_for_prompt()
        return found

    yield start
    for one in started:
        one._ended.set()
        one._thread.join()


def only_conversation(home) -> str:
    (file,) = home.conversations.glob("*.json")
    return str(file.stem)


@pytest.mark.usefixtures("settings")
class TestInATerminal:
    def test_a_conversation_goes_on_and_is_kept_under_an_automatic_id(self, home, provider, talk):
        chat = talk()
        chat.say("My cat is called Luna.", "echo: My cat is called Luna.")
        chat.say("What is she called?", "echo: What is she called?")
        chat.type(CTRL_D)

        assert chat.finish().code == 0
        assert provider.requests[1].said == [
            ("user", "My cat is called Luna."),
            ("assistant", "echo: My cat is called Luna."),
            ("user", "What is she called?"),
        ]
        kept = only_conversation(home)
        assert re.fullmatch(r"c-\d{8}-\d{6}-[0-9a-f]{4}", kept)
        assert len(home.messages(kept)) == 4

    def test_markdown_is_rendered_and_stays_in_the_scrollback(self, provider, talk):
        provider.say("# Rivers\n\n- **Rh", "ine**\n- Elbe\n\nUse <div>.")
        chat = talk()

        chat.say("Which?", "Use <div>.")

        assert "• Rhine" in chat.screen
        assert "**" not in chat.screen
        chat.type(b"quit", ENTER)
        assert chat.finish().code == 0

    def test_the_status_line_has_model_turns_tokens_and_cost(self, talk):
        chat = talk()
        chat.say("Hello", "echo: Hello")

        chat.wait_for("openai/gpt-test · 1 turn · 11 tokens in the last prompt · cost unknown")

    def test_several_lines_are_one_message(self, provider, talk):
        chat = talk()

        chat.type(b"one", ALT_ENTER, b"two\\", ENTER, b"three", ENTER)
        chat.wait_for("echo: one")

        assert provider.wait_for(1).said == [("user", "one\ntwo\nthree")]

    def test_what_is_pasted_is_one_message(self, provider, talk):
        chat = talk()

        chat.type(b"\x1b[200~one\ntwo\n/quit\x1b[201~")
        chat.wait_for("/quit")
        chat.type(ENTER)

        assert provider.wait_for(1).said == [("user", "one\ntwo\n/quit")]

    def test_ctrl_c_stops_the_answer_and_what_was_said_is_kept(self, home, provider, talk):
        provider.say_held("Once upon a time ", "never", at=1)
        chat = talk()
        chat.type(b"Tell me.", ENTER)
        chat.wait_for("Once upon a time")

        chat.type(CTRL_C)
        chat.wait_for("Interrupted. What was said so far is kept.")
        chat.wait_for_next_prompt()
        chat.say("Go on.", "echo: Go on.")

        assert provider.requests[1].said == [
            ("user", "Tell me."),
            ("assistant", "Once upon a time "),
            ("user", "Go on."),
        ]
        assert home.turn_states(only_conversation(home)) == ["incomplete", "complete"]

    def test_ctrl_c_can_keep_nothing(self, home, provider, settings, talk):
        settings(on_interrupt="discard")
        provider.say_held("Once upon a time ", "never", at=1)
        chat = talk()
        chat.type(b"Tell me.", ENTER)
        chat.wait_for("Once upon a time")

        chat.type(CTRL_C)
        chat.wait_for("Interrupted. Nothing is kept.")
        chat.wait_for_next_prompt()

        assert list(home.conversations.glob("*.json")) == []

    def test_at_the_prompt_a_second_ctrl_c_leaves(self, talk):
        chat = talk()

        chat.type(CTRL_C)
        chat.wait_for("Press Ctrl-C again")
        chat.wait_for_prompt()
        chat.type(CTRL_C)

        assert chat.finish().code == 130

    def test_something_said_between_two_presses_counts_them_anew(self, talk):
        chat = talk()

        chat.type(CTRL_C)
        chat.wait_for("Press Ctrl-C again")
        chat.say("Hello", "echo: Hello")
        chat.type(CTRL_C)
        chat.wait_for("Press Ctrl-C again")
        chat.type(CTRL_D)

        assert chat.finish().code == 0

    def test_clear_begins_a_new_conversation_and_the_old_one_stays(self, home, provider, talk):
        chat = talk()
        chat.say("First", "echo: First")
        chat.say("clear", "Conversation cleared")
        chat.say("Second", "echo: Second")

        assert provider.requests[1].said == [("user", "Second")]
        assert len(list(home.conversations.glob("*.json"))) == 2

    def test_resuming_shows_the_tail(self, home, provider, talk):
        home.keep_old("cats", ("user", "My cat is Luna."), ("assistant", "A fine name."))

        chat = talk("cats")

        assert "You: My cat is Luna." in chat.screen
        assert "Model: A fine name." in chat.screen
        chat.say("Who?", "echo: Who?")
        assert provider.requests[0].said[0] == ("user", "My cat is Luna.")
        assert len(home.messages("cats")) == 4

    def test_what_was_typed_is_remembered_for_the_next_chat(self, home, talk, mode):
        chat = talk()
        chat.say("Hello", "echo: Hello")
        chat.type(CTRL_D)
        chat.finish()
        again = talk()

        again.type(b"\x1b[A")
        again.wait_for("Hello")

        assert mode(home.path / ".cllm/chat_history") == 0o600

    def test_a_provider_that_fails_in_the_middle_leaves_the_chat_usable(self, home, provider, talk):
        chat = talk()
        chat.say("First", "echo: First")
        provider.say("Once ", "upon ", stop_after=1)
        chat.say("Second", "Error: ")
        chat.say("Third", "echo: Third")

        assert provider.requests[2].said == [
            ("user", "First"),
            ("assistant", "echo: First"),
            ("user", "Third"),
        ]
        assert home.turn_states(only_conversation(home)) == ["complete", "complete"]

    def test_an_empty_message_is_not_sent(self, provider, talk):
        chat = talk()

        chat.type(b"   ", ENTER)
        chat.wait_for("Nothing was said")

        assert provider.requests == []

    def test_completion_offers_conversations(self, home, talk):
        home.keep_old("some-cats", ("user", "Hello"), ("assistant", "Hi."))
        chat = talk()

        chat.type(b"/open some")
        chat.wait_for("some-cats")

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_in_the_middle_keeps_what_was_said(self, number, home, provider, talk):
        provider.say_held("Once upon a time ", "never", at=1)
        chat = talk()
        chat.type(b"Tell me.", ENTER)
        chat.wait_for("Once upon a time")

        chat.running.signal(number)

        assert chat.finish().code == 143
        assert home.messages(only_conversation(home))[1] == ("assistant", "Once upon a time ")

    def test_a_signal_at_the_prompt_ends_the_chat(self, talk):
        chat = talk()

        chat.running.signal(signal.SIGTERM)

        assert chat.finish().code == 143

    @pytest.mark.parametrize(("columns", "lines"), [(1, 1), (2, 40), (15, 3), (300, 2)])
    def test_a_terminal_of_any_size_works(self, columns, lines, provider, talk):
        chat = talk(columns=columns, lines=lines)

        chat.type(b"Hi", ENTER)
        provider.wait_for(1)
        chat.running.wait_for_output("\x1b[6n")
        time.sleep(0.3)
        chat.type(CTRL_D)

        assert chat.finish().code == 0

    def test_a_dumb_terminal_gets_plain_lines(self, provider, talk):
        provider.say("# Not *rendered*")
        chat = talk(env={"TERM": "dumb"})

        chat.type(b"Hello\n")
        chat.wait_for("# Not *rendered*")
        chat.wait_for("received")
        chat.wait_for_prompt()
        assert "\x1b" not in chat.running.out
        chat.type(CTRL_D)
        assert chat.finish().code == 0

    def test_a_terminal_that_goes_away_ends_the_chat(self, home, talk):
        chat = talk()
        chat.say("Hello", "echo: Hello")
        chat._ended.set()
        chat._thread.join()

        chat.running.process.send_signal(signal.SIGHUP)
        chat.running.process.wait(WAIT)

        assert len(home.messages(only_conversation(home))) == 2


@pytest.mark.usefixtures("settings")
class TestCommands:
    def test_regenerate_keeps_the_old_answer_as_a_variant(self, home, provider, cllm):
        provider.say("One.")
        provider.say("Two.")

        done = cllm("chat", "demo", stdin=b"Say a number.\n/regenerate\nAnd?\n").succeeded()

        assert done.out == "One.\nTwo.\necho: And?\n"
        assert provider.requests[1].said == [("user", "Say a number.")]
        assert provider.requests[2].said == [
            ("user", "Say a number."),
            ("assistant", "Two."),
            ("user", "And?"),
        ]
        assert "One." in json.dumps(home.load("demo")["metadata"])

    def test_undo_takes_the_last_turn_back(self, provider, cllm):
        done = cllm("chat", "demo", stdin=b"One\nTwo\n/undo\nThree\n").succeeded()

        assert "Taken back: Two" in done.err
        assert provider.requests[2].said == [
            ("user", "One"),
            ("assistant", "echo: One"),
            ("user", "Three"),
        ]

    def test_another_model_is_a_branch(self, home, provider, cllm):
        cllm("chat", "demo", stdin=b"One\n/model openai/gpt-other\nTwo\n").succeeded()

        assert [request.json["model"] for request in provider.requests] == ["gpt-test", "gpt-other"]
        assert len(home.messages("demo")) == 2
        branch = next(path.stem for path in home.conversations.glob("c-*.json"))
        assert home.load(branch)["model"] == "openai/gpt-other"
        assert len(home.messages(branch)) == 4

    def test_a_model_before_the_first_message_is_that_of_the_conversation(self, home, cllm):
        cllm("chat", "demo", stdin=b"/model openai/gpt-other\nOne\n").succeeded()

        assert home.load("demo")["model"] == "openai/gpt-other"

    def test_a_model_that_nobody_serves_changes_nothing(self, home, cllm):
        done = cllm("chat", "demo", stdin=b"One\n/model nobody/x\nTwo\n")

        assert done.code == 1
        assert "Error: " in done.err
        assert len(home.messages("demo")) == 4

    def test_another_system_prompt_is_a_branch(self, home, provider, cllm):
        done = cllm("chat", "demo", stdin=b"One\n/system Be brief.\nTwo\n").succeeded()

        assert "system" not in [role for role, _ in provider.requests[0].said]
        assert provider.requests[1].said[0] == ("system", "Be brief.")
        assert len(home.messages("demo")) == 2
        assert "Warning" not in done.err

    def test_a_system_prompt_before_the_first_message_is_captured(self, home, cllm):
        cllm("chat", "demo", stdin=b"/system Be brief.\nOne\n").succeeded()

        assert home.messages("demo")[0] == ("system", "Be brief.")

    def test_a_branch_has_the_messages_up_to_a_number(self, home, provider, cllm):
        cllm("chat", "demo", stdin=b"One\nTwo\n/branch 2\nThree\n").succeeded()

        assert provider.requests[2].said[-2:] == [("assistant", "echo: One"), ("user", "Three")]
        assert len(home.messages("demo")) == 4

    def test_a_branch_of_nothing_is_a_mistake(self, cllm):
        done = cllm("chat", stdin=b"/branch\n/undo\n/regenerate\n/export x\n")

        assert done.code == 1
        assert done.err.count("Nothing has been said in this conversation yet.") == 4

    def test_a_context_command_runs_for_the_next_message_only(self, provider, cllm):
        cllm("chat", "demo", stdin=b"One\n/context echo sunny\nTwo\nThree\n").succeeded()

        assert "sunny" in provider.requests[1].said[-1][1]
        assert provider.requests[2].said[-1] == ("user", "Three")
        assert provider.requests[2].said[2] == ("user", "Two")

    def test_a_file_goes_with_the_next_message_only(self, home, provider, cllm):
        (home.work / "my notes.txt").write_text("Luna", encoding="utf-8")

        cllm("chat", stdin=b"/attach my notes.txt\nWho?\nAgain\n").succeeded()

        assert "Luna" in json.dumps(provider.requests[0].messages[-1])
        assert provider.requests[1].said[-1] == ("user", "Again")

    def test_a_file_that_is_not_there_is_one_sentence(self, cllm):
        done = cllm("chat", "--no-stats", stdin=b"/attach nothing.png\nHello\n")

        assert done.out == "echo: Hello\n"
        assert done.warnings[1].startswith("Error: Cannot attach 'nothing.png'")

    def test_a_failed_message_keeps_its_attachments(self, home, provider, cllm):
        (home.work / "notes.txt").write_text("Luna", encoding="utf-8")
        provider.fail(500)

        cllm("chat", stdin=b"/attach notes.txt\nWho?\nWho?\n")

        assert "Luna" in json.dumps(provider.requests[1].messages[-1])

    def test_title_list_and_search_find_a_conversation(self, cllm):
        given = (
            b"I like herons.\n/title Birds\n/list\n/search HERONS\n/search nowhere to be found\n"
        )
        done = cllm("chat", "demo", stdin=given).succeeded()

        lines = done.out.splitlines()
        assert lines[1].startswith("demo ")
        assert lines[1].endswith("Birds")
        assert lines[2] == lines[1]
        assert "echo: I like herons." in lines[3]
        assert "Nowhere was 'nowhere to be found' said." in done.err

    def test_export_writes_markdown_or_json_and_nothing_twice(self, home, cllm, mode):
        given = b"Hello\n/export a.md\n/export a.json\n/export a.md\n"
        done = cllm("chat", "demo", stdin=given)

        assert "is there already" in done.err
        text = (home.work / "a.md").read_text(encoding="utf-8")
        assert "## You\n\nHello\n\n## Model\n\necho: Hello\n" in text
        assert json.loads((home.work / "a.json").read_bytes())["messages"] == [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "echo: Hello"},
        ]
        assert mode(home.work / "a.md") == 0o600

    def test_open_goes_on_with_another_conversation(self, home, provider, cllm):
        home.keep_old("cats", ("user", "My cat is Luna."), ("assistant", "A fine name."))

        done = cllm("chat", "demo", stdin=b"Hello\n/open cats\nWho?\n").succeeded()

        assert "Model: A fine name." in done.out
        assert provider.requests[1].said[0] == ("user", "My cat is Luna.")
        assert len(home.messages("demo")) == 2

    def test_opening_what_is_not_there_changes_nothing(self, home, cllm):
        done = cllm("chat", "demo", stdin=b"Hello\n/open nothing\nAgain\n")

        assert "nothing" in done.err
        assert len(home.messages("demo")) == 4

    def test_stats_have_tokens_and_unknown_costs(self, cllm):
        done = cllm("chat", "--no-stats", stdin=b"Hello\nstats\n").succeeded()

        assert "This conversation: 1 turn, 2 messages" in done.out
        assert re.search(r"tokens sent +11\n", done.out)
        assert re.search(r"cost +unknown\n", done.out)
        assert len(done.warnings) == 1

    def test_help_lists_the_commands(self, cllm):
        done = cllm("chat", stdin=b"/help\n").succeeded()

        for name in ("new", "model", "regenerate", "attach", "quit"):
            assert f"\n/{name}" in f"\n{done.out}"


@pytest.mark.usefixtures("settings")
class TestWithoutATerminal:
    def test_each_line_is_a_message_and_only_answers_are_on_standard_output(self, provider, cllm):
        done = cllm("chat", stdin=b"One\n\nTwo\\\nThree\nquit\nnever\n").succeeded()

        assert done.out == "echo: One\necho: Two\nThree\n"
        assert [request.said[-1] for request in provider.requests] == [
            ("user", "One"),
            ("user", "Two\nThree"),
        ]
        assert "Nothing was said" in done.err

    def test_nothing_on_standard_input_keeps_nothing(self, home, cllm):
        cllm("chat").succeeded()

        assert not home.conversations.exists()
        assert not (home.path / ".cllm/chat_history").exists()

    def test_a_closed_standard_input_or_output_is_no_traceback(self, cllm):
        for shell in ('exec "$@" <&-', 'exec "$@" >&-', 'exec "$@" 2>&-'):
            done = cllm("chat", stdin=b"Hello\n", wrapper=("sh", "-c", shell, "sh"))
            assert "Traceback" not in done.out + done.err, done.report()

    def test_a_reader_that_goes_away_ends_the_chat(self, home, provider, cllm):
        lines = b"".join(b"line %d\n" % number for number in range(50))
        shell = '"$@" | head -n 1; exit ${PIPESTATUS:-0}'

        done = cllm("chat", "demo", stdin=lines, wrapper=("bash", "-c", shell, "bash"))

        assert "Traceback" not in done.err, done.report()
        assert done.out == "echo: line 0\n"
        assert len(provider.requests) < 50
        assert len(home.messages("demo")) % 2 == 0

    def test_a_failure_is_one_sentence_and_the_exit_code_says_so(self, home, provider, cllm):
        provider.fail(500, message="broken")

        done = cllm("chat", "demo", "--no-stats", stdin=b"One\nTwo\n")

        assert done.code == 1
        assert done.out == "echo: Two\n"
        assert len(done.warnings) == 2
        assert done.warnings[1].startswith("Error: ")
        assert len(home.messages("demo")) == 2

    def test_not_saving_leaves_nothing(self, home, provider, cllm):
        before = home.snapshot()

        cllm("chat", "--no-save", stdin=b"One\nTwo\n").succeeded()

        assert len(provider.requests[1].said) == 3
        assert home.snapshot() == before

    def test_an_unsaved_conversation_can_be_saved_after_all(self, home, provider, cllm):
        given = b"/system Be brief.\nOne\nTwo\n/save kept\nThree\n"
        cllm("chat", "--no-save", stdin=given).succeeded()

        assert [content for _, content in home.messages("kept")] == [
            "Be brief.",
            "One",
            "echo: One",
            "Two",
            "echo: Two",
            "Three",
            "echo: Three",
        ]
        assert [role for role, _ in provider.requests[2].said] == [
            "system",
            *["user", "assistant"] * 2,
            "user",
        ]

    def test_a_copy_is_saved_under_another_name(self, home, cllm):
        cllm("chat", "demo", stdin=b"One\n/save copy\nTwo\n").succeeded()

        assert len(home.messages("demo")) == 2
        assert len(home.messages("copy")) == 4


@pytest.mark.usefixtures("settings")
class TestSettings:
    def test_no_system_prompt_is_sent_unless_one_is_configured(self, provider, settings, cllm):
        cllm("chat", stdin=b"One\n").succeeded()
        settings(default_system_message="Talk.")
        cllm("chat", stdin=b"Two\n").succeeded()

        assert provider.requests[0].said == [("user", "One")]
        assert provider.requests[1].said[0] == ("system", "Talk.")

    def test_a_system_prompt_for_a_conversation_that_has_one_is_refused(self, home, cllm):
        cllm("chat", "demo", "--system", "Talk.", stdin=b"One\n").succeeded()

        done = cllm("chat", "demo", "--system", "Be brief.", stdin=b"Two\n")

        done.failed_with_one_sentence("demo", "branch")
        assert len(home.messages("demo")) == 3

    def test_a_model_for_a_conversation_that_has_one_is_told_how(self, provider, cllm):
        cllm("chat", "demo", stdin=b"One\n").succeeded()

        done = cllm("chat", "demo", "--model", "openai/other", stdin=b"Two\n").succeeded()

        assert provider.requests[1].json["model"] == "gpt-test"
        assert "/model openai/other" in done.err

    def test_variables_of_other_programs_are_below_everything_else(self, provider, settings, cllm):
        env = {"MODEL_NAME": "openai/other", "MAX_TOKENS": "7", "TEMPERATURE": "0"}
        cllm("chat", stdin=b"One\n", env=env).succeeded()
        settings(model=..., max_tokens=9)
        cllm("chat", stdin=b"Two\n", env=env).succeeded()
        cllm("chat", stdin=b"Three\n", env=env | {"CLLM_MODEL": "openai/mine"}).succeeded()

        sent = [request.json for request in provider.requests]
        assert [body["model"] for body in sent] == ["gpt-test", "other", "mine"]
        assert [body["max_tokens"] for body in sent] == [7, 9, 9]
        assert [body["temperature"] for body in sent] == [0, 0, 0]

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("MAX_TOKENS", "many"),
            ("MAX_TOKENS", "0"),
            ("TEMPERATURE", "hot"),
            ("TEMPERATURE", "nan"),
            ("MAX_CONTEXT_TURNS", "-1"),
            ("SHOW_STATS", "perhaps"),
        ],
    )
    def test_a_variable_that_is_wrong_is_one_sentence(self, name, value, cllm):
        done = cllm("chat", stdin=b"One\n", env={name: value})

        done.failed_with_one_sentence(name, value)

    @pytest.mark.parametrize(
        ("flags", "env"), [(("--no-stats",), {}), ((), {"SHOW_STATS": "false"})]
    )
    def test_figures_can_be_left_out(self, flags, env, cllm):
        with_figures = cllm("chat", stdin=b"One\n").succeeded()
        without = cllm("chat", *flags, stdin=b"One\n", env=env).succeeded()

        assert "11 tokens sent, 7 received · cost unknown" in with_figures.err
        assert "received" not in without.err

    def test_debug_says_what_is_done_and_no_key(self, cllm, secret):
        by_flag = cllm("chat", "--debug", stdin=b"One\n").succeeded()
        by_variable = cllm("chat", stdin=b"One\n", env={"DEBUG": "1"}).succeeded()
        others = cllm("chat", stdin=b"One\n", env={"DEBUG": "app:*"}).succeeded()

        assert "asking" in by_flag.err
        assert "asking" in by_variable.err
        assert "asking" not in others.err
        assert secret not in by_flag.err + by_variable.err

    def test_not_saving_and_an_id_exclude_each_other(self, cllm):
        cllm("chat", "demo", "--no-save").failed_with_one_sentence("--no-save", "ID")

    def test_an_id_that_is_none_is_one_sentence(self, cllm):
        cllm("chat", "../up", stdin=b"One\n").failed_with_one_sentence("../up")

    def test_the_store_can_be_named(self, home, cllm):
        place = home.work / "here"

        cllm("chat", "demo", "--conversations-path", str(place), stdin=b"One\n").succeeded()

        assert (place / "demo.json").exists()

    def test_context_commands_run_once_when_the_conversation_begins(self, provider, settings, cllm):
        settings(context_commands=[{"name": "Weather", "command": "echo sunny"}])

        cllm("chat", "demo", stdin=b"One\nTwo\n").succeeded()

        for request in provider.requests:
            assert "sunny" in request.said[0][1]
            assert request.said[0][0] == "system"

    def test_the_model_runs_commands_only_if_the_settings_let_it(self, provider, cllm):
        cllm("chat", stdin=b"One\n").succeeded()

        assert "tools" not in provider.requests[0].json

"""Context commands: captured once under the system prompt, or sent with one turn and not kept.

What seed 003 asks to be tested, on the real command: what was sent, and what is on disk.
"""

import json

import pytest

PROMPT = "You are a helpful assistant."


def block(name: str, output: str) -> str:
    return f"--- Context: {name} ---\n{output}\n--- End Context ---"


def counter_command(name: str = "Count", **fields):
    """A command that says how often it ran, and leaves a trace of each run."""
    line = f"echo x >> runs-{name}; wc -l < runs-{name}"
    return {"name": name, "command": line, **fields}


@pytest.fixture
def runs(home):
    """How often a counting command ran."""

    def runs(name: str = "Count") -> int:
        file = home.work / f"runs-{name}"
        return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0

    return runs


def system_texts(request) -> list[str]:
    return [content for role, content in request.message_pairs if role == "system"]


def stored_user_texts(cllm, conversation: str) -> list[str]:
    return [text for role, text in cllm.home.messages(conversation) if role == "user"]


class TestANewConversation:
    def test_prompt_and_context_are_one_system_message(self, provider, settings, cllm):
        commands = [
            {"name": "Time", "command": "echo noon"},
            {"name": "Git Status", "command": "printf 'M a.py\\n?? b.py\\n'"},
        ]
        settings(default_system_message=PROMPT, context_commands=commands)

        cllm("Hello", "--conversation", "demo").succeeded()

        blocks = "\n\n".join([block("Time", "noon"), block("Git Status", "M a.py\n?? b.py")])
        assert cllm.home.messages("demo")[:2] == [
            ("system", f"{PROMPT}\n\n{blocks}"),
            ("user", "Hello"),
        ]
        assert provider.requests[0].message_pairs == [
            ("system", f"{PROMPT}\n\n{blocks}"),
            ("user", "Hello"),
        ]

    def test_context_alone_is_the_system_message(self, settings, cllm):
        settings(context_commands=[{"name": "Time", "command": "echo noon"}])

        cllm("Hello", "--conversation", "demo").succeeded()

        assert cllm.home.messages("demo")[0] == ("system", block("Time", "noon"))

    def test_a_prompt_alone_is_the_system_message(self, settings, cllm):
        settings(default_system_message=PROMPT)

        cllm("Hello", "--conversation", "demo").succeeded()

        assert cllm.home.messages("demo")[0] == ("system", PROMPT)

    def test_neither_is_no_system_message(self, settings, cllm):
        settings()

        cllm("Hello", "--conversation", "demo").succeeded()

        assert cllm.home.messages("demo")[0] == ("user", "Hello")

    def test_executed_commands_are_recorded_even_if_there_are_none(self, settings, cllm):
        cllm("Hello", "--conversation", "bare").succeeded()
        settings(context_commands=[{"name": "Bad", "command": "exit 3"}])
        cllm("Hello", "--conversation", "demo").succeeded()

        assert cllm.home.load("bare")["metadata"]["context"]["commands"] == []
        record = cllm.home.load("demo")["metadata"]["context"]
        assert record["executed_at"].endswith("Z")
        assert record["commands"] == [
            {"name": "Bad", "command": "exit 3", "state": "failed", "exit_code": 3}
        ]

    def test_commands_run_at_the_same_time(self, settings, cllm):
        """Each waits for the other's file, so one after the other neither would end in time."""
        waiting = "touch {own}; until [ -e {other} ]; do sleep 0.02; done; echo {own}"
        settings(
            context_commands=[
                {"name": "A", "command": waiting.format(own="a", other="b"), "timeout": 30},
                {"name": "B", "command": waiting.format(own="b", other="a"), "timeout": 30},
            ]
        )

        cllm("Hello", "--conversation", "demo").succeeded()

        assert cllm.home.messages("demo")[0][1] == f"{block('A', 'a')}\n\n{block('B', 'b')}"

    def test_blocks_stand_in_the_order_of_the_file_whichever_ends_first(self, settings, cllm):
        settings(
            context_commands=[
                {"name": "Slow", "command": "sleep 0.3; echo 1"},
                {"name": "Quick", "command": "echo 2"},
            ]
        )

        cllm("Hello", "--conversation", "demo", "--exec", "echo 3").succeeded()

        text = cllm.home.messages("demo")[0][1]
        blocks = [block("Slow", "1"), block("Quick", "2"), block("echo 3", "3")]
        assert text == "\n\n".join(blocks)

    def test_an_existing_file_without_messages_is_captured_as_new(self, settings, cllm):
        cllm.home.write_old_conversation("demo")
        settings(context_commands=[{"name": "Time", "command": "echo noon"}])

        cllm("Hello", "--conversation", "demo").succeeded()

        assert cllm.home.messages("demo")[0] == ("system", block("Time", "noon"))


class TestAContinuation:
    def test_static_context_is_sent_on_every_turn_and_never_run_again(
        self, provider, settings, cllm, runs
    ):
        settings(default_system_message=PROMPT, context_commands=[counter_command()])
        for number in range(5):
            cllm(f"Turn {number}", "--conversation", "demo").succeeded()

        assert runs() == 1
        for request in provider.requests:
            assert system_texts(request) == [f"{PROMPT}\n\n{block('Count', '1')}"]
        assert json.dumps(cllm.home.load("demo")["messages"]).count("--- Context:") == 1

    @pytest.mark.parametrize("line", ["exit 1", "true"])
    def test_static_commands_do_not_run_again_after_a_failure_or_empty_output(
        self, line, settings, cllm, runs
    ):
        settings(context_commands=[{"name": "N", "command": f"echo x >> runs-N; {line}"}])

        cllm("One", "--conversation", "demo").succeeded()
        cllm("Two", "--conversation", "demo").succeeded()

        assert runs("N") == 1
        assert "Context" not in json.dumps(cllm.home.load("demo")["messages"][1:])

    def test_not_even_when_an_ignored_failure_left_no_block(self, provider, settings, cllm, runs):
        line = "echo x >> runs-N; exit 1"
        settings(context_commands=[{"name": "N", "command": line, "on_failure": "ignore"}])

        cllm("One", "--conversation", "demo").succeeded()
        cllm("Two", "--conversation", "demo").succeeded()

        assert runs("N") == 1
        assert provider.requests[-1].message_pairs[0] == ("user", "One")

    def test_dynamic_context_runs_for_every_turn_and_is_not_stored(
        self, provider, settings, cllm, runs
    ):
        settings(
            default_system_message=PROMPT,
            context_commands=[counter_command(dynamic=True), counter_command("Static")],
        )

        cllm("One", "--conversation", "demo").succeeded()
        cllm("Two", "--conversation", "demo").succeeded()

        assert (runs(), runs("Static")) == (2, 1)
        first, second = provider.requests
        assert first.message_pairs[-1] == ("user", f"{block('Count', '1')}\n\nOne")
        assert second.message_pairs[-1] == ("user", f"{block('Count', '2')}\n\nTwo")
        assert second.message_pairs[1] == ("user", "One")
        assert stored_user_texts(cllm, "demo") == ["One", "Two"]

    def test_the_part_before_the_newest_message_stays_the_same(self, provider, settings, cllm):
        settings(default_system_message=PROMPT, context_commands=[counter_command(dynamic=True)])
        for text in ("One", "Two", "Three"):
            cllm(text, "--conversation", "demo").succeeded()

        second, third = provider.requests[1:]
        assert third.messages[: len(second.messages) - 1] == second.messages[:-1]

    def test_exec_on_a_conversation_that_exists_is_for_this_turn(self, provider, settings, cllm):
        settings()
        cllm("One", "--conversation", "demo").succeeded()

        cllm("Two", "--conversation", "demo", "--exec", "echo now").succeeded()
        cllm("Three", "--conversation", "demo").succeeded()

        assert provider.requests[1].message_pairs[-1] == (
            "user",
            f"{block('echo now', 'now')}\n\nTwo",
        )
        assert stored_user_texts(cllm, "demo") == ["One", "Two", "Three"]
        assert provider.requests[2].message_pairs[2] == ("user", "Two")

    def test_a_branch_under_another_prompt_keeps_the_context(self, provider, settings, cllm):
        settings(
            default_system_message=PROMPT, context_commands=[{"name": "T", "command": "echo noon"}]
        )
        cllm("One", "--conversation", "demo").succeeded()

        cllm("c", "branch", "demo", "--to", "other", "--system", "Be loud.").succeeded()
        cllm("Two", "--conversation", "other").succeeded()

        assert system_texts(provider.requests[-1]) == [f"Be loud.\n\n{block('T', 'noon')}"]


class TestAnOldFile:
    def test_static_commands_run_for_each_turn_and_are_not_stored(
        self, provider, settings, cllm, runs
    ):
        cllm.home.write_old_conversation("old", ("user", "Hi"), ("assistant", "Hello"))
        settings(context_commands=[counter_command()])

        cllm("One", "--conversation", "old").succeeded()
        cllm("Two", "--conversation", "old").succeeded()

        assert runs() == 2
        assert provider.requests[0].message_pairs[-1] == ("user", f"{block('Count', '1')}\n\nOne")
        assert provider.requests[1].message_pairs[-1] == ("user", f"{block('Count', '2')}\n\nTwo")
        assert stored_user_texts(cllm, "old") == ["Hi", "One", "Two"]
        assert "context" not in cllm.home.load("old")["metadata"]

    def test_one_whose_system_message_has_context_runs_nothing(
        self, provider, settings, cllm, runs
    ):
        stored = f"{PROMPT}\n\n{block('Time', 'noon')}"
        cllm.home.write_old_conversation(
            "old", ("system", stored), ("user", "Hi"), ("assistant", "Hello")
        )
        settings(context_commands=[counter_command()], default_system_message=PROMPT)

        cllm("One", "--conversation", "old").succeeded()

        assert runs() == 0
        assert system_texts(provider.requests[0]) == [stored]

    def test_blocks_in_old_user_messages_are_left_as_they_are(self, provider, settings, cllm):
        said = f"{block('Get current time', 'Fri Oct 31')}\n\nHello"
        cllm.home.write_old_conversation(
            "old", ("system", PROMPT), ("user", said), ("assistant", "Hi")
        )
        settings(default_system_message=PROMPT)

        cllm("One", "--conversation", "old").succeeded()

        assert provider.requests[0].message_pairs[1] == ("user", said)
        assert cllm.home.messages("old")[1] == ("user", said)


class TestWithoutAConversation:
    def test_blocks_and_prompt_are_one_user_message(self, provider, settings, cllm):
        settings(
            default_system_message=PROMPT,
            context_commands=[
                {"name": "A", "command": "echo 1"},
                {"name": "B", "command": "echo 2", "dynamic": True},
            ],
        )

        cllm("Hello", "--exec", "echo 3").succeeded()

        blocks = "\n\n".join([block("A", "1"), block("B", "2"), block("echo 3", "3")])
        assert provider.requests[0].message_pairs == [
            ("system", PROMPT),
            ("user", f"{blocks}\n\nHello"),
        ]


class TestFailures:
    def test_a_failure_is_a_block_and_a_warning(self, settings, cllm):
        settings(context_commands=[{"name": "Bad", "command": "exit 7"}])

        result = cllm("Hello", "--conversation", "demo").succeeded()

        (warning,) = result.warnings
        assert "Bad" in warning
        assert "7" in warning
        assert cllm.home.messages("demo")[0][1] == (
            "--- Context Error: Bad ---\nCommand exited with code 7\n--- End Context ---"
        )

    def test_a_command_over_its_timeout_is_killed_and_reported(self, settings, cllm):
        settings(context_commands=[{"name": "Slow", "command": "sleep 600", "timeout": 0.5}])

        result = cllm("Hello", "--conversation", "demo").succeeded()

        assert "timed out after 0.5 seconds" in result.err
        assert "Command timed out after 0.5 seconds" in cllm.home.messages("demo")[0][1]

    def test_an_ignored_failure_has_no_block_and_no_warning(self, settings, cllm):
        settings(context_commands=[{"name": "Bad", "command": "exit 7", "on_failure": "ignore"}])

        result = cllm("Hello", "--conversation", "demo").succeeded()

        assert result.warnings == []
        assert cllm.home.messages("demo")[0] == ("user", "Hello")

    def test_a_fatal_failure_calls_no_model_and_saves_nothing(self, provider, settings, cllm):
        settings(context_commands=[{"name": "Bad", "command": "exit 7", "on_failure": "fail"}])

        result = cllm("Hello", "--conversation", "demo")

        result.failed_with_one_sentence("Bad", "code 7", prefix="Context error: ")
        assert provider.requests == []
        assert not cllm.home.file("demo").exists()

    def test_no_context_exec_runs_only_the_exec_commands(self, provider, settings, cllm, runs):
        settings(context_commands=[counter_command(), counter_command("Dynamic", dynamic=True)])

        cllm("Hello", "--conversation", "demo", "--no-context-exec", "--exec", "echo 1").succeeded()

        assert (runs(), runs("Dynamic")) == (0, 0)
        assert system_texts(provider.requests[0]) == [block("echo 1", "1")]
        cllm("Again", "--conversation", "demo").succeeded()
        assert (runs(), runs("Dynamic")) == (0, 1)

    def test_context_commands_do_not_run_without_a_model_call(self, settings, cllm, runs):
        settings(context_commands=[counter_command()])
        cllm("Hello", "--conversation", "demo").succeeded()

        cllm("--list-conversations").succeeded()
        cllm("--show-conversation", "demo").succeeded()
        cllm("--show-config").succeeded()

        assert runs() == 1

    def test_a_dynamic_conversation_has_its_context_on_every_turn(
        self, provider, settings, cllm, runs
    ):
        settings(context_commands=[counter_command()])

        cllm("One", "--conversation", "demo", "--system-policy", "dynamic").succeeded()
        cllm("Two", "--conversation", "demo").succeeded()

        assert runs() == 2
        assert provider.requests[1].message_pairs[-1] == ("user", f"{block('Count', '2')}\n\nTwo")
        assert stored_user_texts(cllm, "demo") == ["One", "Two"]


class TestVariables:
    def test_the_command_line_is_over_the_environment_and_that_over_the_file(self, settings, cllm):
        settings(
            variables={"A": "file", "B": "file", "C": "file"},
            context_commands=[{"name": "V", "command": "echo {{ A }} {{ B }} {{ C }}"}],
        )

        cllm(
            "Hello", "--conversation", "demo", "--var", "A=line", env={"A": "env", "B": "env"}
        ).succeeded()

        assert cllm.home.messages("demo")[0][1] == block("V", "line env file")

    def test_the_record_has_the_command_as_it_was_written(self, settings, cllm):
        line = "echo {{ A }} ${SECRET_WORD}"
        settings(variables={"A": 1}, context_commands=[{"name": "V", "command": line}])

        cllm("Hello", "--conversation", "demo", env={"SECRET_WORD": "xyzzy"}).succeeded()

        record = cllm.home.load("demo")["metadata"]["context"]
        assert record["commands"][0]["command"] == line

    def test_values_of_the_command_line_have_types(self, settings, cllm):
        line = "echo {{ 'yes' if ON else 'no' }} {{ N + 1 }} {{ F * 2 }}"
        settings(variables={"ON": True}, context_commands=[{"name": "V", "command": line}])

        cllm(
            "Hi", "--conversation", "demo", "--var", "ON=false", "--var", "N=41", "--var", "F=1.5"
        ).succeeded()

        assert cllm.home.messages("demo")[0][1] == block("V", "no 42 3.0")

    def test_a_value_is_quoted_for_the_shell(self, settings, cllm):
        line = "echo {{ A | shellquote }}"
        settings(variables={"A": None}, context_commands=[{"name": "V", "command": line}])

        cllm("Hi", "--conversation", "demo", "--var", "A=x; touch pwned; $(id)").succeeded()

        assert cllm.home.messages("demo")[0][1] == block("V", "x; touch pwned; $(id)")
        assert not (cllm.home.work / "pwned").exists()

    def test_a_missing_required_variable_is_an_error(self, provider, settings, cllm):
        settings(variables={"A": None}, context_commands=[{"command": "echo {{ A }}"}])

        cllm("Hi").failed_with_one_sentence("`A`", "--var A=", prefix="Variable error: ")

        assert provider.requests == []

    def test_an_undefined_variable_is_an_error(self, settings, cllm):
        settings(variables={"A": 1}, context_commands=[{"command": "echo {{ B }}"}])

        cllm("Hi").failed_with_one_sentence("'B' is undefined", prefix="Variable error: ")

    def test_an_exec_command_is_a_template(self, cllm):
        line = "echo {{ X | shellquote }}"

        cllm("Hi", "--exec", line, "--var", "X=a b", "--conversation", "demo").succeeded()

        assert cllm.home.messages("demo")[0][1] == block("echo 'a b'", "a b")

    @pytest.mark.parametrize("variables", [(), ("--var", "Y=1")])
    def test_an_undefined_variable_of_exec_is_an_error_before_anything_runs(
        self, provider, cllm, variables
    ):
        commands = ("--exec", "touch ran", "--exec", "echo {{ X | shellquote }}")

        result = cllm("Hi", *commands, *variables)

        result.failed_with_one_sentence("'X' is undefined", prefix="Variable error: ")
        assert provider.requests == []
        assert not (cllm.home.work / "ran").exists()

    def test_braces_mean_nothing_where_there_are_no_variables(self, settings, cllm):
        settings(context_commands=[{"name": "V", "command": "echo '{{.Names}}'"}])

        cllm("Hi", "--conversation", "demo").succeeded()

        assert cllm.home.messages("demo")[0][1] == block("V", "{{.Names}}")

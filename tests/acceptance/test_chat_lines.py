"""`cllm chat` line by line: its commands, its settings, and what is piped into it."""

import json
import re

import pytest
from tests.fake_provider import ToolCall


@pytest.mark.usefixtures("settings")
class TestCommands:
    def test_regenerate_keeps_the_old_answer_as_a_variant(self, home, provider, cllm):
        provider.queue_reply("One.")
        provider.queue_reply("Two.")

        done = cllm("chat", "demo", stdin=b"Say a number.\n/regenerate\nAnd?\n").succeeded()

        assert done.out == "One.\nTwo.\necho: And?\n"
        assert provider.requests[1].message_pairs == [("user", "Say a number.")]
        assert provider.requests[2].message_pairs == [
            ("user", "Say a number."),
            ("assistant", "Two."),
            ("user", "And?"),
        ]
        assert "One." in json.dumps(home.load("demo")["metadata"])

    def test_undo_takes_the_last_turn_back(self, provider, cllm):
        done = cllm("chat", "demo", stdin=b"One\nTwo\n/undo\nThree\n").succeeded()

        assert "Deleted the last turn: Two" in done.err
        assert provider.requests[2].message_pairs == [
            ("user", "One"),
            ("assistant", "echo: One"),
            ("user", "Three"),
        ]

    def test_another_model_is_used_from_the_next_message_on(self, home, provider, cllm):
        lines = b"One\n/model openai/gpt-b\n/model openai/gpt-c\nTwo\n"
        cllm("chat", "demo", stdin=lines).succeeded()
        cllm("Three", "--conversation", "demo").succeeded()

        models = [request.json["model"] for request in provider.requests]
        assert models == ["gpt-test", "gpt-c", "gpt-c"]
        assert home.load("demo")["model"] == "openai/gpt-c"
        assert len(home.messages("demo")) == 6
        assert len(list(home.conversations.glob("*.json"))) == 1

    def test_a_model_before_the_first_message_is_that_of_the_conversation(self, home, cllm):
        cllm("chat", "demo", stdin=b"/model openai/gpt-other\nOne\n").succeeded()

        assert home.load("demo")["model"] == "openai/gpt-other"

    def test_an_unknown_model_changes_nothing(self, home, cllm):
        done = cllm("chat", "demo", stdin=b"One\n/model nobody/x\nTwo\n")

        assert done.code == 1
        assert "Error: " in done.err
        assert len(home.messages("demo")) == 4

    def test_a_system_prompt_without_a_message_leaves_no_conversation(self, home, cllm):
        lines = b"One\n/system Be kind.\n/system Be brief.\n/system\n"
        done = cllm("chat", "demo", stdin=lines).succeeded()

        assert done.out.endswith("Be brief.\n")
        assert len(list(home.conversations.glob("*.json"))) == 1

    def test_another_system_prompt_is_a_branch(self, home, provider, cllm):
        done = cllm("chat", "demo", stdin=b"One\n/system Be brief.\nTwo\n").succeeded()

        assert "system" not in [role for role, _ in provider.requests[0].message_pairs]
        assert provider.requests[1].message_pairs[0] == ("system", "Be brief.")
        assert len(home.messages("demo")) == 2
        assert "Warning" not in done.err

    def test_a_system_prompt_before_the_first_message_is_captured(self, home, cllm):
        cllm("chat", "demo", stdin=b"/system Be brief.\nOne\n").succeeded()

        assert home.messages("demo")[0] == ("system", "Be brief.")

    def test_a_branch_has_the_messages_up_to_a_number(self, home, provider, cllm):
        cllm("chat", "demo", stdin=b"One\nTwo\n/branch 2\nThree\n").succeeded()

        assert provider.requests[2].message_pairs[-2:] == [
            ("assistant", "echo: One"),
            ("user", "Three"),
        ]
        assert len(home.messages("demo")) == 4

    def test_a_branch_of_nothing_is_a_mistake(self, cllm):
        done = cllm("chat", stdin=b"/branch\n/undo\n/regenerate\n/export x\n")

        assert done.code == 1
        assert done.err.count("This conversation has no messages yet.") == 4

    def test_a_context_command_runs_for_the_next_message_only(self, provider, cllm):
        cllm("chat", "demo", stdin=b"One\n/context echo sunny\nTwo\nThree\n").succeeded()

        assert "sunny" in provider.requests[1].message_pairs[-1][1]
        assert provider.requests[2].message_pairs[-1] == ("user", "Three")
        assert provider.requests[2].message_pairs[2] == ("user", "Two")

    def test_a_file_goes_with_the_next_message_only(self, home, provider, cllm):
        (home.work / "my notes.txt").write_text("Luna", encoding="utf-8")

        cllm("chat", stdin=b"/attach my notes.txt\nWho?\nAgain\n").succeeded()

        assert "Luna" in json.dumps(provider.requests[0].messages[-1])
        assert provider.requests[1].message_pairs[-1] == ("user", "Again")

    def test_a_file_that_is_not_there_is_one_sentence(self, cllm):
        done = cllm("chat", "--no-stats", stdin=b"/attach nothing.png\nHello\n")

        assert done.out == "echo: Hello\n"
        assert done.warnings[1].startswith("Error: Cannot attach 'nothing.png'")

    def test_a_failed_message_keeps_its_attachments(self, home, provider, cllm):
        (home.work / "notes.txt").write_text("Luna", encoding="utf-8")
        provider.queue_error(500)

        cllm("chat", stdin=b"/attach notes.txt\nWho?\nWho?\n")

        assert "Luna" in json.dumps(provider.requests[1].messages[-1])

    def test_regenerating_leaves_an_attachment_for_the_next_message(self, home, provider, cllm):
        (home.work / "notes.txt").write_text("Luna", encoding="utf-8")

        cllm("chat", stdin=b"One\n/attach notes.txt\n/regenerate\nWho?\nAgain\n").succeeded()

        assert "Luna" not in json.dumps(provider.requests[1].messages)
        assert "Luna" in json.dumps(provider.requests[2].messages[-1])
        assert provider.requests[3].message_pairs[-1] == ("user", "Again")

    def test_a_new_conversation_keeps_the_model_and_the_prompt_that_were_chosen(
        self, provider, cllm
    ):
        given = b"/model openai/gpt-other\nOne\n/system Be brief.\nclear\nTwo\n"
        cllm("chat", stdin=given).succeeded()

        assert provider.requests[1].json["model"] == "gpt-other"
        assert provider.requests[1].message_pairs == [("system", "Be brief."), ("user", "Two")]

    def test_a_chat_with_a_system_prompt_can_open_other_conversations(self, home, provider, cllm):
        home.write_old_conversation(
            "cats", ("system", "Meow."), ("user", "Hello"), ("assistant", "Hi.")
        )

        cllm("chat", "--system", "Talk.", stdin=b"/open cats\nWho?\n").succeeded()

        assert provider.requests[0].message_pairs[0] == ("system", "Meow.")

    def test_title_list_and_search_find_a_conversation(self, cllm):
        given = (
            b"I like herons.\n/title Birds\n/list\n/search HERONS\n/search nowhere to be found\n"
        )
        done = cllm("chat", "demo", stdin=given).succeeded()

        lines = done.out.splitlines()
        assert lines[1].startswith("demo ")
        assert lines[1].endswith("Birds")
        assert lines[2] == lines[1]
        assert lines[3].strip() == "1 user: I like herons."
        assert "No conversation contains 'nowhere to be found'." in done.err

    def test_a_title_that_is_too_long_is_refused(self, home, cllm):
        done = cllm("chat", "demo", stdin=b"Hello\n/title " + b"t" * 201 + b"\n")

        assert "The title has 201 characters; use at most 200." in done.err
        assert home.load("demo")["metadata"]["cllm"]["title"] == "Hello"

    def test_export_writes_markdown_or_json_and_nothing_twice(self, home, cllm, mode):
        given = b"Hello\n/export a.md\n/export a.json\n/export a.md\n"
        done = cllm("chat", "demo", stdin=given)

        assert "already exists" in done.err
        text = (home.work / "a.md").read_text(encoding="utf-8")
        assert text.endswith("## User 1\n\nHello\n\n## Assistant 2\n\necho: Hello\n")
        assert json.loads((home.work / "a.json").read_bytes())["messages"] == [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "echo: Hello"},
        ]
        assert mode(home.work / "a.md") == 0o600

    @pytest.mark.parametrize("given", ["my file.md", "'my file.md'", '"my file.md"'])
    def test_the_name_of_an_exported_file_may_be_quoted(self, given, home, cllm):
        cllm("chat", stdin=f"One\n/export {given}\n".encode()).succeeded()

        assert [path.name for path in home.work.iterdir()] == ["my file.md"]

    def test_undo_with_a_number_takes_nothing_back(self, home, cllm):
        done = cllm("chat", "demo", stdin=b"One\nTwo\n/undo 2\n")

        assert "/undo takes no argument" in done.err
        assert len(home.messages("demo")) == 4

    def test_an_export_that_does_not_fit_leaves_no_file(self, home, provider, cllm):
        provider.queue_reply("word " * 2000)
        small = ("bash", "-c", 'ulimit -f 4; PYTHONDONTWRITEBYTECODE=1 exec "$@"', "bash")

        done = cllm("chat", "--no-save", stdin=b"One\n/export out.md\n", wrapper=small)

        assert "Error: Cannot write " in done.err
        assert list(home.work.iterdir()) == []

    def test_open_continues_another_conversation(self, home, provider, cllm):
        home.write_old_conversation(
            "cats", ("user", "My cat is Luna."), ("assistant", "A fine name.")
        )

        done = cllm("chat", "demo", stdin=b"Hello\n/open cats\nWho?\n").succeeded()

        assert "Model: A fine name." in done.out
        assert provider.requests[1].message_pairs[0] == ("user", "My cat is Luna.")
        assert len(home.messages("demo")) == 2

    def test_opening_an_unknown_conversation_changes_nothing(self, home, cllm):
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
        assert [request.message_pairs[-1] for request in provider.requests] == [
            ("user", "One"),
            ("user", "Two\nThree"),
        ]
        assert "The message is empty" in done.err

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
        provider.queue_error(500, message="broken")

        done = cllm("chat", "demo", "--no-stats", stdin=b"One\nTwo\n")

        assert done.code == 1
        assert done.out == "echo: Two\n"
        assert len(done.warnings) == 2
        assert done.warnings[1].startswith("Error: ")
        assert len(home.messages("demo")) == 2

    def test_not_saving_leaves_nothing(self, home, provider, cllm):
        before = home.snapshot()

        cllm("chat", "--no-save", stdin=b"One\nTwo\n").succeeded()

        assert len(provider.requests[1].message_pairs) == 3
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
        assert [role for role, _ in provider.requests[2].message_pairs] == [
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

        assert provider.requests[0].message_pairs == [("user", "One")]
        assert provider.requests[1].message_pairs[0] == ("system", "Talk.")

    def test_a_system_prompt_for_a_conversation_that_has_one_is_refused(self, home, cllm):
        cllm("chat", "demo", "--system", "Talk.", stdin=b"One\n").succeeded()

        done = cllm("chat", "demo", "--system", "Be brief.", stdin=b"Two\n")

        done.failed_with_one_sentence("demo", "branch")
        assert len(home.messages("demo")) == 3

    def test_the_model_flag_switches_the_model_of_a_stored_conversation(self, provider, cllm):
        cllm("chat", "demo", stdin=b"One\n").succeeded()

        done = cllm("chat", "demo", "--model", "openai/other", stdin=b"Two\n").succeeded()

        assert provider.requests[1].json["model"] == "other"
        assert "it was openai/gpt-test" in done.err

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

    def test_debug_logs_everything_but_keys(self, cllm, secret):
        by_flag = cllm("chat", "--debug", stdin=b"One\n").succeeded()
        by_variable = cllm("chat", stdin=b"One\n", env={"DEBUG": "1"}).succeeded()
        others = cllm("chat", stdin=b"One\n", env={"DEBUG": "app:*"}).succeeded()

        assert "asking" in by_flag.err
        assert "asking" in by_variable.err
        assert "asking" not in others.err
        assert secret not in by_flag.err + by_variable.err

    def test_not_saving_and_an_id_exclude_each_other(self, cllm):
        cllm("chat", "demo", "--no-save").failed_with_one_sentence("--no-save", "ID", code=2)

    def test_an_id_that_is_none_is_one_sentence(self, cllm):
        cllm("chat", "../up", stdin=b"One\n").failed_with_one_sentence("../up")

    def test_the_store_can_be_named(self, home, cllm):
        place = home.work / "here"

        cllm("chat", "demo", "--conversations-path", str(place), stdin=b"One\n").succeeded()

        assert (place / "demo.json").exists()

    def test_context_commands_run_once_at_the_start_of_a_conversation(
        self, provider, settings, cllm
    ):
        settings(context_commands=[{"name": "Weather", "command": "echo sunny"}])

        cllm("chat", "demo", stdin=b"One\nTwo\n").succeeded()

        for request in provider.requests:
            assert "sunny" in request.message_pairs[0][1]
            assert request.message_pairs[0][0] == "system"

    def test_a_price_that_is_known_is_added_up(self, settings, cllm):
        settings(providers={"openai": {"prices": {"gpt-test": {"input": 1000, "output": 0}}}})

        done = cllm("chat", stdin=b"One\nTwo\nstats\n").succeeded()

        assert "11 tokens sent, 7 received · $0.0110" in done.err
        assert re.search(r"cost +\$0\.0220\n", done.out)

    def test_a_command_of_the_model_is_printed_on_standard_error(
        self, home, provider, settings, cllm
    ):
        settings(allow_dynamic_commands=True)
        (home.work / "hello.txt").write_text("hello world", encoding="utf-8")
        arguments = json.dumps({"command": "cat hello.txt", "reason": "to see"})
        call = ToolCall(id="call_1", name="execute_bash_command", arguments=arguments)
        provider.queue_reply("Let me look.", tool_calls=(call,), finish="tool_calls")
        provider.queue_reply("It says hello.")

        done = cllm("chat", stdin=b"What does it say?\n").succeeded()

        assert done.out == "Let me look.\nIt says hello.\n"
        assert "$ cat hello.txt" in done.err
        assert provider.requests[1].messages[-1]["content"] == "hello world"

    def test_the_model_runs_commands_only_if_the_settings_let_it(self, provider, cllm):
        cllm("chat", stdin=b"One\n").succeeded()

        assert "tools" not in provider.requests[0].json


@pytest.mark.usefixtures("settings")
class TestTheWindow:
    def test_old_turns_leave_it_with_a_warning_and_stay_stored(self, home, provider, cllm):
        lines = "\n".join(f"Question {number}" for number in range(5)).encode() + b"\n"

        done = cllm("chat", "demo", "--max-turns", "2", stdin=lines).succeeded()

        assert [request.message_pairs[0][1] for request in provider.requests] == [
            "Question 0",
            "Question 0",
            "Question 0",
            "Question 1",
            "Question 2",
        ]
        # Once after each of the last three exchanges: the window has two turns.
        assert done.err.count("Trimmed old messages to fit context window") == 3
        assert len(home.messages("demo")) == 10

    @pytest.mark.parametrize(("exchanges", "warnings"), [(10, 0), (11, 1)])
    def test_by_default_the_eleventh_exchange_trims(self, cllm, exchanges, warnings):
        lines = b"Question\n" * exchanges
        done = cllm("chat", "demo", stdin=lines).succeeded()

        assert done.err.count("Trimmed old messages to fit context window") == warnings

    def test_by_default_ten_turns_are_sent(self, provider, cllm):
        lines = "\n".join(f"Question {number}" for number in range(12)).encode() + b"\n"

        cllm("chat", "demo", stdin=lines).succeeded()

        assert provider.requests[10].message_pairs[0][1] == "Question 0"
        assert provider.requests[11].message_pairs[0][1] == "Question 1"
        assert len(provider.requests[11].messages) == 21


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class TestAJsonSchema:
    def test_the_json_schema_of_the_settings_applies(self, home, provider, settings, cllm):
        settings(json_schema=SCHEMA)
        provider.queue_reply('{"n"', ": 1}")
        provider.queue_reply("No number.")
        provider.queue_reply('{"n": 3}')

        done = cllm("chat", "demo", stdin=b"One\nTwo\nThree\n")

        assert done.code == 1
        assert done.out == '{"n": 1}\n{"n": 3}\n'
        assert "does not match the JSON schema" in done.err
        assert "schema" in json.dumps(provider.requests[0].json["response_format"])
        assert [said for _, said in home.messages("demo")] == [
            "One",
            '{"n": 1}',
            "Three",
            '{"n": 3}',
        ]

    def test_a_summary_is_free_text(self, provider, settings, cllm):
        settings(json_schema=SCHEMA)
        provider.queue_reply('{"n": 1}')
        provider.queue_reply('{"n": 2}')
        provider.queue_reply("Two numbers.")

        cllm("chat", "demo", stdin=b"One\nTwo\n/compact\n").succeeded()

        assert "response_format" not in provider.requests[2].json

"""Context: which commands run, the text of their blocks, and its position."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from cllm.core.conversation import (
    ContextCommandRecord,
    ContextRecord,
    StoredConversation,
    SystemRecord,
    Turn,
)
from cllm.core.errors import ContextError
from cllm.core.message import Message, plain_message
from cllm.history.context import (
    CommandOutcome,
    Context,
    ContextCommand,
    gather_context,
    insert_context,
    plan_context,
)

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def command(name: str = "Time", **fields: Any) -> ContextCommand:
    return ContextCommand(**{"name": name, "command": "date", "template": "date"} | fields)


STATIC = command("static")
DYNAMIC = command("dynamic", kind="dynamic")
EXEC = command("exec", kind="exec")
ALL = (STATIC, DYNAMIC, EXEC)
SAID = (plain_message("user", "Hi"), plain_message("assistant", "Hello"))
TURN = Turn(id="t", place="t", state="complete", messages=SAID, started_at=NOW)
BLOCK = "--- Context: Time ---\nnoon\n--- End Context ---"


def conversation(**fields: Any) -> StoredConversation:
    return StoredConversation(id="demo", created_at=NOW, updated_at=NOW, **fields)


def outcome(state: Any = "ok", output: str = "noon", **fields: Any) -> CommandOutcome:
    exit_code = fields.pop("exit_code", 0 if state == "ok" else None)
    error = fields.pop("error", "")
    return CommandOutcome(
        command=command(**fields), state=state, output=output, error=error, exit_code=exit_code
    )


def gather(*outcomes: CommandOutcome, captured: bool = False) -> Context:
    commands = tuple(one.command for one in outcomes)
    empty = plan_context(None, (), new_policy="captured")
    plan = msgspec.structs.replace(empty, **{"captured" if captured else "for_turn": commands})
    return gather_context(plan, outcomes)


class TestWhichCommandsRun:
    def plan(self, value: StoredConversation | None, policy: Any = "captured"):
        found = plan_context(value, ALL, new_policy=policy)
        return [one.name for one in found.captured], [one.name for one in found.for_turn]

    def test_without_a_conversation_all_are_for_this_turn(self):
        assert self.plan(None) == ([], ["static", "dynamic", "exec"])

    def test_a_new_conversation_captures_all_but_the_dynamic_ones(self):
        assert self.plan(conversation()) == (["static", "exec"], ["dynamic"])

    def test_a_file_without_messages_is_captured_as_new(self):
        record = ContextRecord(executed_at=NOW)
        untouched = conversation(context_record=record)

        assert self.plan(untouched) == (["static", "exec"], ["dynamic"])

    def test_a_continuation_never_runs_static_commands_again(self):
        known = conversation(
            turns=(TURN,),
            context_record=ContextRecord(executed_at=NOW),
            system_record=SystemRecord(policy="captured"),
        )

        assert self.plan(known) == ([], ["dynamic", "exec"])

    def test_both_markers_in_the_system_prompt_count_as_a_record(self):
        marked = conversation(
            turns=(TURN,), system=plain_message("system", f"Be brief.\n\n{BLOCK}")
        )

        assert self.plan(marked) == ([], ["dynamic", "exec"])

    @pytest.mark.parametrize("system", [None, "Be brief.", "--- Context: Time ---\nno end"])
    def test_an_old_conversation_runs_static_commands_in_every_turn(self, system):
        prompt = None if system is None else plain_message("system", system)

        assert self.plan(conversation(turns=(TURN,), system=prompt)) == (
            [],
            ["static", "dynamic", "exec"],
        )

    def test_a_dynamic_conversation_captures_no_context(self):
        assert self.plan(conversation(), "dynamic") == ([], ["static", "dynamic", "exec"])
        kept = conversation(
            turns=(TURN,),
            system_record=SystemRecord(policy="dynamic"),
            context_record=ContextRecord(executed_at=NOW),
        )
        assert self.plan(kept) == ([], ["static", "dynamic", "exec"])


class TestBlocks:
    def test_output_is_between_the_markers(self):
        assert gather(outcome()).for_turn == BLOCK

    @pytest.mark.parametrize("output", ["", "\n\n", "  "])
    def test_empty_output_is_shown_as_no_output(self, output):
        assert gather(outcome(output=output)).for_turn == (
            "--- Context: Time ---\n(no output)\n--- End Context ---"
        )

    def test_a_failure_is_a_block_and_a_warning(self):
        context = gather(outcome("failed", "", exit_code=2))

        assert context.for_turn == (
            "--- Context Error: Time ---\nCommand exited with code 2\n--- End Context ---"
        )
        (notice,) = context.notices
        assert notice.code == "context_failed"
        assert "'Time'" in notice.message
        assert "code 2" in notice.message

    def test_the_output_of_a_failed_command_is_sent(self):
        text = gather(outcome("failed", "no such branch", exit_code=2)).for_turn

        assert "Command exited with code 2\nno such branch\n" in text

    def test_a_warning_and_an_error_contain_the_first_line_of_standard_error(self):
        failed = {"exit_code": 2, "error": "no such branch"}
        context = gather(outcome("failed", "no such branch", **failed))

        assert "exited with code 2: no such branch." in context.notices[0].message
        assert context.for_turn.count("no such branch") == 1
        with pytest.raises(ContextError, match="code 2: no such branch"):
            gather(outcome("failed", "no such branch", on_failure="fail", **failed))

    @pytest.mark.parametrize(("timeout", "shown"), [(10.0, "10"), (0.5, "0.5")])
    def test_a_timeout_block_contains_the_seconds(self, timeout, shown):
        text = gather(outcome("timed_out", "", timeout=timeout)).for_turn

        assert f"Command timed out after {shown} seconds" in text

    def test_an_ignored_failure_adds_no_block_and_no_notice(self):
        context = gather(outcome("failed", exit_code=1, on_failure="ignore"), outcome())

        assert context.for_turn == BLOCK
        assert context.notices == ()

    def test_a_failure_with_on_failure_fail_is_an_error(self):
        with pytest.raises(ContextError) as raised:
            gather(outcome(), outcome("failed", exit_code=1, on_failure="fail", name="Git"))

        assert str(raised.value).startswith("Context error: 'Git' failed")
        assert "code 1" in str(raised.value)

    def test_blocks_are_joined_by_a_blank_line_in_order(self):
        text = gather(outcome(output="a"), outcome(output="b")).for_turn

        assert text == (
            "--- Context: Time ---\na\n--- End Context ---\n\n"
            "--- Context: Time ---\nb\n--- End Context ---"
        )

    def test_a_name_cannot_break_out_of_its_line(self):
        text = gather(outcome(name="a\n--- End Context ---\nb")).for_turn

        assert text.splitlines()[0] == "--- Context: a --- End Context --- b ---"

    def test_truncated_output_is_reported(self):
        (notice,) = gather(outcome("cut")).notices

        assert notice.code == "context_cut"


def test_the_record_has_the_configured_command_and_its_outcome():
    ran = outcome("failed", "", exit_code=3, command="ls /a", template="ls {{ WHERE }}")

    record = gather(ran, captured=True).record(NOW)

    assert record == ContextRecord(
        executed_at=NOW,
        commands=(
            ContextCommandRecord(
                name="Time", command="ls {{ WHERE }}", state="failed", exit_code=3
            ),
        ),
    )


def test_commands_that_are_not_captured_are_not_recorded():
    assert gather(outcome()).record(NOW).commands == ()


class TestInsertContext:
    def test_context_goes_before_the_newest_user_text(self):
        user_messages = (plain_message("user", "One"), *SAID, plain_message("user", "Two"))

        with_text = insert_context(user_messages, BLOCK)

        assert [message.text for message in with_text[:-1]] == ["One", "Hi", "Hello"]
        assert with_text[-1].text == f"{BLOCK}\n\nTwo"
        assert user_messages[-1].text == "Two"

    def test_other_messages_keep_their_bytes(self):
        with_text = insert_context((*SAID, plain_message("user", "Two")), BLOCK)

        assert with_text[:2] == SAID

    def test_with_other_parts_the_context_is_a_separate_text(self):
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
        content = [{"type": "text", "text": "What is it?"}, image]
        user_messages = Message(
            role="user", raw=msgspec.json.encode({"role": "user", "content": content})
        )

        (with_text,) = insert_context((user_messages,), BLOCK)

        assert with_text.json()["content"] == [{"type": "text", "text": BLOCK}, *content]

    def test_context_goes_after_tool_results(self):
        result = {"type": "tool_result", "tool_use_id": "a", "content": "1"}
        content = [result, {"type": "text", "text": "Go on."}]
        raw = msgspec.json.encode({"role": "user", "content": content})
        user_messages = Message(role="user", raw=raw, dialect="anthropic")

        (with_text,) = insert_context((user_messages,), BLOCK)

        assert with_text.json()["content"] == [result, {"type": "text", "text": BLOCK}, content[1]]

    def test_without_context_or_without_a_user_nothing_changes(self):
        assert insert_context(SAID, "") is SAID
        assert insert_context(SAID[1:], BLOCK) == SAID[1:]

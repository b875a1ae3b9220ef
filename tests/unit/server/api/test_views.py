"""Views: messages of any dialect, usage and cost of a turn, work in a thread."""

import threading
from datetime import UTC, datetime

import pytest

from cllm.core.conversation import Branch, StoredConversation, SystemRecord, Turn
from cllm.core.message import Message, plain_message
from cllm.core.reply import Usage
from cllm.server.api.views import (
    MANY_MESSAGES,
    MessageView,
    ParentView,
    run_in_thread_if_large,
    view_detail,
    view_messages,
    view_summary,
    view_system,
)

NOW = datetime(2026, 11, 15, tzinfo=UTC)


def make_conversation(*messages: Message, **fields) -> StoredConversation:
    turn = Turn(
        id="t1",
        place="t1",
        messages=messages,
        started_at=NOW,
        state="complete",
        usage=Usage(input=3, output=2),
        cost=0.5,
    )
    return StoredConversation(
        id="c1",
        turns=(turn,),
        created_at=NOW,
        updated_at=NOW,
        **fields,
    )


def view(*messages: Message) -> list[MessageView]:
    return list(view_messages(make_conversation(*messages)))


def test_only_the_last_reply_has_the_usage_and_cost_of_its_turn():
    views = view(
        plain_message("user", "a"), plain_message("assistant", "b"), plain_message("assistant", "c")
    )

    assert [one.cost for one in views] == [None, None, 0.5]
    assert [one.usage is None for one in views] == [True, True, False]
    assert [one.sequence_number for one in views] == [1, 2, 3]


def test_system_messages_are_not_shown_but_have_a_number():
    views = view(plain_message("system", "a"), plain_message("user", "b"))

    assert [(one.role, one.sequence_number) for one in views] == [("user", 2)]


def test_a_call_in_anthropics_format_is_shown_in_openais():
    raw = (
        b'{"role":"assistant","content":'
        b'[{"type":"tool_use","id":"toolu_1","name":"find","input":{"a":1}}]}'
    )
    (shown,) = view(Message(role="assistant", dialect="anthropic", raw=raw))

    function = {"name": "find", "arguments": '{"a":1}'}
    assert shown.tool_calls == [{"id": "toolu_1", "type": "function", "function": function}]
    assert shown.content is None


def test_a_message_that_cannot_be_decoded_is_one_unknown_part():
    raw = b'{"role":"user","content":[{"type":"text","text":7}]}'
    (shown,) = view(Message(role="user", raw=raw))

    assert len(shown.parts) == 1
    assert shown.parts[0]["raw"] is not None


@pytest.mark.parametrize(
    ("record", "policy", "prompt"),
    [
        (None, "captured", "Be brief."),
        (SystemRecord(policy="dynamic"), "dynamic", None),
        (SystemRecord(policy="captured"), "captured", "Be brief."),
    ],
)
def test_a_system_prompt_is_shown_if_its_policy_stores_it(record, policy, prompt):
    system = plain_message("system", "Be brief.")
    conversation = make_conversation(system=system, system_record=record)

    shown = view_system(conversation)

    assert (shown.policy, shown.prompt) == (policy, prompt)


@pytest.mark.parametrize(("messages", "in_thread"), [(1, False), (MANY_MESSAGES, True)])
async def test_large_work_runs_in_a_thread(messages, in_thread):
    thread = await run_in_thread_if_large(threading.current_thread, messages=messages)

    assert (thread is not threading.main_thread()) == in_thread


def test_a_summary_shows_the_source_and_the_parent():
    parent = Branch(conversation="main", sequence=4, kind="compaction")
    recorded = make_conversation(source="codex", is_side=True, parent=parent)
    view = view_summary(recorded, "files:")
    assert (view.id, view.source, view.side) == ("files:c1", "codex", True)
    assert view.parent == ParentView(
        conversation_id="files:main", sequence_number=4, kind="compaction"
    )
    assert view_summary(make_conversation()).parent is None


def test_a_conversation_with_messages_shows_only_an_existing_parent():
    branch = make_conversation(parent=Branch(conversation="gone", sequence=1))
    assert view_detail(branch, ()).parent is None
    parent = ParentView(conversation_id="main", sequence_number=1)
    assert view_detail(branch, (), parent=parent).parent == parent

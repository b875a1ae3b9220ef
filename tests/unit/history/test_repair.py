"""Repairs of histories for each provider, and the problems that remain."""

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Document,
    Image,
    Message,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.history.repair import INTERRUPTED_CALL_TEXT, RepairResult, repair
from cllm.history.rules import (
    ANTHROPIC,
    ANTHROPIC_PREFILL,
    BEDROCK,
    BEDROCK_PLAIN,
    OPENAI,
    PROFILES,
    STRICT,
    HistoryProfile,
    Problem,
    find_problems,
)
from cllm.wire.messages import OutgoingMessage
from cllm.wire.openai.parts import decode_parts

RECORDED = Path(__file__).resolve().parents[4] / "shared" / "data" / "tau_airline.jsonl"
ALL = list(PROFILES.values())
MIXING = [profile for profile in ALL if profile.content_with_results != "nothing"]
HELLO = Text(text="Hello")


def call(call_id: str) -> ToolCall:
    return ToolCall(id=call_id, name="f", arguments="{}")


def result(call_id: str, text: str = "ok") -> ToolResult:
    return ToolResult(call_id=call_id, content=(Text(text=text),))


def make(role: Role, parts: tuple[AnyPart, ...]) -> OutgoingMessage:
    return OutgoingMessage(role=role, parts=parts)


def user(*parts: AnyPart) -> OutgoingMessage:
    return make("user", parts or (HELLO,))


def assistant(*parts: AnyPart) -> OutgoingMessage:
    return make("assistant", parts or (HELLO,))


def tool(*parts: AnyPart) -> OutgoingMessage:
    return make("tool", parts)


def system() -> OutgoingMessage:
    return make("system", (Text(text="Be brief."),))


def problems_for(
    profile: HistoryProfile, *messages: OutgoingMessage
) -> list[tuple[str, int, int | None]]:
    return [(p.code, p.position, p.part) for p in find_problems(messages, profile)]


def repair_for(
    profile: HistoryProfile, *messages: OutgoingMessage
) -> RepairResult[OutgoingMessage]:
    return repair(messages, profile, make=make)


def codes(repaired: RepairResult[OutgoingMessage]) -> list[str]:
    return [notice.code for notice in repaired.notices]


class TestOrder:
    @pytest.mark.parametrize("profile", ALL, ids=lambda profile: profile.name)
    def test_a_plain_conversation_is_valid_everywhere(self, profile):
        assert problems_for(profile, user(), assistant(), user()) == []

    @pytest.mark.parametrize("profile", ALL, ids=lambda profile: profile.name)
    def test_no_messages_are_refused_everywhere(self, profile):
        assert problems_for(profile) == [("no_messages", 0, None)]
        assert repair_for(profile).problems == (Problem(code="no_messages", position=0),)

    @pytest.mark.parametrize("profile", [BEDROCK, STRICT], ids=lambda p: p.name)
    def test_a_user_message_is_added_before_a_greeting_of_the_assistant(self, profile):
        assert ("starts_without_user", 0, None) in problems_for(profile, assistant(), user())
        repaired = repair_for(profile, assistant(), user())
        assert [message.role for message in repaired.messages] == ["user", "assistant", "user"]
        assert repaired.messages[1:] == (assistant(), user())
        assert codes(repaired) == ["message_added"]
        assert repaired.problems == ()

    def test_openai_has_no_rule_about_the_first_role_or_alternation(self):
        assert problems_for(OPENAI, assistant(), assistant(), user(), user(), system()) == []

    @pytest.mark.parametrize("profile", [BEDROCK, STRICT], ids=lambda p: p.name)
    def test_roles_alternate(self, profile):
        messages = (user(), user(), assistant(), assistant(), user())

        assert problems_for(profile, *messages) == [
            ("repeated_role", 1, None),
            ("repeated_role", 3, None),
        ]
        repaired = repair_for(profile, *messages)
        assert [message.role for message in repaired.messages] == ["user", "assistant", "user"]
        assert codes(repaired) == ["messages_merged"]
        assert repaired.problems == ()

    @pytest.mark.parametrize("profile", [ANTHROPIC, OPENAI], ids=lambda p: p.name)
    def test_consecutive_roles_and_a_first_reply_are_sent_as_they_are(self, profile):
        messages = (assistant(), user(), user(Text(text="b")), assistant(), assistant(), user())

        assert problems_for(profile, *messages) == []
        assert repair_for(profile, *messages).messages == messages

    @pytest.mark.parametrize(
        ("profile", "refused"),
        [(ANTHROPIC, [0, 2]), (BEDROCK, [0, 2]), (STRICT, [2]), (OPENAI, [])],
        ids=lambda value: getattr(value, "name", ""),
    )
    def test_system_messages_are_valid_where_the_provider_allows_them(self, profile, refused):
        problems = problems_for(profile, system(), user(), system(), assistant(), user())

        assert [place for code, place, _ in problems if code == "system_message"] == refused

    @pytest.mark.parametrize("profile", [ANTHROPIC, BEDROCK, STRICT], ids=lambda p: p.name)
    def test_a_system_message_that_the_provider_refuses_is_sent_as_a_user_message(self, profile):
        repaired = repair_for(profile, user(), assistant(), system())

        assert [message.role for message in repaired.messages] == ["user", "assistant", "user"]
        assert codes(repaired) == ["system_as_user"]
        assert repaired.problems == ()

    def test_a_history_of_system_messages_alone_has_no_user(self):
        assert ("starts_without_user", 0, None) in problems_for(STRICT, system())

    def test_two_system_messages_at_the_start_become_one(self):
        repaired = repair_for(STRICT, system(), system(), user())

        assert [message.role for message in repaired.messages] == ["system", "user"]
        assert repaired.problems == ()

    @pytest.mark.parametrize("profile", [ANTHROPIC, BEDROCK, STRICT], ids=lambda p: p.name)
    def test_the_last_message_is_not_the_assistants(self, profile):
        assert problems_for(profile, user(), assistant()) == [("assistant_last", 1, None)]

    def test_a_paused_turn_is_sent_unchanged(self):
        searching = Unknown(dialect="anthropic", raw=b'{"type":"server_tool_use"}')
        assert problems_for(ANTHROPIC, user(), assistant(HELLO, searching)) == []
        assert problems_for(ANTHROPIC, user(), assistant(searching, HELLO)) == [
            ("assistant_last", 1, None)
        ]
        video = Unknown(dialect="bedrock", raw=b'{"video":{}}')
        assert problems_for(BEDROCK, user(), assistant(video)) == [("assistant_last", 1, None)]

    def test_a_prefill_does_not_end_in_white_space(self):
        messages = (user(), assistant(Text(text="It is \n")))

        assert problems_for(ANTHROPIC_PREFILL, *messages) == [("blank_prefill_end", 1, 0)]
        repaired = repair_for(ANTHROPIC_PREFILL, *messages)
        assert repaired.messages[1] == assistant(Text(text="It is"))
        assert codes(repaired) == ["prefill_trimmed"]
        assert repaired.problems == ()
        assert problems_for(ANTHROPIC_PREFILL, user(), assistant(Text(text="It is"))) == []
        assert problems_for(OPENAI, *messages) == []


class TestPairing:
    @pytest.mark.parametrize("profile", MIXING, ids=lambda profile: profile.name)
    def test_results_directly_after_their_calls_are_valid_in_either_form(self, profile):
        start = (user(), assistant(call("a"), call("b")))
        one_message = (*start, user(result("b"), result("a"), HELLO))
        repaired = repair_for(profile, *start, tool(result("a")), tool(result("b")))

        assert problems_for(profile, *one_message) == []
        assert (repaired.problems, repaired.notices) == ((), ())

    def test_consecutive_tool_messages_are_valid_with_a_tool_role(self):
        loop = (user(), assistant(call("a"), call("b")), tool(result("a")), tool(result("b")))

        assert problems_for(OPENAI, *loop, user()) == problems_for(STRICT, *loop, user()) == []

    @pytest.mark.parametrize("profile", ALL, ids=lambda profile: profile.name)
    def test_a_call_id_can_occur_again_in_a_later_turn(self, profile):
        loop = (assistant(call("a")), tool(result("a")))

        assert problems_for(profile, user(), *loop, *loop) == []

    @pytest.mark.parametrize("profile", ALL, ids=lambda profile: profile.name)
    def test_duplicate_call_ids_in_one_message_cannot_be_repaired(self, profile):
        messages = (user(), assistant(call("a"), call("a")), tool(result("a")))

        assert problems_for(profile, *messages) == [("duplicate_call_id", 1, 1)]
        assert repair_for(profile, *messages).problems[0].code == "duplicate_call_id"

    @pytest.mark.parametrize("profile", MIXING, ids=lambda profile: profile.name)
    def test_a_call_without_a_result_gets_an_error_result(self, profile):
        messages = (user(), assistant(call("a"), call("b")), tool(result("a")), user())
        repaired = repair_for(profile, *messages)
        results = [p for m in repaired.messages for p in m.parts if isinstance(p, ToolResult)]

        assert ("missing_result", 1, 1) in problems_for(profile, *messages)
        assert [(part.call_id, part.is_error) for part in results] == [("a", False), ("b", True)]
        assert results[1].content == (Text(text=INTERRUPTED_CALL_TEXT),)
        assert codes(repaired) == ["interrupted_call_answered"]
        assert repaired.problems == ()
        assert len(messages[1].parts) == 2

    @pytest.mark.parametrize("profile", ALL, ids=lambda profile: profile.name)
    def test_a_call_without_a_result_in_the_last_message_gets_an_error_result(self, profile):
        repaired = repair_for(profile, user(), assistant(call("a")))

        assert repaired.problems == ()
        assert repaired.messages[-1].parts[0].call_id == "a"  # type: ignore[union-attr]

    @pytest.mark.parametrize("profile", ALL, ids=lambda profile: profile.name)
    def test_a_result_without_a_call_is_sent_as_text(self, profile):
        messages = (user(), assistant(), tool(result("x")), user())
        repaired = repair_for(profile, *messages)
        sent_parts = [part for message in repaired.messages[2:] for part in message.parts]

        assert ("orphan_result", 2, 0) in problems_for(profile, *messages)
        assert sent_parts == [Text(text="ok"), HELLO]
        assert "result_as_text" in codes(repaired)
        assert repaired.problems == ()

    def test_an_empty_result_without_a_call_is_removed(self):
        empty = tool(ToolResult(call_id="x"))

        assert repair_for(OPENAI, user(), assistant(), empty, user()).messages == (
            user(),
            assistant(),
            user(),
        )

    def test_text_in_a_message_with_an_orphan_result_stays(self):
        repaired = repair_for(OPENAI, user(), assistant(), user(result("x"), HELLO))

        assert repaired.messages == (user(), assistant(), user(Text(text="ok"), HELLO))

    @pytest.mark.parametrize("profile", MIXING, ids=lambda profile: profile.name)
    def test_a_late_result_is_moved_after_its_call(self, profile):
        messages = (
            user(),
            assistant(call("a"), call("b")),
            user(),
            tool(result("b")),
            tool(result("a")),
        )
        repaired = repair_for(profile, *messages)
        parts = [part for message in repaired.messages[2:] for part in message.parts]

        assert ("late_result", 3, 0) in problems_for(profile, *messages)
        assert parts == [result("a"), result("b"), HELLO]
        assert "result_moved" in codes(repaired)
        assert repaired.problems == ()

    @pytest.mark.parametrize("profile", ALL, ids=lambda profile: profile.name)
    def test_a_second_result_of_a_call_is_sent_as_text(self, profile):
        messages = (user(), assistant(call("a")), tool(result("a")), tool(result("a", "again")))
        repaired = repair_for(profile, *messages)

        parts = [part for message in repaired.messages[2:] for part in message.parts]

        assert ("duplicate_result", 3, 0) in problems_for(profile, *messages)
        assert [part for part in parts if part != Text(text="(continued)")] == [
            result("a"),
            Text(text="again"),
        ]
        assert "result_as_text" in codes(repaired)
        assert repaired.problems == ()

    def test_a_system_message_between_call_and_result_makes_the_result_late(self):
        messages = (user(), assistant(call("a")), system(), tool(result("a")))

        assert problems_for(OPENAI, *messages) == [("late_result", 3, 0)]
        assert [m.role for m in repair_for(OPENAI, *messages).messages] == [
            "user",
            "assistant",
            "tool",
            "system",
        ]

    def test_an_empty_message_between_call_and_result_makes_the_result_late(self):
        messages = (user(), assistant(call("a")), make("user", ()), tool(result("a")))

        assert problems_for(OPENAI, *messages) == [("late_result", 3, 0)]

    def test_calls_in_two_consecutive_messages_are_merged(self):
        messages = (
            user(),
            assistant(call("a")),
            assistant(call("b")),
            user(result("a"), result("b")),
        )
        repaired = repair_for(OPENAI, *messages)

        assert {code for code, _, _ in problems_for(OPENAI, *messages)} == {
            "missing_result",
            "orphan_result",
        }
        assert repaired.messages[1] == assistant(call("a"), call("b"))
        assert repaired.problems == ()
        assert codes(repaired) == ["messages_merged"]

    @pytest.mark.parametrize("profile", [ANTHROPIC, BEDROCK], ids=lambda p: p.name)
    def test_two_tool_messages_are_one_user_message_in_call_order_without_a_notice(self, profile):
        repaired = repair_for(
            profile,
            user(),
            assistant(call("a"), call("b")),
            tool(result("a")),
            tool(result("b")),
            user(),
        )

        assert repaired.messages[2:] == (user(result("a"), result("b"), HELLO),)
        assert repaired.notices == ()

    @pytest.mark.parametrize("profile", ALL, ids=lambda profile: profile.name)
    @pytest.mark.parametrize(
        "message",
        [user(call("a"), HELLO), assistant(HELLO, result("a")), user(HELLO, Thinking(text="a"))],
    )
    def test_a_part_in_a_message_of_the_wrong_role_cannot_be_repaired(self, profile, message):
        problems = repair_for(profile, user(), assistant(), message, user()).problems

        assert "misplaced_part" in {problem.code for problem in problems}


class TestContent:
    @pytest.mark.parametrize("profile", [ANTHROPIC, BEDROCK, STRICT], ids=lambda p: p.name)
    @pytest.mark.parametrize("text", ["", " \n"])
    def test_blank_text_is_removed_with_a_notice(self, profile, text):
        messages = (
            user(Text(text=text), HELLO),
            assistant(Text(text=text), call("a")),
            tool(result("a", text)),
        )
        repaired = repair_for(profile, *messages)

        assert [code for code, _, _ in problems_for(profile, *messages)] == ["blank_text"] * 3
        assert repaired.messages[0] == user()
        assert repaired.messages[1] == assistant(call("a"))
        assert repaired.messages[2].parts == (ToolResult(call_id="a"),)
        assert codes(repaired) == ["blank_text_left_out"]
        assert "3 times" in repaired.notices[0].message
        assert repaired.problems == ()

    def test_openai_accepts_blank_text(self):
        messages = (user(Text(text="")), make("assistant", ()), user())

        assert problems_for(OPENAI, *messages) == []
        assert all(
            a is b for a, b in zip(repair_for(OPENAI, *messages).messages, messages, strict=True)
        )

    def test_an_empty_message_is_removed_for_anthropic(self):
        repaired = repair_for(ANTHROPIC, user(), make("assistant", ()), user())

        assert repaired.messages == (user(), user())
        assert codes(repaired) == ["message_left_out"]

    @pytest.mark.parametrize("profile", [BEDROCK, STRICT], ids=lambda p: p.name)
    def test_an_empty_message_is_removed_and_its_neighbours_are_merged(self, profile):
        messages = (user(), make("assistant", ()), user())
        repaired = repair_for(profile, *messages)

        assert ("empty_message", 1, None) in problems_for(profile, *messages)
        assert repaired.messages == (user(HELLO, HELLO),)
        assert codes(repaired) == ["message_left_out", "messages_merged"]

    @pytest.mark.parametrize("profile", [ANTHROPIC, ANTHROPIC_PREFILL, BEDROCK, STRICT])
    def test_an_empty_newest_message_is_an_error(self, profile):
        problems = repair_for(profile, user(), assistant(), user(Text(text=" "))).problems

        assert problems == (Problem(code="empty_message", position=2),)

    @pytest.mark.parametrize("profile", [ANTHROPIC, BEDROCK, STRICT], ids=lambda p: p.name)
    def test_an_empty_message_after_a_user_message_is_no_error(self, profile):
        repaired = repair_for(profile, user(), user(Text(text="")))

        assert repaired.messages == (user(),)
        assert repaired.problems == ()

    @pytest.mark.parametrize("profile", [ANTHROPIC, BEDROCK], ids=lambda p: p.name)
    def test_the_cache_breakpoint_of_a_blank_text_moves_to_the_part_before(self, profile):
        blank = Text(text=" ", cache=CacheMark())

        assert repair_for(profile, user(HELLO, blank)).messages == (
            user(Text(text="Hello", cache=CacheMark())),
        )
        assert repair_for(profile, user(blank, HELLO)).messages == (user(),)
        marked = Text(text="a", cache=CacheMark(ttl="1h"))
        assert repair_for(profile, user(marked, blank)).messages == (user(marked),)
        thought = assistant(Thinking(text="hm", signature="s"), blank, HELLO)
        assert repair_for(profile, user(), thought, user()).messages[1] == assistant(
            Thinking(text="hm", signature="s"), HELLO
        )

    @pytest.mark.parametrize("profile", [ANTHROPIC, BEDROCK], ids=lambda p: p.name)
    @pytest.mark.parametrize("signature", [None, ""])
    def test_only_thinking_without_a_signature_is_removed(self, profile, signature):
        thinking = Thinking(text="hm", signature=signature)
        messages = (user(), assistant(thinking, HELLO, call("a")), tool(result("a")))
        repaired = repair_for(profile, *messages)

        assert problems_for(profile, *messages) == [("unsigned_thinking", 1, 0)]
        assert repaired.messages[1] == assistant(HELLO, call("a"))
        assert codes(repaired) == ["thinking_left_out"]

    @pytest.mark.parametrize("profile", [ANTHROPIC, BEDROCK], ids=lambda p: p.name)
    def test_signed_and_redacted_thinking_stay_unchanged_and_in_order(self, profile):
        messages = (
            user(),
            assistant(Thinking(text="hm", signature="s"), RedactedThinking(data="x"), call("a")),
            tool(result("a")),
        )
        repaired = repair_for(profile, *messages)

        assert problems_for(profile, *messages) == []
        assert repaired.messages[1] is messages[1]

    @pytest.mark.parametrize("profile", [ANTHROPIC, BEDROCK, STRICT], ids=lambda p: p.name)
    def test_a_message_with_only_thinking_is_removed(self, profile):
        messages = (user(), assistant(Thinking(text="hm", signature="s")), user())

        assert ("only_thinking", 1, None) in problems_for(profile, *messages)
        is_merged = profile is not ANTHROPIC
        expected = (user(HELLO, HELLO),) if is_merged else (user(), user())
        assert repair_for(profile, *messages).messages == expected

    def test_bedrock_requires_text_with_a_document(self):
        document = Document(media_type="application/pdf", data="QUJD")
        repaired = repair_for(BEDROCK, user(document))

        assert problems_for(BEDROCK, user(document)) == [("document_without_text", 0, None)]
        assert problems_for(ANTHROPIC, user(document)) == []
        assert isinstance(repaired.messages[0].parts[1], Text)
        assert codes(repaired) == ["document_given_text"]
        assert repaired.problems == ()

    def test_bedrock_refuses_a_document_with_tool_results(self):
        messages = (user(), assistant(call("a")), user(result("a"), HELLO, Document(file_id="x")))

        assert problems_for(BEDROCK, *messages) == [("document_beside_result", 2, None)]
        assert problems_for(BEDROCK, user(HELLO, Document(file_id="x"))) == []
        repaired = repair_for(BEDROCK, *messages)
        assert repaired.messages[2:] == (
            user(result("a")),
            assistant(Text(text="(continued)")),
            user(HELLO, Document(file_id="x")),
        )
        assert codes(repaired) == ["message_split"]
        assert repaired.problems == ()

    def test_claude_on_bedrock_refuses_a_video_with_tool_results(self):
        video = Unknown(dialect="bedrock", raw=b'{"video":{}}')
        guard = Unknown(dialect="bedrock", raw=b'{"guardContent":{}}')
        loop = (user(), assistant(call("a")))

        assert problems_for(BEDROCK, *loop, user(result("a"), video)) == [
            ("document_beside_result", 2, None)
        ]
        assert problems_for(BEDROCK, *loop, user(result("a"), guard)) == []

    def test_some_models_on_bedrock_refuse_any_part_with_tool_results(self):
        loop = (user(), assistant(call("a")))

        assert problems_for(BEDROCK_PLAIN, *loop, user(result("a"))) == []
        assert problems_for(BEDROCK_PLAIN, *loop, user(result("a"), HELLO)) == [
            ("part_beside_result", 2, None)
        ]
        repaired = repair_for(BEDROCK_PLAIN, *loop, user(result("a"), HELLO))
        assert [message.role for message in repaired.messages[2:]] == ["user", "assistant", "user"]
        assert repaired.problems == ()


class TestProblems:
    def test_problems_have_the_positions_of_the_whole_history(self):
        repaired = repair(
            (user(), assistant(call("a")), user(), assistant()),
            ANTHROPIC,
            make=make,
            positions=(1, 4, 6, 9),
        )

        assert [notice.path for notice in repaired.notices] == ["messages[4]"]
        assert repaired.problems == (Problem(code="assistant_last", position=9),)

    def test_any_values_with_a_role_and_parts_can_be_checked(self):
        class Said(msgspec.Struct, frozen=True):
            role: Role
            parts: tuple[AnyPart, ...]

        assert repair((Said("user", (HELLO,)),), ANTHROPIC, make=Said).messages == (
            Said("user", (HELLO,)),
        )


IDS = st.sampled_from(["a", "b", "c"])
TEXTS = st.sampled_from(["", " ", "x"]).map(lambda text: Text(text=text))
PARTS: dict[Role, st.SearchStrategy[Any]] = {
    "user": TEXTS
    | st.builds(result, IDS)
    | st.just(Document(media_type="application/pdf", data="QUJD"))
    | st.just(Image(url="https://x")),
    "assistant": TEXTS
    | st.builds(call, IDS)
    | st.builds(Thinking, text=st.just("hm"), signature=st.sampled_from([None, "s"])),
    "tool": st.builds(result, IDS),
}


def messages_of(role: Role) -> st.SearchStrategy[OutgoingMessage]:
    least, most = (1, 1) if role == "tool" else (0, 3)
    return st.lists(PARTS[role], min_size=least, max_size=most).map(
        lambda parts: make(role, tuple(parts))
    )


HISTORIES = st.lists(st.one_of(*(messages_of(role) for role in PARTS)), max_size=8)
NOT_MENDABLE = {
    "assistant_last",
    "duplicate_call_id",
    "empty_message",
    "missing_result",
    "no_messages",
    "repeated_role",
}


@given(HISTORIES, st.sampled_from(ALL))
def test_only_problems_that_cannot_be_repaired_remain_after_a_repair(history, profile):
    repaired = repair_for(profile, *history)
    left = {problem.code for problem in repaired.problems}

    assert left == {problem.code for problem in find_problems(repaired.messages, profile)}
    if "duplicate_call_id" not in left:
        assert left <= NOT_MENDABLE - {"missing_result", "repeated_role", "duplicate_call_id"}


def test_an_empty_newest_message_after_other_empty_messages_is_left_out():
    result = ToolResult(call_id="a", content=(Text(text="ok"),))
    history = make("tool", (result,)), make("user", ()), make("user", ())

    repaired = repair_for(ANTHROPIC, *history)

    assert [message.parts for message in repaired.messages] == [(Text(text="ok"),)]


def test_an_empty_newest_message_after_an_interrupted_call_is_left_out():
    history = make("user", (HELLO,)), make("assistant", (call("a"),)), make("user", ())

    repaired = repair_for(STRICT, *history)

    assert [message.role for message in repaired.messages] == ["user", "assistant", "tool"]
    assert repaired.problems == ()


@given(HISTORIES, st.sampled_from(ALL))
def test_repairing_a_repaired_history_changes_nothing(history, profile):
    once = repair_for(profile, *history)
    twice = repair(once.messages, profile, make=make)

    assert twice.messages == once.messages
    if not once.problems:
        assert twice.notices == ()


@given(HISTORIES, st.sampled_from(ALL))
def test_a_valid_alternating_history_stays_unchanged(history, profile):
    if find_problems(history, profile):
        return
    roles = [m.role for m in history]
    repaired = repair_for(profile, *history)

    assert repaired.problems == ()
    if profile.has_tool_role or all(a != b for a, b in itertools.pairwise(roles)):
        assert [p for m in repaired.messages for p in m.parts] == [
            p for m in history for p in m.parts
        ]


def recorded() -> list[list[OutgoingMessage]]:
    with RECORDED.open(encoding="utf-8") as lines:
        return [
            [
                OutgoingMessage(role=message.role, parts=decode_parts(message), raw=message.raw)
                for fields in json.loads(line)["messages"]
                for message in [Message(role=fields["role"], raw=msgspec.json.encode(fields))]
            ]
            for line in lines
        ]


@pytest.mark.shared_data
@pytest.mark.skipif(not RECORDED.exists(), reason=f"{RECORDED} is not beside this repository")
def test_every_call_point_of_recorded_conversations_is_valid_for_openai():
    points = 0
    for conversation in recorded():
        for end, message in enumerate(conversation):
            if message.role == "assistant":
                points += 1
                assert find_problems(conversation[:end], OPENAI) == ()

    assert points > 1000


@pytest.mark.shared_data
@pytest.mark.skipif(not RECORDED.exists(), reason=f"{RECORDED} is not beside this repository")
@pytest.mark.parametrize("profile", [ANTHROPIC, BEDROCK, STRICT], ids=lambda p: p.name)
def test_recorded_conversations_can_be_sent_to_every_provider(profile):
    for conversation in recorded():
        sent_parts = [message for message in conversation if message.role != "system"]
        for end, message in enumerate(sent_parts):
            if message.role == "assistant" and end:
                assert repair_for(profile, *sent_parts[:end]).problems == ()

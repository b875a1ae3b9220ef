"""The rules of each provider: profiles by model, and the problems of a history."""

import pytest

from cllm.core.message import AnyPart, Role, Text, ToolCall
from cllm.history.rules import (
    ANTHROPIC,
    ANTHROPIC_SYSTEM,
    OPENAI,
    PROBLEM_MESSAGES,
    HistoryProfile,
    Problem,
    find_problems,
    profile_for,
)
from cllm.wire.messages import OutgoingMessage

HELLO = Text(text="Hello")


def call(call_id: str) -> ToolCall:
    return ToolCall(id=call_id, name="f", arguments="{}")


def make(role: Role, parts: tuple[AnyPart, ...]) -> OutgoingMessage:
    return OutgoingMessage(role=role, parts=parts)


def user(*parts: AnyPart) -> OutgoingMessage:
    return make("user", parts or (HELLO,))


def assistant(*parts: AnyPart) -> OutgoingMessage:
    return make("assistant", parts or (HELLO,))


def system() -> OutgoingMessage:
    return make("system", (Text(text="Be brief."),))


def problems_for(
    profile: HistoryProfile, *messages: OutgoingMessage
) -> list[tuple[str, int, int | None]]:
    return [(p.code, p.position, p.part) for p in find_problems(messages, profile)]


class TestProfiles:
    @pytest.mark.parametrize(
        ("model", "name"),
        [
            ("claude-3-opus-20240229", "anthropic-prefill"),
            ("claude-sonnet-4-20250514", "anthropic-prefill"),
            ("claude-opus-4-5-20251101", "anthropic-prefill"),
            ("claude-opus-4-6", "anthropic"),
            ("claude-opus-4-8", "anthropic-system"),
            ("claude-opus-5", "anthropic-system"),
            ("claude-next", "anthropic-system"),
            ("glm-5", "anthropic-prefill"),
        ],
    )
    def test_the_profile_of_a_claude_follows_its_version(self, model, name):
        assert profile_for("anthropic", model).name == name

    @pytest.mark.parametrize(
        ("model", "name"),
        [
            ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock-prefill"),
            ("anthropic.claude-opus-4-6-v1", "bedrock"),
            ("us.meta.llama3-3-70b-instruct-v1:0", "bedrock-plain"),
            ("mistral.mistral-large-2402-v1:0", "bedrock-plain"),
            ("amazon.nova-pro-v1:0", "bedrock-other"),
            ("arn:aws:bedrock:us-east-1:1:application-inference-profile/x", "bedrock-other"),
        ],
    )
    def test_the_profile_of_a_model_on_bedrock_follows_its_family(self, model, name):
        assert profile_for("bedrock", model).name == name

    def test_every_model_behind_chat_completions_has_the_openai_profile(self):
        assert profile_for("openai", "claude-opus-4-6") is OPENAI

    @pytest.mark.parametrize(
        ("messages", "refused"),
        [
            ((user(), system(), assistant(), user()), []),
            ((user(), system()), []),
            ((system(), user()), [0]),
            ((user(), system(), user()), [1]),
            ((user(), assistant(), system()), [2]),
        ],
    )
    def test_the_newest_claude_accepts_a_system_message_between_user_and_answer(
        self, messages, refused
    ):
        problems = problems_for(ANTHROPIC_SYSTEM, *messages)

        assert [position for code, position, _ in problems if code == "system_message"] == refused


class TestProblems:
    def test_a_problem_has_a_path_and_a_message(self):
        problem = find_problems((user(), assistant(call("a")), user()), OPENAI)[0]

        assert problem.path == "messages[1].content[0]"
        assert problem.message == "a tool call has no result (a)"
        assert Problem(code="no_messages", position=0).path == "messages[0]"
        assert Problem(code="no_messages", position=0).message == PROBLEM_MESSAGES["no_messages"]

    def test_problems_come_in_the_order_of_the_messages(self):
        positions = [
            problem.position
            for problem in find_problems(
                (assistant(call("a")), user(Text(text="")), system()), ANTHROPIC
            )
        ]

        assert positions == sorted(positions)

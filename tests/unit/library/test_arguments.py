"""Arguments are checked before anything else happens."""

import re
from pathlib import Path
from typing import Any

import pytest

import cllm as typed
from cllm.core.errors import InvalidTextError

# As a program without a type checker has it: most calls here are wrong on purpose.
cllm: Any = typed
ByTurns, Conversation, ConversationManager = (
    cllm.ByTurns,
    cllm.Conversation,
    cllm.ConversationManager,
)

pytestmark = pytest.mark.usefixtures("empty_home")
HALF = "a\ud800b"


class TestKeywords:
    @pytest.mark.parametrize("call", [cllm.ask, cllm.stream, cllm.astream])
    def test_a_misspelt_keyword_is_refused_before_any_call(self, call):
        with pytest.raises(TypeError, match=r"'modle'.*parameters="):
            call("hello", modle="openai/x")

    async def test_asynchronous_code_is_told_the_same(self):
        with pytest.raises(TypeError, match="'temprature'"):
            await cllm.aask("hello", temprature=1)

    @pytest.mark.parametrize("make", [ConversationManager, Conversation])
    def test_a_constructor_refuses_a_misspelt_keyword(self, make):
        with pytest.raises(TypeError, match=rf"{make.__name__}\(\) .*'modle'"):
            make(modle="openai/x")

    def test_keywords_of_a_new_conversation_are_refused_by_ask(self):
        with pytest.raises(TypeError, match="'model'"):
            Conversation("demo").ask("hello", model="openai/x")
        with pytest.raises(TypeError, match="'model'"):
            Conversation("demo").regenerate(model="openai/x")

    def test_anything_can_be_in_parameters(self):
        manager = ConversationManager(seed=1, parameters={"logprobs": True})

        assert manager.parameters == {"logprobs": True, "seed": 1}

    @pytest.mark.parametrize("wrong", ["seed", ["seed"], 7])
    def test_parameters_are_a_mapping(self, wrong):
        with pytest.raises(TypeError, match="parameters"):
            ConversationManager(parameters=wrong)


class TestLoneSurrogates:
    def test_a_lone_surrogate_is_refused_by_add(self):
        for manager in (ConversationManager(), ConversationManager(store="memory:")):
            for say in (manager.add_user_message, manager.add_assistant_message, manager.ask):
                with pytest.raises(InvalidTextError, match="position 1"):
                    say(HALF)
            assert manager.messages == []

    @pytest.mark.parametrize("call", [cllm.ask, cllm.stream, Conversation("demo").ask])
    def test_a_lone_surrogate_is_refused_by_ask(self, call):
        with pytest.raises(InvalidTextError, match="surrogate"):
            call(HALF)

    def test_a_lone_surrogate_is_refused_everywhere(self):
        chat = Conversation("demo", store="memory:")
        acts: list[Any] = [
            lambda: chat.add("user", HALF),
            lambda: chat.retitle(HALF),
            lambda: chat.search(HALF),
            lambda: chat.import_json(HALF),
            lambda: chat.branch(system=HALF),
            lambda: cllm.ask("hello", system=HALF),
            lambda: Conversation("demo", system=HALF),
            lambda: ConversationManager(system_prompt=HALF),
        ]
        for act in acts:
            with pytest.raises(InvalidTextError, match="surrogate"):
                act()

    def test_a_lone_surrogate_is_refused_in_parameters(self):
        with pytest.raises(InvalidTextError, match="'stop'"):
            cllm.ask("hello", stop=[HALF])

    def test_the_error_is_a_cllm_error_and_a_value_error(self):
        assert issubclass(InvalidTextError, ValueError)
        assert issubclass(InvalidTextError, cllm.CllmError)


class TestTypes:
    @pytest.mark.parametrize("wrong", ["3", None, 2.5, float("inf"), True])
    def test_an_invalid_max_turns_is_refused_immediately(self, wrong):
        with pytest.raises(TypeError, match="max_turns"):
            ConversationManager(max_turns=wrong)

    def test_an_attribute_set_later_is_checked_on_use(self):
        manager = ConversationManager()
        manager.max_turns = "3"
        with pytest.raises(TypeError, match="max_turns"):
            manager.add_user_message("hello")
        manager.max_turns = 3
        manager.system_prompt = 5
        with pytest.raises(TypeError, match="system_prompt"):
            manager.ask("hello")
        manager.system_prompt = ""
        manager.parameters = 5
        with pytest.raises(TypeError, match=r"^parameters must be a dictionary, not 5\.$"):
            manager.ask("hello")

    @pytest.mark.parametrize("wrong", [None, 7, b"x", ["x"]])
    def test_the_error_of_a_message_that_is_not_a_string_names_its_value(self, wrong):
        manager = ConversationManager()
        for call in (manager.add_user_message, manager.add_assistant_message, manager.ask):
            with pytest.raises(InvalidTextError, match=r"must be a string.*not") as raised:
                call(wrong)
            assert repr(wrong) in str(raised.value)

    def test_the_tokens_of_a_summarised_window_are_a_window_by_tokens(self):
        with pytest.raises(cllm.CllmError, match=r"^tokens is 5; it must be ByTokens"):
            cllm.Summarise(tokens=5)

    @pytest.mark.parametrize("make", [ConversationManager, Conversation])
    @pytest.mark.parametrize(
        ("name", "wrong"),
        [("model", 5), ("store", 5), ("store", Path("kept")), ("window", "ten"), ("window", 10)],
    )
    def test_the_error_of_each_keyword_names_its_type(self, make, name, wrong):
        with pytest.raises(TypeError, match=f"^{name} must be"):
            make(**{name: wrong})

    @pytest.mark.parametrize("wrong", [5, b"x", None])
    def test_a_system_prompt_must_be_a_string(self, wrong):
        with pytest.raises(TypeError, match="system_prompt must be"):
            ConversationManager(system_prompt=wrong)

    @pytest.mark.parametrize("wrong", ["3", None, 2.5, True])
    def test_max_turns_of_a_window_is_checked(self, wrong):
        with pytest.raises(cllm.CllmError, match="max_turns"):
            ByTurns(max_turns=wrong)

    def test_the_system_prompt_of_a_conversation_must_be_a_string_or_none(self):
        assert Conversation("demo", system=None).system is None
        with pytest.raises(TypeError, match="system must be"):
            Conversation("demo", system=5)

    @pytest.mark.parametrize("wrong", ["first", True, 1.0, None])
    def test_a_message_number_must_be_a_whole_number(self, wrong):
        chat = Conversation("numbered", store="memory:")
        chat.add("user", "hello")
        for act in (chat.pin, chat.unpin, chat.delete_from):
            with pytest.raises(TypeError, match="message number"):
                act(wrong)

        assert (chat.load().pins, len(chat.messages())) == ((), 1)

    @pytest.mark.parametrize("wrong", ["first", True])
    def test_at_and_limit_must_be_whole_numbers(self, wrong):
        chat = Conversation("numbered", store="memory:")
        chat.add("user", "hello")
        with pytest.raises(TypeError, match="at must be"):
            chat.branch(at=wrong)
        with pytest.raises(TypeError, match="limit must be"):
            chat.search("hello", limit=wrong)

    @pytest.mark.parametrize("role", ["narrator", "system", "tool", None])
    def test_the_role_of_an_added_message_is_checked(self, role):
        chat = Conversation("sides", store="memory:")
        with pytest.raises(ValueError, match="role must be one of user, assistant"):
            chat.add(role, "hello")
        assert not chat.exists()

    def test_the_format_of_an_export_is_checked(self):
        chat = Conversation("forms", store="memory:")
        chat.add("user", "hello")
        with pytest.raises(ValueError, match="form must be one of json, markdown"):
            chat.export("pdf")

    def test_the_policy_is_checked(self):
        with pytest.raises(ValueError, match="captured"):
            Conversation("demo", policy="kept")

    @pytest.mark.parametrize("wrong", [7, b"demo"])
    def test_an_id_must_be_a_string(self, wrong):
        acts: list[Any] = [
            lambda: Conversation(wrong),
            lambda: Conversation("demo", store="memory:").branch(wrong),
            lambda: ConversationManager(conversation=wrong),
            lambda: cllm.ask("hello", conversation=wrong),
        ]
        for act in acts:
            with pytest.raises(TypeError, match="ID of a conversation must be"):
                act()

    @pytest.mark.parametrize("wrong", [None, 7, Path("kept")])
    def test_a_store_url_must_be_a_string(self, wrong):
        with pytest.raises(TypeError, match="json:PATH"):
            cllm.open_store(wrong)

    def test_a_blocking_store_is_not_accepted_as_store(self):
        with pytest.raises(TypeError, match="store must be"):
            Conversation("demo", store=cllm.open_store("memory:").blocking)

    @pytest.mark.parametrize("wrong", [None, 7, b"hello", ["hello"]])
    def test_a_message_must_be_a_string_or_messages(self, wrong):
        with pytest.raises(TypeError, match="a string, a Message"):
            cllm.ask(wrong)

    @pytest.mark.parametrize(
        ("wrong", "field"),
        [
            ({}, "role"),
            ({"role": "bot", "content": "Hello"}, "role"),
            ({"role": "user", "content": 7}, "content"),
            ({"role": "tool", "content": "7"}, "tool_call_id"),
            ({"role": "assistant", "tool_calls": [{}]}, "tool_calls[0].id"),
        ],
    )
    def test_the_error_names_the_field_of_a_dictionary(self, wrong, field):
        for prompt in (wrong, [wrong]):
            with pytest.raises(ValueError, match=re.escape(f"messages[0].{field}: must be")):
                cllm.ask(prompt)

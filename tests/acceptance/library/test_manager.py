"""`ConversationManager` with a model and with a store, as a program uses it."""

import json

import pytest
from tests.fake_provider import ToolCall

from cllm.stores.registry import SCHEMES

STORES = [name for name in ("json", "sqlite") if name in SCHEMES]


@pytest.fixture(params=STORES)
def store(request, home):
    """The URL of a store on disk."""
    path = home.work / ("saved" if request.param == "json" else "saved.db")
    return f"{request.param}:{path}"


def test_a_manager_sends_its_prompt_and_its_window(provider, program):
    for number in range(4):
        provider.queue_reply(f"Answer {number}.")

    out = program(
        """
        from cllm import ConversationManager
        manager = ConversationManager(max_turns=2, system_prompt="Be brief.")
        for number in range(3):
            manager.ask(f"Question {number}?")
            print(manager.was_trimmed(), manager.get_turn_count())
        print("".join(manager.stream("Question 3?")))
        """
    )

    assert out.splitlines() == ["False 1", "False 2", "True 2", "Answer 3."]
    assert provider.requests[3].message_pairs == [
        ("system", "Be brief."),
        ("user", "Question 1?"),
        ("assistant", "Answer 1."),
        ("user", "Question 2?"),
        ("assistant", "Answer 2."),
        ("user", "Question 3?"),
    ]


def test_a_failed_call_does_not_change_a_manager(provider, program):
    provider.queue_error(500)
    provider.queue_reply("Fine.")

    out = program(
        """
        import cllm
        manager = cllm.ConversationManager()
        try:
            manager.ask("Hello?")
        except cllm.CllmError as error:
            print(type(error).__name__, manager.messages)
        print(manager.ask("Again?"), manager.get_message_count())
        """
    )

    assert out.splitlines() == ["UpstreamError []", "Fine. 2"]


class TestInAStore:
    def test_the_messages_are_the_window_and_the_store_has_everything(
        self, provider, program, store
    ):
        out = program(
            f"""
            import cllm
            manager = cllm.ConversationManager(
                max_turns=2, system_prompt="Be brief.", store="{store}", conversation="demo"
            )
            for number in range(4):
                manager.ask(f"question {{number}}")
                print(manager.get_message_count(), manager.get_turn_count(), manager.was_trimmed())
                again = cllm.ConversationManager(max_turns=2, store="{store}", conversation="demo")
                assert again.was_trimmed() == manager.was_trimmed(), number
            print([message["content"] for message in manager.get_messages()][::2])
            saved = cllm.open_store("{store}").blocking.load("demo")
            print(saved.message_count, len(saved.turns), manager.conversation)
            """
        )

        assert out.splitlines() == [
            "2 1 False",
            "4 2 False",
            "4 2 True",
            "4 2 True",
            "['question 2', 'question 3']",
            "8 4 demo",
        ]
        assert [
            text for role, text in provider.requests[3].message_pairs if role != "assistant"
        ] == [
            *("Be brief.", "question 1", "question 2", "question 3"),
        ]

    def test_manually_added_messages_are_saved_immediately(self, provider, program, store):
        opened = f"""
            import cllm
            manager = cllm.ConversationManager(store="{store}", conversation="demo")
        """
        program(opened + "    manager.add_user_message('I am Alice.')\n")
        out = program(opened + "    print(manager.get_messages(), manager.get_turn_count())\n")
        assert out == "[{'role': 'user', 'content': 'I am Alice.'}] 0\n"

        program(opened + "    manager.add_assistant_message('Hello Alice.')\n")
        program(opened + "    manager.ask('Who am I?')\n")

        assert provider.requests[0].message_pairs[1:] == [
            ("user", "I am Alice."),
            ("assistant", "Hello Alice."),
            ("user", "Who am I?"),
        ]

    def test_manually_added_messages_are_trimmed_as_in_memory(self, program, store):
        out = program(
            f"""
            import cllm
            plain = cllm.ConversationManager(max_turns=2)
            saved = cllm.ConversationManager(max_turns=2, store="{store}", conversation="demo")
            script = "uauuauaauaua"
            for number, role in enumerate(script):
                for manager in (plain, saved):
                    add = manager.add_user_message if role == "u" else manager.add_assistant_message
                    add(f"{{number}}")
                same = (
                    plain.get_messages() == saved.get_messages(),
                    plain.get_turn_count() == saved.get_turn_count(),
                    plain.was_trimmed() == saved.was_trimmed(),
                )
                assert all(same), (number, same, plain.messages, saved.messages)
            again = cllm.ConversationManager(max_turns=2, store="{store}", conversation="demo")
            print(again.get_messages() == plain.get_messages(), again.was_trimmed())
            print(cllm.open_store("{store}").blocking.load("demo").message_count)
            """
        )

        assert out.splitlines() == ["True True", "12"]

    def test_a_conversation_continues_with_its_pinned_prompt(self, provider, program, store):
        program(
            f"""
            import cllm
            cllm.ConversationManager(
                system_prompt="Be kind.", store="{store}", conversation="demo"
            ).ask("One?")
            """
        )
        out = program(
            f"""
            import cllm
            manager = cllm.ConversationManager(store="{store}", conversation="demo")
            print(manager.system_prompt, manager.get_message_count(), manager.was_trimmed())
            manager.ask("Two?")
            """
        )

        assert out == "Be kind. 2 False\n"
        assert provider.requests[1].message_pairs == [
            ("system", "Be kind."),
            ("user", "One?"),
            ("assistant", "echo: One?"),
            ("user", "Two?"),
        ]

    def test_a_different_prompt_for_a_pinned_conversation_is_refused(
        self, provider, program, store
    ):
        out = program(
            f"""
            import cllm
            first = cllm.ConversationManager(
                system_prompt="Be kind.", store="{store}", conversation="demo"
            )
            first.ask("One?")
            try:
                cllm.ConversationManager(
                    system_prompt="Be loud.", store="{store}", conversation="demo"
                )
            except cllm.CllmError as error:
                print(error)
            first.system_prompt = "Be loud."
            try:
                first.ask("Two?")
            except cllm.CllmError as error:
                print(error)
            """
        )

        first, second = out.splitlines()
        assert first == second
        assert "create a branch" in first
        assert len(provider.requests) == 1

    def test_clear_starts_a_new_conversation_and_the_old_one_stays(self, provider, program, store):
        out = program(
            f"""
            import cllm
            manager = cllm.ConversationManager(
                system_prompt="Be kind.", store="{store}", conversation="demo"
            )
            manager.ask("My name is Alice.")
            manager.clear()
            print(manager.messages, manager.was_trimmed(), manager.conversation != "demo")
            manager.ask("What is my name?")
            store = cllm.open_store("{store}").blocking
            print(sorted(one.message_count for one in store.list_conversations().items))
            """
        )

        assert out.splitlines() == ["[] False True", "[2, 2]"]
        assert provider.requests[1].message_pairs == [
            ("system", "Be kind."),
            ("user", "What is my name?"),
        ]

    def test_a_window_strategy_replaces_max_turns(self, provider, program, store):
        for _ in range(12):
            provider.queue_reply("word " * 20, usage=None)
        out = program(
            f"""
            import cllm
            window = cllm.ByTokens(max_tokens=120, floor=40, block=40)
            manager = cllm.ConversationManager(store="{store}", window=window)
            trimmed = []
            for number in range(12):
                manager.ask(f"{{number}} " + "word " * 20)
                trimmed.append(manager.was_trimmed())
                again = cllm.ConversationManager(
                    store="{store}", conversation=manager.conversation, window=window
                )
                assert again.was_trimmed() == manager.was_trimmed(), number
                assert again.get_messages() == manager.get_messages(), number
            saved = cllm.open_store("{store}").blocking.load(manager.conversation)
            print(saved.message_count, manager.get_message_count() < 12, any(trimmed), all(trimmed))
            """
        )

        assert out == "24 True True False\n"

    def test_a_strategy_without_a_store_uses_a_store_in_memory(self, program):
        out = program(
            """
            import cllm
            manager = cllm.ConversationManager(window=cllm.ByTurns(max_turns=1))
            for number in range(3):
                manager.ask(f"question {number}")
            print(manager.get_messages()[0]["content"], manager.was_trimmed())
            """
        )

        assert out == "question 2 True\n"

    def test_closing_a_stream_early_saves_its_text_and_the_next_turn_works(
        self, provider, program, store
    ):
        provider.queue_reply("Once", " upon", " a time")

        out = program(
            f"""
            import cllm
            manager = cllm.ConversationManager(store="{store}", conversation="demo")
            for piece in manager.stream("Tell."):
                break
            print(manager.get_messages()[-1]["content"][:4], manager.get_turn_count())
            print(manager.ask("Go on."))
            states = [turn.state for turn in cllm.Conversation("demo", store="{store}").turns()]
            print(states)
            """
        )

        assert out.splitlines() == ["Once 1", "echo: Go on.", "['incomplete', 'complete']"]

    def test_tool_calls_and_their_results_are_in_the_window(self, provider, program, store):
        call = ToolCall(id="c1", name="clock", arguments="{}")
        provider.queue_reply(tool_calls=(call,), finish="tool_calls")
        provider.queue_reply("It is noon.")
        out = program(
            f"""
            import cllm, msgspec
            tools = [{{"type": "function", "function": {{"name": "clock", "parameters": {{
                "type": "object", "properties": {{}}}}}}}}]
            chat = cllm.Conversation(
                "demo", store="{store}", policy="pinned", system="Be kind.", tools=tools
            )
            answer = chat.ask("What time is it?")
            result = {{"role": "tool", "tool_call_id": "c1", "content": "12:00"}}
            print(answer.stop_reason)
            print(chat.ask(cllm.Message(role="tool", raw=msgspec.json.encode(result))))
            manager = cllm.ConversationManager(store="{store}", conversation="demo", max_turns=1)
            print([message["role"] for message in manager.get_messages()], manager.get_turn_count())
            manager.ask("Thanks.")
            print([message["role"] for message in manager.get_messages()], manager.was_trimmed())
            """
        )

        assert out.splitlines() == [
            "tool_calls",
            "It is noon.",
            "['user', 'assistant', 'tool', 'assistant'] 1",
            "['user', 'assistant'] True",
        ]


class TestPinnedPrompt:
    def test_the_pinned_prompt_and_its_source_are_in_the_metadata_of_the_file(self, program, home):
        program(
            """
            import cllm
            manager = cllm.ConversationManager(system_prompt="Be kind.", conversation="demo")
            manager.ask("One?")
            """
        )

        file = home.load("demo")
        assert [message["role"] for message in file["messages"]] == ["user", "assistant"]
        assert file["metadata"]["system"] == {
            "policy": "pinned",
            "source": "ConversationManager",
            "prompt": "Be kind.",
        }

    def test_the_command_line_sends_the_pinned_prompt_and_shows_its_source(
        self, provider, program, settings, cllm
    ):
        settings(default_system_message="Be configured.")
        program(
            """
            import cllm
            cllm.ConversationManager(system_prompt="Be kind.", conversation="demo").ask("One?")
            """
        )

        cllm("Two?", "--conversation", "demo").succeeded()
        shown = cllm("conversations", "show", "demo").succeeded().out

        assert provider.requests[1].message_pairs[0] == ("system", "Be kind.")
        assert (
            len([role for role, _ in provider.requests[1].message_pairs if role == "system"]) == 1
        )
        assert "System prompt: pinned, from ConversationManager" in shown
        assert "Be kind." in shown

    def test_a_different_prompt_on_the_command_line_is_refused(self, provider, program, cllm):
        program(
            """
            import cllm
            cllm.ConversationManager(system_prompt="Be kind.", conversation="demo").ask("One?")
            """
        )

        refused = cllm("Two?", "--conversation", "demo", "--system", "Be loud.")

        refused.failed_with_one_sentence("cllm conversations branch demo --system")
        assert len(provider.requests) == 1

    def test_exports_contain_the_pinned_prompt(self, program):
        out = program(
            """
            import cllm, json
            manager = cllm.ConversationManager(system_prompt="Be kind.", conversation="demo")
            manager.ask("One?")
            chat = cllm.Conversation("demo")
            print(json.dumps([json.loads(chat.export())["metadata"]["system"],
                              chat.export("markdown")]))
            """
        )

        record, markdown = json.loads(out)
        assert record["prompt"] == "Be kind."
        assert "Be kind." in markdown
        assert "ConversationManager" in markdown


class TestWhatIsGiven:
    def test_a_misspelt_keyword_sends_nothing(self, provider, program):
        out = program(
            """
            import cllm
            for act in (
                lambda: cllm.ask("hello", modle="openai/x"),
                lambda: cllm.ask("hello", temprature=1),
                lambda: cllm.ConversationManager(modle="openai/x").ask("hello"),
                lambda: cllm.Conversation("demo").ask("hello", modle="openai/x"),
            ):
                try:
                    act()
                except TypeError as error:
                    print(error)
            """
        )

        assert out.splitlines()[0] == (
            "ask() got an unexpected keyword argument 'modle'; put other parameters of a provider "
            "into parameters={...}."
        )
        assert len(out.splitlines()) == 4
        assert provider.requests == []

    def test_a_lone_surrogate_is_refused_and_the_manager_stays_usable(self, provider, program):
        provider.queue_reply("Fine.")

        out = program(
            """
            from cllm import ConversationManager
            manager = ConversationManager()
            try:
                manager.add_user_message("a" + chr(0xD800))
            except ValueError as error:
                print("surrogate" in str(error))
            print(manager.ask("hello"))
            """
        )

        assert out.splitlines() == ["True", "Fine."]

    def test_messages_that_a_program_adds_to_the_list_are_sent(self, provider, program):
        provider.queue_reply("Luna.")

        out = program(
            """
            from cllm import ConversationManager
            manager = ConversationManager(system_prompt="Be brief.")
            manager.messages = [{"role": "user", "content": "My cat is Luna."}]
            manager.messages.append({"role": "assistant", "content": "Noted."})
            manager.ask("What is my cat called?")
            print(manager.get_message_count(), manager.get_turn_count())
            """
        )

        assert out == "4 2\n"
        assert provider.requests[0].message_pairs == [
            ("system", "Be brief."),
            ("user", "My cat is Luna."),
            ("assistant", "Noted."),
            ("user", "What is my cat called?"),
        ]

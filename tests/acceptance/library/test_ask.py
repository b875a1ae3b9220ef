"""`ask`, `stream`, their asynchronous forms, and stores by URL, as a program uses them."""

import json

import pytest

from cllm.default_model import SMALL_MODELS


def test_ask_returns_the_answer_with_its_facts(provider, program):
    provider.queue_reply("Fine.")

    out = program(
        """
        import cllm
        answer = cllm.ask("How are you?", system="Be brief.", temperature=0)
        print(answer, answer.stop_reason, answer.model, answer.usage.total, answer.conversation)
        """
    )

    assert out == "Fine. end openai/gpt-test 18 None\n"
    assert provider.requests[0].message_pairs == [("system", "Be brief."), ("user", "How are you?")]
    assert provider.requests[0].json["temperature"] == 0


def test_stream_yields_pieces_and_then_has_the_answer(provider, program):
    provider.queue_reply("One", " two", " three")

    out = program(
        """
        import cllm
        stream = cllm.stream("Count.")
        print("|".join(stream), stream.answer.text)
        """
    )

    assert out == "One| two| three One two three\n"


def test_a_history_of_dictionaries_is_sent_unchanged_and_can_be_saved(provider, program, cllm):
    call = {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What time is it?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "12:30"},
    ]
    program(f"import cllm; cllm.ask({history!r})")
    program(f"import cllm; cllm.ask({history[1]!r}, conversation='clock')")

    assert provider.requests[0].messages == history
    assert provider.requests[1].messages == history[1:2]
    assert "What time is it?" in cllm("conversations", "show", "clock").succeeded().out


SYSTEM = {"role": "system", "content": "Be brief."}
DEVELOPER = {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}
HELLO = {"role": "user", "content": "Hello"}


@pytest.mark.parametrize("messages", [[SYSTEM, HELLO], [DEVELOPER, HELLO], [HELLO, SYSTEM, HELLO]])
def test_a_system_message_replaces_the_configured_prompt(provider, program, settings, messages):
    settings(default_system_message="Be kind.")

    program(f"import cllm; cllm.ask({messages!r})")

    assert [message["content"] for message in provider.requests[0].messages] == [
        message["content"] for message in messages
    ]


def test_a_list_with_only_a_system_message_is_sent(provider, program, settings):
    settings(default_system_message="Be kind.")

    program(f"import cllm; cllm.ask([{SYSTEM!r}])")

    assert provider.requests[0].messages == [SYSTEM]


@pytest.mark.parametrize("system", [SYSTEM, DEVELOPER])
def test_the_first_system_message_is_the_prompt_of_a_new_conversation(
    provider, program, settings, system
):
    settings(default_system_message="Be kind.")

    out = program(
        f"""
        import cllm
        cllm.ask([{system!r}, {HELLO!r}], conversation="cats")
        chat = cllm.Conversation("cats")
        print([message.role for message in chat.messages()], chat.load().system_record.source)
        print(cllm.ask([{system!r}, {HELLO!r}], conversation="cats").notices)
        """
    )

    assert out == "['user', 'assistant'] messages[0]\n()\n"
    for request in provider.requests:
        assert request.message_pairs[0] == ("system", "Be brief.")
        assert [role for role, _ in request.message_pairs].count("system") == 1


def test_another_system_message_in_a_conversation_is_refused_like_the_option(provider, program):
    out = program(
        f"""
        import cllm
        cllm.ask("Hello", conversation="cats", system="Be kind.")
        for call in (
            lambda: cllm.ask("Hello", conversation="cats", system="Be brief."),
            lambda: cllm.ask([{SYSTEM!r}, {HELLO!r}], conversation="cats"),
            lambda: cllm.Conversation("cats").ask([{SYSTEM!r}, {HELLO!r}]),
        ):
            try:
                call()
            except cllm.CllmError as error:
                print(type(error).__name__, error)
        """
    )

    first, *others = out.splitlines()
    assert first.startswith("UsageError Conversation 'cats' has a fixed system prompt; ")
    assert others == [first, first]
    assert len(provider.requests) == 1


def test_the_shell_shows_the_same_conversation(provider, program, cllm):
    provider.queue_reply("Hello Alice.")
    program('import cllm; cllm.ask("I am Alice.", conversation="demo")')

    cllm("Who am I?", "--conversation", "demo").succeeded()

    assert provider.requests[1].message_pairs[:2] == [
        ("user", "I am Alice."),
        ("assistant", "Hello Alice."),
    ]


def test_asynchronous_code_waits_on_its_own_loop(provider, program):
    provider.queue_reply("One.")
    provider.queue_reply("T", "wo.")

    out = program(
        """
        import asyncio, cllm
        async def main():
            answer = await cllm.aask("First?")
            pieces = [piece async for piece in cllm.astream("Second?")]
            print(answer, pieces)
        asyncio.run(main())
        """
    )

    assert out == "One. ['T', 'wo.']\n"


def test_the_synchronous_functions_work_inside_a_running_loop(provider, program):
    provider.queue_reply("Fine.")

    out = program(
        """
        import asyncio, cllm
        async def main():
            print(cllm.ask("Hello?"))
        asyncio.run(main())
        """
    )

    assert out == "Fine.\n"


def test_closing_a_stream_early_saves_the_partial_text(provider, program, cllm):
    gate = provider.queue_held_reply("Once", " upon a time", at=1)

    program(
        """
        import cllm
        stream = cllm.stream("Tell.", conversation="demo")
        print(next(iter(stream)))
        stream.close()
        """
    )

    gate.open()
    assert cllm.home.turn_states("demo") == ["incomplete"]
    assert cllm.home.messages("demo")[-1] == ("assistant", "Once")


def test_a_blank_message_is_refused_and_nothing_is_sent(provider, program):
    out = program(
        """
        import cllm
        for ask in (cllm.ask, cllm.stream, cllm.Conversation("demo").ask):
            try:
                ask("  ")
            except cllm.CllmError as error:
                print(error)
        """
    )

    assert out.splitlines() == ["A message must not be empty or blank."] * 3
    assert provider.requests == []


def test_a_store_is_opened_by_its_url(program, provider, cllm):
    cllm("Hello", "--conversation", "demo").succeeded()

    out = program(
        f"""
        import asyncio, cllm
        store = cllm.open_store("json:{cllm.home.conversations}")
        conversation = asyncio.run(store.load("demo"))
        print(isinstance(conversation, cllm.StoredConversation), conversation.message_count)
        """
    )

    assert out == "True 2\n"


@pytest.mark.parametrize("url", ["json:saved", "sqlite:saved.db", "memory:"])
def test_a_store_can_be_used_by_blocking_code_and_is_closed_once(program, url):
    out = program(
        f"""
        import cllm
        from cllm.core.ports import NewConversation
        with cllm.open_store("{url}").blocking as store:
            store.create(NewConversation(id="demo", title="Mine"))
            print([one.title for one in store.list_conversations().items], store.summary("demo").id)
            store.delete("demo")
            print(store.count_conversations())
        """
    )

    assert out.splitlines() == ["['Mine'] demo", "0"]


def test_an_invalid_store_url_error_shows_a_valid_one(program):
    err = program('import cllm; cllm.open_store("saved")', code=1)

    assert "sqlite:cats.db" in err


def test_the_public_names_are_those_in_all(program):
    out = program(
        """
        import json, cllm
        print(json.dumps([dir(cllm), all(hasattr(cllm, name) for name in cllm.__all__)]))
        """
    )

    names, there = json.loads(out)
    assert there
    assert {"ask", "stream", "aask", "astream", "ConversationManager", "open_store"} <= set(names)


def test_an_alias_works_as_a_model_and_the_conversation_stores_the_model(
    home, provider, settings, program
):
    settings(aliases={"fast": "openai/gpt-fast"})

    out = program(
        """
        import cllm
        print(cllm.ask("One.", model="fast").model)
        print(cllm.ask("Two.", model="fast", conversation="demo").model)
        chat = cllm.Conversation("other", model="fast")
        chat.create()
        print(chat.ask("Three.").model, chat.load().model, chat.turns()[0].model)
        print(cllm.ConversationManager(model="fast").ask("Four.").model)
        """
    )

    assert set(out.split()) == {"openai/gpt-fast"}
    assert {request.json["model"] for request in provider.requests} == {"gpt-fast"}
    assert (home.load("demo")["model"], home.load("other")["model"]) == ("openai/gpt-fast",) * 2


def test_the_first_answer_of_a_process_names_the_model_that_cllm_chose(home, provider, program):
    rows = {"openai": {"api_base": provider.url, "api_key": "sk-test-0123456789abcdef"}}
    (home.path / ".cllm/Cllmfile.yml").write_text(json.dumps({"providers": rows}), encoding="utf-8")
    source = """
        import cllm
        answers = [cllm.ask("One.", model="openai/x"), cllm.ask("Two."), cllm.ask("Three.")]
        print([[(n.code, n.path, n.message) for n in answer.notices] for answer in answers])
        """

    first, second = program(source), program(source)

    model = f"openai/{SMALL_MODELS['openai']}"
    start = f"[[], [('model_chosen', 'model', 'Using {model}: no model is configured, and the "
    assert first.startswith(start)
    assert "pass model=" in first
    assert first.endswith("], []]\n")
    assert first == second
    assert not (home.cache / "cllm/hint-shown").exists()

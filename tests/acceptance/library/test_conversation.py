"""`cllm.Conversation` as a program holds it: everything it can do, waiting and asynchronously."""

import json

import pytest

from cllm.stores.registry import SCHEMES

STORES = [name for name in ("json", "sqlite") if name in SCHEMES]


@pytest.fixture(params=STORES)
def store(request, home):
    """The URL of a store on disk."""
    path = home.work / ("saved" if request.param == "json" else "saved.db")
    return f"{request.param}:{path}"


def test_a_conversation_is_started_and_continued(provider, program, store):
    program(f'import cllm; cllm.Conversation("demo", store="{store}").ask("I am Alice.")')
    out = program(
        f"""
        import cllm
        chat = cllm.Conversation("demo", store="{store}", temperature=0)
        print(chat.exists(), chat.ask("Who am I?", max_tokens=5), chat.id)
        print([message.text for message in chat.messages()])
        """
    )

    assert out.splitlines() == [
        "True echo: Who am I? demo",
        "['I am Alice.', 'echo: I am Alice.', 'Who am I?', 'echo: Who am I?']",
    ]
    assert provider.requests[1].json["temperature"] == 0
    assert provider.requests[1].json["max_tokens"] == 5
    assert len(provider.requests[1].message_pairs) == 3


def test_a_conversation_without_an_id_gets_one_and_is_stored_with_the_first_message(program, home):
    out = program(
        """
        import cllm
        chat = cllm.Conversation()
        print(chat.exists(), chat.id.startswith("c-"))
        """
    )

    assert out == "False True\n"
    assert not home.conversations.exists()


def test_another_model_is_used_from_that_turn_on(provider, program, store):
    out = program(
        f"""
        import cllm
        cllm.Conversation("demo", store="{store}").ask("One")
        cllm.Conversation("demo", store="{store}", model="openai/gpt-other").ask("Two")
        chat = cllm.Conversation("demo", store="{store}")
        chat.ask("Three")
        print([turn.model for turn in chat.turns()])
        """
    )

    models = [request.json["model"] for request in provider.requests]
    assert models == ["gpt-test", "gpt-other", "gpt-other"]
    assert out == f"{[f'openai/{model}' for model in models]}\n"


def test_it_can_be_created_empty_once(provider, program, store):
    out = program(
        f"""
        import cllm
        chat = cllm.Conversation("demo", store="{store}", system="Be kind.")
        chat.create()
        print(chat.exists(), chat.messages())
        try:
            chat.create()
        except cllm.CllmError as error:
            print(type(error).__name__)
        cllm.Conversation("demo", store="{store}").ask("One?")
        """
    )

    assert out.splitlines() == ["True ()", "ConversationExistsError"]
    assert provider.requests[0].message_pairs[0] == ("system", "Be kind.")


def test_the_same_system_prompt_is_accepted_again(provider, program, store):
    source = f"""
        import cllm
        cllm.Conversation("demo", store="{store}", system="Be kind.").ask("One?")
    """
    program(source)
    program(source)

    assert [role for role, _ in provider.requests[1].message_pairs].count("system") == 1


def test_turns_usage_and_cost_add_up(provider, program, store, settings):
    prices = {"gpt-test": {"input": 1, "output": 2}}
    settings(providers={"openai": {"prices": prices}})
    out = program(
        f"""
        import cllm
        chat = cllm.Conversation("demo", store="{store}")
        chat.ask("One?")
        chat.ask("Two?")
        chat.regenerate()
        used = chat.usage()
        print(len(chat.turns()), used.calls, used.usage.input, used.usage.output, used.unpriced)
        print(round(used.cost * 1_000_000))
        """
    )

    assert out.splitlines() == ["2 3 33 21 0", "75"]


def test_regenerate_adds_a_variant_of_the_last_turn(provider, program, store):
    provider.queue_reply("First.")
    provider.queue_reply("Second.")
    out = program(
        f"""
        import cllm
        chat = cllm.Conversation("demo", store="{store}")
        chat.ask("Say something.")
        print(chat.regenerate(temperature=1), len(chat.turns()), len(chat.load().variants))
        print([message.text for message in chat.messages()])
        """
    )

    assert out.splitlines() == ["Second. 1 1", "['Say something.', 'Second.']"]
    assert provider.requests[1].message_pairs == [("user", "Say something.")]


def test_the_last_turn_can_be_undone_and_messages_deleted(provider, program, store):
    out = program(
        f"""
        import cllm
        chat = cllm.Conversation("demo", store="{store}")
        for number in range(3):
            chat.ask(f"{{number}}?")
        print([message.text for message in chat.undo()])
        chat.add("user", "by hand")
        chat.add("assistant", "answered by hand")
        print([message.text for message in chat.undo()])
        chat.delete_from(3)
        print([message.text for message in chat.messages()])
        chat.delete()
        print(chat.exists())
        try:
            chat.undo()
        except cllm.CllmError as error:
            print(type(error).__name__)
        """
    )

    assert out.splitlines() == [
        "['2?', 'echo: 2?']",
        "['by hand', 'answered by hand']",
        "['0?', 'echo: 0?']",
        "False",
        "ConversationNotFoundError",
    ]


def test_a_branch_is_independent(provider, program, store):
    out = program(
        f"""
        import cllm
        chat = cllm.Conversation("demo", store="{store}", system="Be kind.")
        chat.ask("0?")
        chat.ask("1?")
        branch = chat.branch("other", at=2, system="Be loud.")
        branch.ask("2?")
        print(branch.id, len(chat.messages()), len(branch.messages()))
        """
    )

    assert out == "other 4 4\n"
    assert provider.requests[2].message_pairs == [
        ("system", "Be loud."),
        ("user", "0?"),
        ("assistant", "echo: 0?"),
        ("user", "2?"),
    ]


def test_a_pinned_message_stays_in_the_window_until_it_is_unpinned(provider, program, store):
    program(
        f"""
        import cllm
        chat = cllm.Conversation("demo", store="{store}", window=cllm.ByTurns(max_turns=1))
        chat.ask("My name is Alice.")
        assert chat.pin(1) == (1,)
        for number in range(3):
            chat.ask(f"{{number}}?")
        assert chat.unpin(1) == ()
        chat.ask("Last?")
        """
    )

    assert ("user", "My name is Alice.") in provider.requests[3].message_pairs
    assert ("user", "0?") not in provider.requests[3].message_pairs
    assert ("user", "My name is Alice.") not in provider.requests[4].message_pairs


def test_old_turns_are_summarised_and_the_summary_is_undone(provider, program, store):
    for text in ("One.", "Two.", "They counted.", "Three.", "Four."):
        provider.queue_reply(text)

    out = program(
        f"""
        import cllm
        chat = cllm.Conversation("demo", store="{store}", window=cllm.Summarise())
        chat.ask("1?")
        chat.ask("2?")
        print(chat.compact().text, len(chat.messages()), chat.usage().calls)
        chat.ask("3?")
        print(chat.undo_compact().text, chat.load().summary)
        chat.ask("4?")
        """
    )

    assert out.splitlines() == ["They counted. 4 3", "They counted. None"]
    summarised = [text for _, text in provider.requests[3].message_pairs]
    assert "1?" not in summarised
    assert any("They counted." in text for text in summarised)
    assert "1?" in [text for _, text in provider.requests[4].message_pairs]


def test_search_finds_words(provider, program, store):
    out = program(
        f"""
        import cllm
        chat = cllm.Conversation("demo", store="{store}")
        chat.ask("Where is the lighthouse?")
        chat.ask("And the harbour?")
        found = chat.search("LIGHTHOUSE")
        print(found.total, [(hit.sequence, hit.role) for hit in found.items])
        print(cllm.open_store("{store}").blocking.search("harbour").total)
        """
    )

    assert out.splitlines() == ["2 [(2, 'assistant'), (1, 'user')]", "2"]


def test_an_export_is_imported_completely(provider, program, store):
    out = program(
        f"""
        import cllm, json
        chat = cllm.Conversation("demo", store="{store}", system="Be kind.")
        chat.ask("0?")
        chat.regenerate()
        chat.ask("1?")
        chat.pin(1)
        chat.retitle("Numbers")
        copy = cllm.Conversation("copy", store="{store}")
        copy.import_json(chat.export())
        a, b = chat.load(), copy.load()
        for name in ("turns", "variants", "pins", "title", "system", "system_record", "model"):
            assert getattr(a, name) == getattr(b, name), name
        try:
            copy.import_json(chat.export())
        except cllm.CllmError as error:
            print(type(error).__name__)
        try:
            cllm.Conversation("bad", store="{store}").import_json("[]")
        except cllm.CllmError as error:
            print(type(error).__name__, cllm.Conversation("bad", store="{store}").exists())
        print(json.dumps(chat.export("markdown")))
        """
    )

    exists, broken, markdown = out.splitlines()
    assert exists == "ConversationExistsError"
    assert broken == "BrokenConversationError False"
    assert "Be kind." in json.loads(markdown)
    assert "# Numbers" in json.loads(markdown)


def test_every_operation_has_an_asynchronous_form(provider, program, store):
    provider.queue_reply("One.")
    provider.queue_reply("T", "wo.")
    out = program(
        f"""
        import asyncio, cllm
        async def main():
            chat = cllm.Conversation("demo", store="{store}")
            print(await chat.aexists(), await chat.aask("1?"))
            stream = chat.astream("2?")
            print([piece async for piece in stream], stream.answer.text)
            await chat.apin(1)
            print(len(await chat.amessages()), len(await chat.aturns()))
            print((await chat.ausage()).calls)
            branch = await chat.abranch("other", at=2)
            await branch.aundo()
            print(await branch.amessages(), (await chat.asearch("two")).total)
            print((await chat.aload()).pins, (await chat.aexport("markdown"))[:1])
            async with cllm.open_store("{store}") as store:
                print(await store.count_conversations())
        asyncio.run(main())
        """
    )

    assert out.splitlines() == [
        "False One.",
        "['T', 'wo.'] Two.",
        "4 2",
        "2",
        "() 1",
        "(1,) #",
        "2",
    ]


def test_each_blocking_method_has_an_asynchronous_twin():
    import inspect  # noqa: PLC0415

    from cllm import Conversation  # noqa: PLC0415

    names = [name for name in vars(Conversation) if hasattr(Conversation, f"a{name}")]

    assert len(names) >= 20
    for name in names:
        waiting, twin = getattr(Conversation, name), getattr(Conversation, f"a{name}")
        parameters = inspect.signature(waiting).parameters
        assert parameters == inspect.signature(twin).parameters, name
        assert waiting.__doc__, name
        assert (waiting.__name__, twin.__name__) == (name, f"a{name}")


def test_a_title_is_trimmed_and_has_a_limit(program, store):
    out = program(
        f"""
        import cllm
        chat = cllm.Conversation("demo", store="{store}")
        chat.create()
        for title in (" Cats ", " "):
            chat.retitle(title)
            print(chat.load().title)
        try:
            chat.retitle("t" * 201)
        except ValueError as error:
            print(error)
        """
    )

    assert out.splitlines() == [
        "Cats",
        "None",
        "The title has 201 characters; use at most 200.",
    ]


def test_the_default_stores_are_one_history(program, home, cllm):
    """The conversation is in the default database of the server."""
    store = f"sqlite:{home.path}/.cllm/cllm.db"
    cllm("Hello", "--conversation", "dogs", "--store", store).succeeded()

    printed = program("import cllm; print(len(cllm.Conversation('dogs').turns()))")

    assert printed == "1\n"

"""The library as a program uses it: a script of its own, against the fake provider."""

import json
import subprocess
import sys
import textwrap

import pytest


@pytest.fixture
def program(home, cllm, settings):
    """Runs a Python program; what it prints."""

    def program(source: str, *, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(source)],
            cwd=home.work,
            env=cllm.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    return program


def test_ask_gives_the_answer_and_what_there_is_to_know(provider, program):
    provider.say("Fine.")

    out = program(
        """
        import cllm
        answer = cllm.ask("How are you?", system="Be brief.", temperature=0)
        print(answer, answer.stop_reason, answer.model, answer.usage.total, answer.conversation)
        """
    )

    assert out == "Fine. end openai/gpt-test 18 None\n"
    assert provider.requests[0].said == [("system", "Be brief."), ("user", "How are you?")]
    assert provider.requests[0].json["temperature"] == 0


def test_stream_gives_the_pieces_and_then_the_answer(provider, program):
    provider.say("One", " two", " three")

    out = program(
        """
        import cllm
        stream = cllm.stream("Count.")
        print("|".join(stream), stream.answer.text)
        """
    )

    assert out == "One| two| three One two three\n"


def test_a_conversation_is_the_one_that_the_shell_sees(provider, program, cllm):
    provider.say("Hello Alice.")
    program('import cllm; cllm.ask("I am Alice.", conversation="demo")')

    cllm("Who am I?", "--conversation", "demo").succeeded()

    assert provider.requests[1].said[:2] == [
        ("user", "I am Alice."),
        ("assistant", "Hello Alice."),
    ]


def test_asynchronous_code_waits_on_its_own_loop(provider, program):
    provider.say("One.")
    provider.say("T", "wo.")

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
    provider.say("Fine.")

    out = program(
        """
        import asyncio, cllm
        async def main():
            print(cllm.ask("Hello?"))
        asyncio.run(main())
        """
    )

    assert out == "Fine.\n"


def test_leaving_a_stream_early_keeps_what_was_said(provider, program, cllm):
    gate = provider.say_held("Once", " upon a time", at=1)

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


def test_a_manager_sends_its_prompt_and_its_window(provider, program):
    for number in range(4):
        provider.say(f"Answer {number}.")

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
    assert provider.requests[3].said == [
        ("system", "Be brief."),
        ("user", "Question 1?"),
        ("assistant", "Answer 1."),
        ("user", "Question 2?"),
        ("assistant", "Answer 2."),
        ("user", "Question 3?"),
    ]


def test_a_failed_question_leaves_a_manager_as_it_was(provider, program):
    provider.fail(500)
    provider.say("Fine.")

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


def test_a_store_is_opened_by_its_url(program, provider, cllm):
    cllm("Hello", "--conversation", "demo").succeeded()

    out = program(
        f"""
        import asyncio, cllm
        store = cllm.open_store("json:{cllm.home.conversations}")
        conversation = asyncio.run(store.load("demo"))
        print(isinstance(conversation, cllm.Conversation), conversation.message_count)
        """
    )

    assert out == "True 2\n"


def test_what_is_public_is_what_all_says(program):
    out = program(
        """
        import json, cllm
        print(json.dumps([dir(cllm), all(hasattr(cllm, name) for name in cllm.__all__)]))
        """
    )

    names, there = json.loads(out)
    assert there
    assert {"ask", "stream", "aask", "astream", "ConversationManager", "open_store"} <= set(names)

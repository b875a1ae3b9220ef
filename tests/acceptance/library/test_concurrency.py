"""Threads, event loops, forks, interrupts: what of them is supported, in real processes."""

import signal
import sys
import threading

import pytest

UNIX_ONLY = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")


def test_many_threads_can_ask_concurrently(provider, program):
    out = program(
        """
        import cllm
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda n: cllm.ask(f"{n}").text, range(24)))
        print(answers == [f"echo: {n}" for n in range(24)])
        """
    )

    assert out == "True\n"


def test_threads_that_share_a_conversation_take_turns(provider, program):
    out = program(
        """
        import cllm
        from concurrent.futures import ThreadPoolExecutor
        chat = cllm.Conversation("demo")
        def talk(n):
            return "".join(chat.stream(f"{n}")) if n % 2 else chat.ask(f"{n}").text
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(talk, range(8)))
        text = [message.text for message in chat.messages()]
        print(answers == [f"echo: {n}" for n in range(8)], len(text))
        print(all(answer == f"echo: {question}" for question, answer in zip(text[::2], text[1::2])))
        """
    )

    assert out.splitlines() == ["True 16", "True"]


def test_a_stream_in_another_thread_is_not_interrupted(provider, program):
    provider.queue_reply("One", " two", " three")

    out = program(
        """
        import cllm, threading
        chat = cllm.Conversation("demo")
        stream = chat.stream("Count.")
        first = next(stream)
        answers = []
        other = threading.Thread(target=lambda: answers.append(chat.ask("And?").text))
        other.start()
        other.join(0.5)
        waits = other.is_alive()
        rest = "".join(stream)
        other.join()
        print(waits, first + rest, answers)
        """
    )

    assert out == "True One two three ['echo: And?']\n"


def test_several_event_loops_in_sequence_and_in_parallel(provider, program):
    out = program(
        """
        import asyncio, cllm, threading
        chat = cllm.Conversation("demo")
        async def main(n):
            return (await chat.aask(f"{n}")).text
        print(asyncio.run(main(0)), asyncio.run(main(1)))
        answers = []
        threads = [
            threading.Thread(target=lambda n=n: answers.append(asyncio.run(main(n))))
            for n in range(2, 5)
        ]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(sorted(answers), chat.ask("5"), len(chat.turns()))
        """
    )

    assert out.splitlines() == [
        "echo: 0 echo: 1",
        "['echo: 2', 'echo: 3', 'echo: 4'] echo: 5 6",
    ]


def test_tasks_of_one_loop_can_ask_concurrently(provider, program):
    out = program(
        """
        import asyncio, cllm
        async def main():
            answers = await asyncio.gather(*(cllm.aask(f"{n}") for n in range(10)))
            print([answer.text for answer in answers] == [f"echo: {n}" for n in range(10)])
        asyncio.run(main())
        """
    )

    assert out == "True\n"


def test_a_cancelled_task_saves_the_partial_text_before_it_ends(provider, program, cllm):
    gate = provider.queue_held_reply("Once", " upon a time", at=1)

    out = program(
        """
        import asyncio, cllm
        chat = cllm.Conversation("demo")
        heard = []
        async def listen():
            async for piece in chat.astream("Tell."):
                heard.append(piece)
        async def main():
            task = asyncio.create_task(listen())
            while not heard:
                await asyncio.sleep(0.01)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                print([(turn.state, turn.messages[-1].text) for turn in await chat.aturns()])
            print(await chat.aask("Go on."))
        asyncio.run(main())
        """
    )

    gate.open()
    assert out.splitlines() == ["[('incomplete', 'Once')]", "echo: Go on."]


@pytest.mark.parametrize("leave", ["break", "raise ValueError('enough')"])
def test_an_unfinished_stream_does_not_block_the_next_turn(provider, program, leave):
    provider.queue_reply("One", " two", " three")

    out = program(
        f"""
        import cllm
        stream = cllm.stream("Count.", conversation="demo")
        try:
            for piece in stream:
                {leave}
        except ValueError:
            pass
        print(cllm.ask("And?", conversation="demo"))
        print(list(stream), [turn.state for turn in cllm.Conversation("demo").turns()])
        """
    )

    assert out.splitlines() == ["echo: And?", "[] ['incomplete', 'complete']"]


@pytest.mark.parametrize("manager", ["store='memory:'", ""])
@pytest.mark.parametrize("after", ["ask('And?')", "add_user_message('And?')"])
def test_a_manager_continues_after_an_unfinished_stream(provider, program, manager, after):
    provider.queue_reply("One", " two", " three")

    out = program(
        f"""
        import cllm
        manager = cllm.ConversationManager({manager})
        stream = manager.stream("Count.")
        next(stream)
        manager.{after}
        print([message["content"] for message in manager.get_messages()][:3])
        print(list(stream), manager.get_messages()[2]["content"])
        """
    )

    assert out.splitlines() == ["['Count.', 'One', 'And?']", "[] And?"]


def test_a_with_block_closes_a_stream(provider, program, cllm):
    gate = provider.queue_held_reply("One", " two", at=1)

    program(
        """
        import cllm
        with cllm.stream("Count.", conversation="demo") as stream:
            next(stream)
        """
    )

    gate.open()
    assert cllm.home.turn_states("demo") == ["incomplete"]


@pytest.mark.parametrize("store", ["json:saved", "sqlite:saved.db"])
def test_a_program_that_exits_during_a_stream_saves_the_partial_text(provider, program, store):
    gate = provider.queue_held_reply("One", " two", at=1)
    program(
        f"""
        import cllm
        stream = cllm.Conversation("demo", store="{store}").stream("Count.")
        next(stream)
        """
    )
    gate.open()

    out = program(
        f"""
        import cllm
        for turn in cllm.Conversation("demo", store="{store}").turns():
            print(turn.state, turn.messages[-1].text)
        """
    )

    assert out == "incomplete One\n"


@pytest.mark.parametrize("manager", ["store='memory:'", ""])
def test_ctrl_c_leaves_a_manager_usable(provider, start_program, manager):
    provider.queue_held_reply("Once", " upon", at=1)

    process = start_program(
        f"""
        import cllm
        manager = cllm.ConversationManager({manager})
        try:
            for piece in manager.stream("Tell."):
                print(piece, flush=True)
        except KeyboardInterrupt:
            print(manager.get_messages()[-1], flush=True)
        print(manager.ask("Go on."))
        """
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "Once\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (0, "")
    assert out.splitlines() == ["{'role': 'assistant', 'content': 'Once'}", "echo: Go on."]


def test_ctrl_c_during_ask_cancels_the_request(provider, start_program):
    provider.queue_held_reply("Once", at=0)

    process = start_program(
        """
        import cllm
        try:
            cllm.ask("Tell.", conversation="demo")
        except KeyboardInterrupt:
            print([turn.state for turn in cllm.Conversation("demo").turns()])
        """
    )
    request = provider.wait_for(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, out, err) == (0, "['failed']\n", "")
    request.wait_disconnected()


@UNIX_ONLY
@pytest.mark.parametrize("store", ["json:saved", "sqlite:saved.db"])
def test_a_forked_process_has_its_own_loop_and_stores(provider, program, store):
    out = program(
        f"""
        import cllm, os, sys
        store = cllm.open_store("{store}")
        chat = cllm.Conversation("parent", store=store)
        print(chat.ask("Before."), flush=True)
        child = os.fork()
        if child == 0:
            print(cllm.Conversation("child", store=store).ask("In the child."), flush=True)
            sys.exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(chat.ask("After."), store.blocking.count_conversations())
        """
    )

    assert out.splitlines() == ["echo: Before.", "echo: In the child.", "0", "echo: After. 2"]


@UNIX_ONLY
def test_a_stream_of_the_parent_is_an_error_in_a_forked_process_and_does_not_block_its_end(
    provider, program
):
    out = program(
        """
        import cllm, os, sys
        stream = cllm.stream("Hello.", conversation="parent")
        print(next(stream), flush=True)
        child = os.fork()
        if child == 0:
            try:
                next(stream)
            except cllm.CllmError as error:
                print(error, flush=True)
            sys.exit(0)
        child = os.waitpid(child, 0), os.fork()
        if child[1] == 0:
            del stream
            sys.exit(0)
        print(os.waitpid(child[1], 0)[1], *stream)
        """
    )

    assert out.splitlines() == [
        "echo: ",
        "This stream belongs to the parent process; start another one in this process.",
        "0 Hello.",
    ]


@UNIX_ONLY
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_of_processes_can_ask(provider, program, home, method):
    source = "import cllm\n\ndef ask(n):\n    return cllm.ask(f'{n}').text\n"
    (home.work / "asking.py").write_text(source, encoding="utf-8")

    out = program(
        f"""
        import asking, multiprocessing
        asking.ask("Before.")
        with multiprocessing.get_context("{method}").Pool(2) as pool:
            print(pool.map(asking.ask, range(4)))
        """
    )

    assert out == "['echo: 0', 'echo: 1', 'echo: 2', 'echo: 3']\n"


@pytest.mark.parametrize("manager", ["", "store='sqlite:saved.db', conversation='demo'"])
def test_the_rest_of_a_stream_is_not_added_after_clear(provider, program, manager):
    provider.queue_reply("One", " two", " three")

    out = program(
        f"""
        import cllm
        manager = cllm.ConversationManager({manager})
        stream = manager.stream("Count.")
        next(stream)
        manager.clear()
        manager.add_user_message("Something else.")
        print([message["content"] for message in manager.get_messages()])
        print(manager.get_turn_count(), manager.was_trimmed())
        """
    )

    assert out.splitlines() == ["['Something else.']", "0 False"]


def test_no_thread_is_left_at_the_end(provider, program):
    out = program(
        """
        import atexit, threading
        def left():
            print([thread.name for thread in threading.enumerate()])
        atexit.register(left)
        import cllm
        cllm.ask("Hello.", conversation="demo")
        """
    )

    assert out == "['MainThread']\n"


def test_a_thread_can_use_it_first_after_the_main_thread_has_ended(cllm, provider, program):
    provider.queue_reply("Hello.")

    out = program(
        """
        import threading, cllm
        def ask():
            threading.main_thread().join()
            print(cllm.ask("Hello?", conversation="demo"))
        threading.Thread(target=ask).start()
        """
    )

    assert out == "Hello.\n"
    assert cllm.home.messages("demo") == [("user", "Hello?"), ("assistant", "Hello.")]


@pytest.mark.parametrize("call", ["cllm.ask(text)", "''.join(cllm.stream(text))"])
def test_the_calls_of_threads_are_completed_when_the_main_thread_ends(provider, program, call):
    provider.queue_reply("Hello.")
    gates = [provider.queue_held_reply("One", " two") for _ in range(2)]

    def open_gates() -> None:
        for gate in gates:
            gate.wait_reached()
            gate.open()

    opener = threading.Thread(target=open_gates)
    opener.start()
    out = program(
        f"""
        import threading, cllm
        cllm.ask("Hello?")
        def ask():
            for text in ("Count.", "Again."):
                print({call})
        threading.Thread(target=ask).start()
        """
    )

    opener.join()
    assert out == "One two\n" * 2


def test_ctrl_c_ends_the_wait_for_the_calls_of_threads(cllm, provider, start_program):
    provider.queue_reply("Hello.")
    provider.queue_held_reply("Once", at=0)

    process = start_program(
        """
        import asyncio, threading, time, cllm
        from cllm.library.loop import OUTLIVING_CALLS
        cllm.ask("Hello?")
        def ask():
            try:
                cllm.ask("Tell.", conversation="demo")
            except asyncio.CancelledError:
                print("cancelled", flush=True)
        def report_end():
            while not getattr(threading, "_SHUTTING_DOWN", True):
                time.sleep(0.001)
            print("ended", flush=True)
        threading.Thread(target=ask).start()
        threading.Thread(target=report_end, daemon=True).start()
        while not OUTLIVING_CALLS:
            time.sleep(0.001)
        """
    )
    assert process.stdout is not None
    provider.wait_for(2)
    assert process.stdout.readline() == "ended\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, out, err) == (0, "cancelled\n", "")
    assert cllm.home.turn_states("demo") == ["failed"]


def test_a_blocking_call_on_cllms_own_loop_is_refused(provider, program):
    out = program(
        """
        import cllm
        from cllm.library.loop import background
        async def inside():
            return cllm.ask("Hello?")
        try:
            background().run(inside())
        except cllm.CllmError as error:
            print(error)
        """
    )

    assert "aask" in out

"""On a machine with nothing configured, the local model answers, and remembers."""

import contextlib
import signal
from pathlib import Path

import pytest
from tests.terminal_picture import run_on_terminal

DEMO = Path(__file__).parents[2] / "examples" / "demo.sh"


@pytest.fixture
def fetched(home, local_model):
    """The real model, where a first use would have put it."""
    models = home.cache / "cllm/models"
    models.mkdir(parents=True)
    (models / "smollm2-135m.gguf").symlink_to(local_model)


@pytest.mark.usefixtures("fetched")
def test_a_conversation_with_nothing_configured(home, cllm):
    first = cllm("My cat is called Luna.", "--conversation", "demo").succeeded()
    second = cllm("What is my cat called?", "--conversation", "demo").succeeded()

    assert first.out.strip()
    assert "Luna" in second.out
    assert [role for role, _ in home.messages("demo")] == ["user", "assistant"] * 2
    assert home.messages("demo")[3] == ("assistant", second.out.removesuffix("\n"))
    assert home.load("demo")["model"] == "local/smollm2-135m"
    assert home.load("demo")["metadata"]["total_tokens"] > 0
    assert home.turn_states("demo") == ["complete", "complete"]


@pytest.mark.usefixtures("fetched")
def test_the_hint_at_a_larger_model_appears_once(cllm):
    first = cllm("Hello", "--max-tokens", "5").succeeded()
    second = cllm("Hello", "--max-tokens", "5").succeeded()

    assert first.err.count("CLLM_MODEL") == 1, first.report()
    assert "CLLM_MODEL" not in second.err


@pytest.mark.usefixtures("fetched")
def test_the_local_model_by_its_name_needs_no_hint(cllm):
    result = cllm("Hello", "--max-tokens", "5", "-m", "local/smollm2-135m").succeeded()

    assert result.out.strip()
    assert "CLLM_MODEL" not in result.err


@pytest.mark.usefixtures("fetched")
def test_on_a_terminal_the_answer_of_the_small_model_is_labelled(cllm):
    arguments = ("Hello", "--max-tokens", "5", "-m", "local/smollm2-135m")
    on_terminal = cllm.start(*arguments, terminal=True).finish()
    in_pipes = cllm(*arguments).succeeded()

    assert on_terminal.out.startswith("local/smollm2-135m, a very small model"), on_terminal
    assert "very small" not in in_pipes.out + in_pipes.err


@pytest.mark.usefixtures("fetched")
def test_the_demo_is_a_conversation_in_ten_lines_of_a_terminal(home):
    output = run_on_terminal(f"sh {DEMO}", home.path, cache=home.cache)

    conversation, advice = output.split("\n\n")
    lines = conversation.splitlines()
    assert len(lines) == 9, "the first run has another line: it downloads the model"
    assert "$ cllm 'And of Italy?' --conversation demo" in lines[3]
    assert "Rome" in lines[5]
    assert "Rome" in lines[8]
    assert "Try next:" in advice


def test_the_small_model_refuses_allow_commands_before_it_is_downloaded(home, cllm):
    before = home.snapshot()

    result = cllm("How many files are here?", "--allow-commands", "--conversation", "demo")

    result.failed_with_one_sentence("local/smollm2-135m", "too small", "-m openai/gpt-4o")
    assert home.snapshot() == before


@pytest.mark.usefixtures("fetched")
def test_a_turn_of_the_local_model_costs_nothing(home, cllm):
    cllm("Hello", "--max-tokens", "5", "--conversation", "demo").succeeded()
    stats = cllm("conversations", "stats", "demo").succeeded()

    assert "cost             $0\n" in stats.out
    assert home.load("demo")["metadata"]["cllm"]["turns"][0]["cost"] == 0


def test_the_local_model_by_the_path_of_a_file(home, cllm, local_model):
    result = cllm("Hello", "--max-tokens", "5", "-m", f"local/{local_model}").succeeded()

    assert result.out.strip()


def test_a_file_that_is_not_a_model(home, cllm):
    (home.work / "notes.gguf").write_text("Dear diary", encoding="utf-8")
    before = home.snapshot()

    result = cllm("Hello", "--conversation", "demo", "-m", "local/./notes.gguf")

    result.failed_with_one_sentence("notes.gguf")
    assert home.snapshot() == before


@pytest.mark.usefixtures("fetched")
def test_ctrl_c_stops_the_local_model_and_saves_the_partial_text(home, cllm, until):
    running = cllm.start("Count from one to one thousand.", "--conversation", "demo")
    assert until(lambda: len(running.out.split()) > 3 or running.process.poll() is not None)
    children = children_of(running.process.pid)

    running.process.send_signal(2)
    result = running.finish()

    assert result.code == 130, result.report()
    assert children, "the model did not run in a process of its own"
    assert until(lambda: not any(is_running(child) for child in children))
    assert home.turn_states("demo") == ["incomplete"]
    kept = home.messages("demo")[1][1]
    assert kept.strip()
    assert result.out.startswith(kept.strip()[:20])


def children_of(pid: int) -> list[int]:
    """The processes below this one, which outlive it only if something went wrong."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        return state != "Z"
    return False


@pytest.mark.usefixtures("fetched")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_question_is_saved_before_the_local_model_is_loaded(number, home, cllm, until):
    running = cllm.start("Tell me a story.", "--conversation", "demo")
    until((home.conversations / "demo.json").exists)
    running.signal(number)
    running.finish()

    shown = cllm("conversations", "show", "demo").succeeded().out

    assert "1 [user] (failed)" in shown
    assert "Tell me a story." in shown

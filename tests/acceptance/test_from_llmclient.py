"""Every command and the Python code for users of the original cllm, `LLMClient`, runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fake_provider import WAIT

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "from-llmclient.md"
TEXT = PAGE.read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(cllm .*?)` \| `(cllm [^`]*)`.*\|$", re.MULTILINE)
COMMANDS = sorted({row[2] for row in ROW.finditer(TEXT)})
(PROGRAM,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def openai(home, settings, provider):
    """Settings that send requests for OpenAI to the fake provider."""
    settings(
        model="openai/gpt-test",
        api_base=...,
        api_key=...,
        providers={"openai": {"api_base": provider.url, "api_key": "sk-test-0123456789abcdef"}},
    )
    named = home.path / ".cllm" / "summarize.Cllmfile.yml"
    named.write_text("temperature: 0.1\n", encoding="utf-8")
    provider.serve_models("gpt-4")


def test_every_row_of_the_table_of_commands_is_found():
    rows = [line for line in TEXT.splitlines() if line.startswith("| `cllm ")]
    assert len(list(ROW.finditer(TEXT))) == len(rows) > 15


@pytest.mark.usefixtures("openai")
@pytest.mark.parametrize("line", COMMANDS)
def test_the_command_runs(line, home, cllm):
    home.write_old_conversation("cats", ("user", "Hello."), ("assistant", "Hello!"))
    done = cllm.run_line(line)
    done.succeeded()
    assert done.out.strip() or done.err.strip()
    assert "Traceback" not in done.err


@pytest.mark.usefixtures("openai")
def test_the_old_flag_names_the_new_one(cllm):
    (printed,) = re.findall(r"^\$ cllm (-c .*)\n(Error: .*)$", TEXT, re.MULTILINE)
    done = cllm.run_line(f"cllm {printed[0]}")
    assert (done.code, done.err.strip()) == (2, printed[1])


@pytest.mark.usefixtures("openai")
def test_the_python_code_runs(home, provider):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=home.work,
        env=home.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT,
    )

    assert (done.returncode, done.stderr) == (0, "")
    history, first, second = provider.requests[2:5]
    assert [role for role, _ in history.message_pairs] == ["system", "user", "assistant", "user"]
    assert first.message_pairs == [("system", "You are a vet."), ("user", "My cat is called Luna.")]
    assert len(second.messages) == 4
    assert provider.requests[-1].json["response_format"]["json_schema"]["name"] == "person"


def test_the_old_class_does_not_exist():
    with pytest.raises(ImportError):
        exec("from cllm import LLMClient")  # noqa: S102

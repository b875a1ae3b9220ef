"""Measures the start-up time of the command, compared with an empty Python program and with `llm`.

Run it with `make bench-startup`, which installs `llm` in a separate environment.
"""

import argparse
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

from loopback import run_provider
from measurement import Limits, interleave, print_table, run_command

VERSION_LIMIT = 4
LIST_LIMIT = 10
TURN_LIMIT = 0.2


def prepare_home(home: Path, url: str) -> None:
    """Write settings for both tools and a few conversations."""
    (home / ".cllm" / "conversations").mkdir(parents=True)
    (home / ".cllm" / "Cllmfile.yml").write_text(
        f"model: openai/gpt-test\napi_base: {url}\napi_key: test\n", encoding="utf-8"
    )
    (home / "llm").mkdir()
    (home / "llm" / "extra-openai-models.yaml").write_text(
        f"- model_id: fake\n  model_name: gpt-test\n  api_base: {url}\n", encoding="utf-8"
    )
    for number in range(20):
        (home / ".cllm" / "conversations" / f"old-{number}.json").write_text(
            f'{{"id": "old-{number}", "model": "openai/gpt-test", "messages": ['
            '{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],'
            '"created_at": "2025-10-31T12:00:00Z", "updated_at": "2025-10-31T12:00:00Z",'
            '"metadata": {}}',
            encoding="utf-8",
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llm", help="the `llm` command to compare with")
    parser.add_argument("--rounds", type=int, default=15, help="measured rounds")
    options = parser.parse_args()
    python = sys.executable
    cllm = str(Path(python).with_name("cllm"))
    with tempfile.TemporaryDirectory() as folder, run_provider() as url:
        home = Path(folder)
        prepare_home(home, url)
        environment = {
            "HOME": folder,
            "PATH": os.environ["PATH"],
            "LLM_USER_PATH": str(home / "llm"),
            "OPENAI_API_KEY": "test",
        }
        completion = environment | {
            "_CLLM_COMPLETE": "bash_complete",
            "COMP_WORDS": "cllm --show-conversation old",
            "COMP_CWORD": "2",
        }
        question = "What is the capital of France?"
        runs = {
            "python -c pass": ([python, "-c", "pass"], environment),
            "python -c 'import aiohttp'": ([python, "-c", "import aiohttp"], environment),
            "cllm --version": ([cllm, "--version"], environment),
            "cllm --list-conversations": ([cllm, "--list-conversations"], environment),
            "shell completion of a conversation ID": ([cllm], completion),
            "cllm turn": ([cllm, question, "--conversation", "bench"], environment),
        }
        if options.llm:
            runs["llm turn"] = ([options.llm, "-m", "fake", question], environment)
        samples = interleave(
            {name: partial(run_command, *run, folder) for name, run in runs.items()},
            rounds=options.rounds,
        )
    print_table(samples, baseline="python -c pass")
    python_pass = samples["python -c pass"]
    limits = Limits()
    for name, limit in (
        ("cllm --version", VERSION_LIMIT),
        ("cllm --list-conversations", LIST_LIMIT),
        ("shell completion of a conversation ID", LIST_LIMIT),
    ):
        limits.check(
            f"{name} / python -c pass, CPU time", samples[name].cpu / python_pass.cpu, limit
        )
        limits.check(
            f"{name} / python -c pass, wall time", samples[name].wall / python_pass.wall, limit
        )
    if options.llm:
        cllm_turn, llm_turn = samples["cllm turn"], samples["llm turn"]
        limits.check("cllm turn / llm turn, CPU time", cllm_turn.cpu / llm_turn.cpu, TURN_LIMIT)
        limits.check("cllm turn / llm turn, wall time", cllm_turn.wall / llm_turn.wall, TURN_LIMIT)
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())

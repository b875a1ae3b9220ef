"""How quickly the command starts, beside an empty Python and beside `llm`.

Run it with `make bench-startup`, which installs the peer in an environment of its own.
"""

import argparse
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

from loopback import provider
from measure import Targets, interleave, print_table, run_command

VERSION_LIMIT = 4
LIST_LIMIT = 10
TURN_LIMIT = 0.2


def prepare_home(home: Path, url: str) -> None:
    """A HOME with settings for both tools and a few conversations."""
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
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    python = sys.executable
    cllm = str(Path(python).with_name("cllm"))
    with tempfile.TemporaryDirectory() as folder, provider() as url:
        home = Path(folder)
        prepare_home(home, url)
        environment = {
            "HOME": folder,
            "PATH": os.environ["PATH"],
            "LLM_USER_PATH": str(home / "llm"),
            "OPENAI_API_KEY": "test",
        }
        completing = environment | {
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
            "completion of an id": ([cllm], completing),
            "cllm turn": ([cllm, question, "--conversation", "bench"], environment),
        }
        if options.llm:
            runs["llm turn"] = ([options.llm, "-m", "fake", question], environment)
        samples = interleave(
            {name: partial(run_command, *run, folder) for name, run in runs.items()},
            rounds=options.rounds,
        )
    print_table(samples, against="python -c pass")
    floor = samples["python -c pass"]
    targets = Targets()
    for name, limit in (
        ("cllm --version", VERSION_LIMIT),
        ("cllm --list-conversations", LIST_LIMIT),
        ("completion of an id", LIST_LIMIT),
    ):
        targets.at_most(f"{name} / python -c pass, cpu", samples[name].cpu / floor.cpu, limit)
        targets.at_most(f"{name} / python -c pass, wall", samples[name].wall / floor.wall, limit)
    if options.llm:
        ours, theirs = samples["cllm turn"], samples["llm turn"]
        targets.at_most("cllm turn / llm turn, cpu", ours.cpu / theirs.cpu, TURN_LIMIT)
        targets.at_most("cllm turn / llm turn, wall", ours.wall / theirs.wall, TURN_LIMIT)
    return targets.finish()


if __name__ == "__main__":
    sys.exit(main())

"""Measures the start-up time of the command, compared with an empty Python program and with `llm`.

Run it with `make bench-startup`, which installs `llm` in a separate environment.
"""

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from loopback import run_provider
from machine import package_versions
from measurement import Sample, interleave, print_table, run_command
from results import CPU, WALL, Results, make_parser, program

VERSION_LIMIT = 4
LIST_LIMIT = 10
TURN_LIMIT = 0.3
QUESTION = "What is the capital of France?"
PYTHON = "`python -c pass`"
AIOHTTP = "`python -c 'import aiohttp'`"
VERSION, LIST, COMPLETION, TURN = (
    "`cllm --version`",
    "`cllm --list-conversations`",
    "shell completion of a conversation ID",
    "one turn of the command",
)
LLM_TURN = "one turn of llm"


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


def make_environment(home: Path) -> dict[str, str]:
    """Return the environment of both tools, with this home directory."""
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "LLM_USER_PATH": str(home / "llm"),
        "OPENAI_API_KEY": "test",
    }


def measure_startup(llm: str | None, rounds: int) -> dict[str, Sample]:
    python = sys.executable
    cllm = str(Path(python).with_name("cllm"))
    with tempfile.TemporaryDirectory() as folder, run_provider() as url:
        home = Path(folder)
        prepare_home(home, url)
        environment = make_environment(home)
        completion = environment | {
            "_CLLM_COMPLETE": "bash_complete",
            "COMP_WORDS": "cllm --show-conversation old",
            "COMP_CWORD": "2",
        }
        runs = {
            PYTHON: ([python, "-c", "pass"], environment),
            AIOHTTP: ([python, "-c", "import aiohttp"], environment),
            VERSION: ([cllm, "--version"], environment),
            LIST: ([cllm, "--list-conversations"], environment),
            COMPLETION: ([cllm], completion),
            TURN: ([cllm, QUESTION, "--conversation", "bench"], environment),
        }
        if llm:
            runs[LLM_TURN] = ([llm, "-m", "fake", QUESTION], environment)
        return interleave(
            {name: partial(run_command, *run, folder) for name, run in runs.items()}, rounds=rounds
        )


def compare_with_python(
    results: Results, samples: Mapping[str, Sample], measures: Iterable[str]
) -> None:
    limits = {VERSION: VERSION_LIMIT, LIST: LIST_LIMIT, COMPLETION: LIST_LIMIT, TURN: None}
    for measure in measures:
        for name, limit in limits.items():
            results.compare(
                name, samples[name], samples[PYTHON], limit, floor=PYTHON, measure=measure
            )


def main() -> int:
    parser = make_parser(__doc__, rounds=15)
    parser.add_argument("--llm", type=program, help="the `llm` command to compare with")
    options = parser.parse_args()
    results = Results("startup")
    samples = measure_startup(options.llm and str(options.llm), options.rounds)
    print_table(samples, baseline=PYTHON)
    results.add_samples("start-up", samples)
    compare_with_python(results, samples, (CPU, WALL))
    if options.llm:
        results.versions |= package_versions(options.llm.with_name("python"), ["llm"])
        for measure in (CPU, WALL):
            results.compare(
                TURN, samples[TURN], samples[LLM_TURN], TURN_LIMIT, peer="llm", measure=measure
            )
    return results.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())

"""Measures the cost of a Cllmfile, its variables and its context commands in a shell turn.

Measures also searches and lists of many conversation files (`cli_search.py`). Run it with
`make bench-cli`. The turns call a provider on loopback. The baseline has no Cllmfile,
so the provider listens on the port of a local server that cllm knows.
"""

import os
import sys
import tempfile
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from pathlib import Path

from cli_search import measure_search
from loopback import run_provider
from measurement import Cost, Sample, interleave, print_table, run_command
from results import Results, make_parser

PARALLEL_LIMIT = 2.0
TURN_LIMIT = 1.3
PORTS = {"vllm": 8000, "lmstudio": 1234, "llama-server": 8080, "ollama": 11434}
QUESTION = "What is the capital of France?"
COMMAND = "echo on branch main"

SETTINGS = """\
temperature: 0.2
default_system_message: You are a helpful assistant.
"""
VARIABLES = """\
variables:
  BRANCH: main
  DEPTH: 5
"""
CONTEXT = """\
context_commands:
  - name: Branch
    command: echo on branch {{ BRANCH | shellquote }}
"""
# Another filter than `shellquote` needs Jinja2.
FILTERED = CONTEXT.replace("BRANCH |", "BRANCH | lower |")
FIVE_SECONDS = "context_commands:\n" + "".join(
    f"  - name: Wait {number}\n    command: sleep 1\n" for number in range(5)
)

PLAIN = "turn without a Cllmfile"
WHOLE = "turn with variables and a context command"
FIVE = "turn with five context commands of 1 s each"
FILTER = "the same with a Jinja2 filter"
ITSELF = "the context command alone"


def start_known_server(stack: ExitStack) -> str:
    """Start a provider on the port of a known local server; return the name of that server."""
    for name, port in PORTS.items():
        with suppress(OSError):
            stack.enter_context(run_provider(port))
            return name
    raise SystemExit(
        f"Free one of the ports {', '.join(map(str, PORTS.values()))}: all are in use."
    )


def make_home(root: Path, name: str, *cllmfile: str) -> dict[str, str]:
    """Return the environment of a user with this Cllmfile, or with none."""
    folder = root / name / ".cllm"
    folder.mkdir(parents=True)
    if cllmfile:
        (folder / "Cllmfile.yml").write_text("".join(cllmfile), encoding="utf-8")
    return {"HOME": str(folder.parent), "PATH": os.environ["PATH"]}


def measure_turns(folder: str, server: str, *, rounds: int) -> dict[str, Sample]:
    """Measure turns in new conversations: context commands run in the first turn."""
    cllm = str(Path(sys.executable).with_name("cllm"))
    numbers = count()
    root = Path(folder)
    homes = {
        PLAIN: make_home(root, "plain"),
        "turn with a Cllmfile": make_home(root, "file", SETTINGS),
        "turn with a Cllmfile and variables": make_home(root, "variables", SETTINGS, VARIABLES),
        WHOLE: make_home(root, "whole", SETTINGS, VARIABLES, CONTEXT),
        FILTER: make_home(root, "filter", SETTINGS, VARIABLES, FILTERED),
        FIVE: make_home(root, "five", SETTINGS, FIVE_SECONDS),
    }

    def start_conversation(environment: dict[str, str]) -> Cost:
        name = f"bench-{next(numbers)}"
        turn = [cllm, QUESTION, "-m", f"{server}/gpt-test", "--conversation", name]
        return run_command(turn, environment, folder)

    runs = {name: partial(start_conversation, environment) for name, environment in homes.items()}
    runs[ITSELF] = partial(run_command, ["/bin/sh", "-c", COMMAND], homes[PLAIN], folder)
    return interleave(runs, rounds=rounds)


def main() -> int:
    parser = make_parser(__doc__, rounds=7)
    parser.add_argument("--files", type=int, default=10_000, help="conversation files to search")
    parser.add_argument("--megabytes", type=int, default=200, help="size of their texts")
    options = parser.parse_args()
    results = Results("cli")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        samples = measure_turns(folder, start_known_server(stack), rounds=options.rounds)
    print_table(samples, baseline=PLAIN)
    results.add_samples("turns of the command", samples)
    results.check(f"{FIVE}, wall time", samples[FIVE].wall, PARALLEL_LIMIT, unit="s")
    without_command = samples[WHOLE].cpu - samples[ITSELF].cpu
    results.compare(WHOLE, without_command, samples[PLAIN], TURN_LIMIT, itself="without a Cllmfile")
    with tempfile.TemporaryDirectory() as folder:
        measure_search(
            results,
            Path(folder),
            files=options.files,
            megabytes=options.megabytes,
            rounds=options.rounds,
        )
    return results.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())

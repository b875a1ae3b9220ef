"""What a Cllmfile, its variables and its context commands add to a turn from the shell.

Run it with `make bench-cli`. The turns ask a provider on loopback; the one that they are compared
with has no Cllmfile at all, so the provider stands where a known server of the machine would.
"""

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from pathlib import Path

from loopback import provider
from measure import Cost, Sample, Targets, interleave, print_table, run_command

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
# A filter beside `shellquote` is more than the short way of filling in knows.
FILTERED = CONTEXT.replace("BRANCH |", "BRANCH | lower |")
FIVE_SECONDS = "context_commands:\n" + "".join(
    f"  - name: Wait {number}\n    command: sleep 1\n" for number in range(5)
)

PLAIN = "turn without a Cllmfile"
WHOLE = "turn with all of it"
FIVE = "five commands of 1 s"
FILTER = "the same, needing Jinja2"
ITSELF = "the command itself"


def known_server(stack: ExitStack) -> str:
    """The name of a provider that needs no settings; it answers until the stack is closed."""
    for name, port in PORTS.items():
        with suppress(OSError):
            stack.enter_context(provider(port))
            return name
    raise SystemExit(f"All of the ports {', '.join(map(str, PORTS.values()))} are taken.")


def new_home(root: Path, name: str, *cllmfile: str) -> dict[str, str]:
    """The environment of a person with that Cllmfile, or with none."""
    folder = root / name / ".cllm"
    folder.mkdir(parents=True)
    if cllmfile:
        (folder / "Cllmfile.yml").write_text("".join(cllmfile), encoding="utf-8")
    return {"HOME": str(folder.parent), "PATH": os.environ["PATH"]}


def measured(folder: str, server: str, *, rounds: int) -> dict[str, Sample]:
    """Turns in new conversations, whose first turn is the one that runs the commands."""
    cllm = str(Path(sys.executable).with_name("cllm"))
    numbers = count()
    root = Path(folder)
    homes = {
        PLAIN: new_home(root, "plain"),
        "turn with a Cllmfile": new_home(root, "file", SETTINGS),
        "turn with variables too": new_home(root, "variables", SETTINGS, VARIABLES),
        WHOLE: new_home(root, "whole", SETTINGS, VARIABLES, CONTEXT),
        FILTER: new_home(root, "filter", SETTINGS, VARIABLES, FILTERED),
        FIVE: new_home(root, "five", SETTINGS, FIVE_SECONDS),
    }

    def begin(environment: dict[str, str]) -> Cost:
        name = f"bench-{next(numbers)}"
        turn = [cllm, QUESTION, "-m", f"{server}/gpt-test", "--conversation", name]
        return run_command(turn, environment, folder)

    runs = {name: partial(begin, environment) for name, environment in homes.items()}
    runs[ITSELF] = partial(run_command, ["/bin/sh", "-c", COMMAND], homes[PLAIN], folder)
    return interleave(runs, rounds=rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        samples = measured(folder, known_server(stack), rounds=options.rounds)
    print_table(samples, against=PLAIN)
    beside = samples[WHOLE].cpu - samples[ITSELF].cpu
    targets = Targets()
    targets.at_most(f"{FIVE} start a conversation, seconds", samples[FIVE].wall, PARALLEL_LIMIT)
    targets.at_most(f"{WHOLE} / {PLAIN}, cpu", beside / samples[PLAIN].cpu, TURN_LIMIT)
    return targets.finish()


if __name__ == "__main__":
    sys.exit(main())

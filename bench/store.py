"""What a captured system prompt costs the JSON store: its bytes, and nothing else.

Saves and loads the same conversation with and without a prompt, in interleaved rounds.
"""

import argparse
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from cllm.core.message import plain_message
from cllm.core.ports import Lease, NewConversation, Opening, TurnStart
from cllm.engine import run_without_loop
from cllm.history.system_prompt import GivenPrompt, build_captured_opening
from cllm.stores.json.store import JsonFileStore
from measure import Cost, Targets, counted, interleave, print_table

PROMPT = "You are a helpful assistant. " * 17
SOURCE = "Cllmfile.yml: default_system_message"
TURNS = 20
REPEATS = 20


def now() -> datetime:
    return datetime(2026, 11, 15, tzinfo=UTC)


def take_turn(store: JsonFileStore, ref: str, number: int, opening: Opening) -> None:
    """One turn, begun and finished."""
    start = TurnStart(
        id=f"turn-{number:06}", messages=(plain_message("user", "Hello " * 20),), visible=False
    )
    lease: Lease = run_without_loop(
        store.begin_turn(ref, start, create=NewConversation(id=ref, model="openai/gpt-test"))
    )
    turn = msgspec.structs.replace(
        lease.turn,
        state="complete",
        ended_at=now(),
        messages=(*lease.turn.messages, plain_message("assistant", "Hi there " * 20)),
    )
    run_without_loop(store.finish_turn(lease, turn, opening=opening))


def fill(store: JsonFileStore, ref: str, opening: Opening) -> None:
    for number in range(TURNS):
        take_turn(store, ref, number, opening)


def saving(store: JsonFileStore, ref: str, opening: Opening) -> Cost:
    """Append turns to a conversation of the same length each time."""

    def work() -> None:
        for number in range(REPEATS):
            take_turn(store, ref, TURNS + number, opening)

    cost = counted(work)
    run_without_loop(store.delete_from(ref, 2 * TURNS + 1))
    return cost


def loading(store: JsonFileStore, ref: str) -> Cost:
    def work() -> None:
        for _ in range(REPEATS):
            run_without_loop(store.load(ref))

    return counted(work)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with_prompt = build_captured_opening(GivenPrompt(text=PROMPT.strip(), source=SOURCE), now=now())
    without = build_captured_opening(GivenPrompt(), now=now())
    with tempfile.TemporaryDirectory() as folder:
        store = JsonFileStore(folder, clock=now)
        fill(store, "with-prompt", with_prompt)
        fill(store, "no-prompt", without)
        samples = interleave(
            {
                "save, no prompt": lambda: saving(store, "no-prompt", without),
                "save, prompt": lambda: saving(store, "with-prompt", with_prompt),
                "load, no prompt": lambda: loading(store, "no-prompt"),
                "load, prompt": lambda: loading(store, "with-prompt"),
            },
            rounds=options.rounds,
        )
        sizes = {
            ref: len((Path(folder) / f"{ref}.json").read_bytes())
            for ref in ("no-prompt", "with-prompt")
        }
    print_table(samples, against="load, no prompt")
    targets = Targets()
    for what in ("save", "load"):
        ratio = samples[f"{what}, prompt"].cpu / samples[f"{what}, no prompt"].cpu
        targets.at_most(f"{what} with a prompt / without, cpu", ratio, 1.1)
    extra = sizes["with-prompt"] - sizes["no-prompt"]
    named = len(SOURCE) - len("none") + len("with") - len("no")
    frame = len('    {\n      "role": "system",\n      "content": ""\n    },\n') + named
    print(f"bytes: {extra} more with a prompt of {len(PROMPT.strip())}")
    unexplained = abs(extra - len(PROMPT.strip()) - frame)
    targets.at_most("bytes beside the prompt's own, its frame and its source", unexplained, 0)
    return targets.finish()


if __name__ == "__main__":
    sys.exit(main())

"""Measures what a stored system prompt costs the store of conversation files, and its index.

Saves and loads the same conversation with and without a system prompt, in interleaved rounds. The
file may only grow by the prompt, its JSON frame and its source. Then finds a conversation by its
path digests, with the index and by reading all files.
"""

import sys
import tempfile
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import msgspec

from cllm.app import run_without_loop
from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import plain_message
from cllm.core.ports import Lease, NewConversation, Opening, PathMatch, TurnStart
from cllm.history.system_prompt import GivenPrompt, build_captured_opening
from cllm.stores.json.store import JsonFileStore
from cllm.wire.conversation_file.codec import encode_conversation
from cllm.wire.path_digest import digest_path
from measurement import Cost, interleave, measure_call, measure_repeated, print_table
from results import Results, make_parser

PROMPT = "You are a helpful assistant. " * 17
SOURCE = "Cllmfile.yml: default_system_message"
TURNS = 20
REPEATS = 20
FILES = 1_000
LOOKUP_LIMIT = 0.1


def now() -> datetime:
    return datetime(2026, 11, 15, tzinfo=UTC)


def run_turn(store: JsonFileStore, ref: str, number: int, opening: Opening) -> None:
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
        run_turn(store, ref, number, opening)


def measure_saves(store: JsonFileStore, ref: str, opening: Opening) -> Cost:
    """Append turns, then delete them, so that the conversation has the same length each time."""
    numbers = count(TURNS)
    cost = measure_repeated(lambda: run_turn(store, ref, next(numbers), opening), REPEATS)
    run_without_loop(store.delete_from(ref, 2 * TURNS + 1))
    return cost


def measure_loads(store: JsonFileStore, ref: str) -> Cost:
    return measure_repeated(lambda: run_without_loop(store.load(ref)), REPEATS)


def write_files(folder: Path) -> list[bytes]:
    """Write conversations of ten messages each; return the path digests of one, newest first."""
    folder.mkdir()
    digests: list[bytes] = []
    for number in range(FILES):
        turns = tuple(
            Turn(
                id=f"t{index}",
                place=f"t{index}",
                state="complete",
                messages=(
                    plain_message("user", f"Question {index} of {number}. " + "Hello " * 20),
                    plain_message("assistant", "Hi there " * 80),
                ),
                started_at=now(),
            )
            for index in range(5)
        )
        conversation = StoredConversation(
            id=f"c{number}", created_at=now(), updated_at=now(), turns=turns
        )
        (folder / f"c{number}.json").write_bytes(encode_conversation(conversation))
        digests = digest_path(conversation.messages)
    return digests[::-1]


def measure_lookup(store: JsonFileStore, digests: list[bytes]) -> Cost:
    def look_up() -> None:
        matches: tuple[PathMatch, ...] = run_without_loop(store.find_paths(digests))
        assert [match.sequence for match in matches] == [len(digests)]

    return measure_call(look_up)


def compare_lookups(results: Results, folder: Path, *, rounds: int) -> None:
    digests = write_files(folder)
    indexed = JsonFileStore(folder, clock=now, cache=folder.parent / "cache")
    with_index, all_read = (
        f"lookup of a history in {FILES:,} files{end}" for end in ("", ", all files read")
    )
    samples = interleave(
        {
            with_index: lambda: measure_lookup(indexed, digests),
            all_read: lambda: measure_lookup(JsonFileStore(folder, clock=now), digests),
        },
        rounds=rounds,
    )
    run_without_loop(indexed.close())
    print_table(samples, baseline=all_read)
    results.add_samples("lookup", samples)
    results.compare(
        with_index, samples[with_index], samples[all_read], LOOKUP_LIMIT, itself="all files read"
    )


def main() -> int:
    parser = make_parser(__doc__, rounds=15)
    options = parser.parse_args()
    results = Results("store_json")
    with_prompt = build_captured_opening(GivenPrompt(text=PROMPT.strip(), source=SOURCE), now=now())
    without = build_captured_opening(GivenPrompt(), now=now())
    with tempfile.TemporaryDirectory() as folder:
        store = JsonFileStore(folder, clock=now)
        fill(store, "with-prompt", with_prompt)
        fill(store, "no-prompt", without)
        samples = interleave(
            {
                "save, no system prompt": lambda: measure_saves(store, "no-prompt", without),
                "save, system prompt": lambda: measure_saves(store, "with-prompt", with_prompt),
                "load, no system prompt": lambda: measure_loads(store, "no-prompt"),
                "load, system prompt": lambda: measure_loads(store, "with-prompt"),
            },
            rounds=options.rounds,
        )
        sizes = {
            ref: len((Path(folder) / f"{ref}.json").read_bytes())
            for ref in ("no-prompt", "with-prompt")
        }
    print_table(samples, baseline="load, no system prompt")
    results.add_samples("saves and loads", samples)
    for action in ("save", "load"):
        both = samples[f"{action}, system prompt"], samples[f"{action}, no system prompt"]
        results.compare(f"{action} with a system prompt", *both, 1.1, itself="without one")
    extra = sizes["with-prompt"] - sizes["no-prompt"]
    names = len(SOURCE) - len("none") + len("with") - len("no")
    frame = len('    {\n      "role": "system",\n      "content": ""\n    },\n') + names
    print(f"file size: {extra} bytes more with a system prompt of {len(PROMPT.strip())} bytes")
    unexplained = abs(extra - len(PROMPT.strip()) - frame)
    results.check(
        "bytes besides the prompt, its frame and its source", unexplained, 0, unit="bytes"
    )
    with tempfile.TemporaryDirectory() as folder:
        compare_lookups(results, Path(folder) / "conversations", rounds=min(options.rounds, 5))
    return results.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())

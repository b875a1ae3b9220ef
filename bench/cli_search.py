"""Measures `cllm search` and `cllm conversations list` over many conversation files.

The baseline of a search is a query of SQLite's FTS5 for the same texts, and the same command in an
empty folder, which is the start-up. That of the first search is feeding the texts to FTS5.
"""

import json
import random
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from measurement import Cost, Sample, interleave, measure_call, print_table, run_command
from results import Results

SEARCH_LIMIT = 3.6
INDEX_LIMIT = 2.0
MESSAGES = 20
VOCABULARY = 20_000
RARE = "zyzzyva"
COMMON = "common"
MATCHES = 40
START = datetime(2026, 1, 1, tzinfo=UTC)

STARTUP = "start-up: `cllm search` in an empty folder"
RAW = "raw FTS5 query of a rare word"
COMMON_RAW = "raw FTS5 query of a common word"
RARE_SEARCH = f"`cllm search`, {MATCHES} matching files"
COMMON_SEARCH = "`cllm search`, every file matches"
LIST = "`cllm conversations list`"
FEED = "feeding the texts to raw FTS5"
LIST_STARTUP = "start-up: `cllm conversations list` in an empty folder"


def make_texts(files: int, megabytes: int) -> Iterator[list[str]]:
    """Yield the messages of each file: words with a frequency like that of a language."""
    randomness = random.Random(1)  # noqa: S311 - the same texts in every run
    words = [f"w{number:x}" for number in range(VOCABULARY)]
    weights = [1 / (rank + 5) for rank in range(VOCABULARY)]
    characters = megabytes * 1_000_000 // files // MESSAGES
    for number in range(files):
        texts = []
        for _ in range(MESSAGES):
            chosen = randomness.choices(words, weights, k=characters // 5)
            texts.append(" ".join(chosen)[:characters])
        texts[0] = f"{COMMON} {texts[0]}"
        if number % max(files // MATCHES, 1) == 0:
            texts[-1] = f"{RARE} {texts[-1]}"
        yield texts


def write_files(folder: Path, texts: list[list[str]]) -> None:
    folder.mkdir(parents=True)
    for number, messages in enumerate(texts):
        moment = (START + timedelta(minutes=number)).isoformat()
        content = {
            "id": f"c{number}",
            "model": "openai/gpt-test",
            "messages": [
                {"role": ("user", "assistant")[index % 2], "content": text}
                for index, text in enumerate(messages)
            ],
            "created_at": moment,
            "updated_at": moment,
            "metadata": {"cllm": {"title": " ".join(messages[0].split()[:8])}},
        }
        (folder / f"c{number}.json").write_text(json.dumps(content, indent=2), encoding="utf-8")


def feed_raw_index(path: Path, texts: list[list[str]]) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE VIRTUAL TABLE messages USING fts5(text)")
        rows = ((text,) for messages in texts for text in messages)
        database.executemany("INSERT INTO messages (text) VALUES (?)", rows)
        database.commit()


def query_raw_index(path: Path, word: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("SELECT text FROM messages WHERE messages MATCH ?", (word,)).fetchall()


def measure_search(
    results: Results, root: Path, *, files: int, megabytes: int, rounds: int
) -> None:
    """Measure the first search, later ones and lists."""
    texts = list(make_texts(files, megabytes))
    size = sum(len(text) for messages in texts for text in messages)
    print(f"\n{files:,} conversation files with {size / 1e6:.0f} MB of text")
    write_files(root / "conversations", texts)
    (root / "empty").mkdir()
    raw = root / "raw.sqlite3"
    cllm = str(Path(sys.executable).with_name("cllm"))
    environment = {"HOME": str(root), "PATH": "/usr/bin:/bin"}
    store = f"json:{root / 'conversations'}"
    empty = f"json:{root / 'empty'}"

    def run(*arguments: str) -> Cost:
        return run_command([cllm, *arguments], environment, str(root))

    fed = measure_call(partial(feed_raw_index, raw, texts))
    first = run("search", RARE, "--store", store)
    samples = interleave(
        {
            STARTUP: partial(run, "search", RARE, "--store", empty),
            RAW: lambda: measure_call(partial(query_raw_index, raw, RARE)),
            COMMON_RAW: lambda: measure_call(partial(query_raw_index, raw, COMMON)),
            RARE_SEARCH: partial(run, "search", RARE, "--store", store),
            COMMON_SEARCH: partial(run, "search", COMMON, "--store", store),
            LIST_STARTUP: partial(run, "conversations", "list", "--store", empty),
            LIST: partial(run, "conversations", "list", "--store", store),
        },
        rounds=rounds,
    )
    first_search = "first search, which builds the index"
    samples[first_search] = Sample(name=first_search, costs=[first])
    samples[FEED] = Sample(name=FEED, costs=[fed])
    print_table(samples, baseline=STARTUP)
    results.add_samples(f"search in {files:,} conversation files", samples)
    index = sum(path.stat().st_size for path in (root / ".cache/cllm/search").iterdir())
    print(f"index: {index / 1e6:.0f} MB, raw FTS5: {raw.stat().st_size / 1e6:.0f} MB")
    shutil.rmtree(root / "conversations")
    results.compare(first_search, first.cpu, fed.cpu, INDEX_LIMIT, floor=FEED)
    for name, query, startup in (
        (RARE_SEARCH, RAW, STARTUP),
        (COMMON_SEARCH, COMMON_RAW, STARTUP),
        (LIST, RAW, LIST_STARTUP),
    ):
        baseline = samples[query].cpu + samples[startup].cpu
        results.compare(
            name, samples[name], baseline, SEARCH_LIMIT, floor="start-up and raw FTS5 query"
        )

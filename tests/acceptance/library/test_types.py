"""The types of the library, as a strict type checker sees them in somebody's program."""

import importlib.resources
import subprocess
import sys

import pytest

GOOD = """
import asyncio
from collections.abc import Iterator

import cllm


def pieces() -> Iterator[str]:
    with cllm.stream("Tell me a story.", conversation="stories", max_tokens=20) as stream:
        yield from stream
    answer: cllm.Answer | None = stream.answer
    assert answer is None or isinstance(answer.text, str)


async def main() -> float | None:
    chat = cllm.Conversation("cats", window=cllm.ByTurns(max_turns=3), temperature=0.5)
    async for piece in chat.astream("Hello."):
        piece.upper()
    branch: cllm.Conversation = await chat.abranch("other", at=2)
    text: str = await branch.aexport("markdown")
    pinned: tuple[int, ...] = chat.pin(1, 2)
    stored: cllm.StoredConversation = await chat.aload()
    async with cllm.open_store("json:saved") as store:
        loaded: cllm.StoredConversation = await store.load("cats", tail=2)
        count: int = store.blocking.count_conversations(archive_filter="all")
        cllm.Conversation("cats", store=store)
    print(text, pinned, stored, loaded, count)
    return (await chat.aask("And?", parameters={"logprobs": True})).cost


manager = cllm.ConversationManager(20, "Be brief.", store="json:saved", seed=1)
messages: list[dict[str, object]] = [dict(message) for message in manager.get_messages()]
asyncio.run(main())
"""

BAD = """
import cllm

cllm.ask("Hello.", temperature="hot")
cllm.Conversation("cats").pin("first")
cllm.Conversation("cats").export("pdf")
number: int = cllm.Conversation("cats").messages()
cllm.open_store("json:saved").blocking.load(7)
cllm.ConversationManager(window="ten turns")
"""


@pytest.fixture
def check(tmp_path):
    """Checks a program; what the type checker complains of."""

    def check(source: str) -> list[str]:
        program = tmp_path / "program.py"
        program.write_text(source, encoding="utf-8")
        command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
        done = subprocess.run(
            [*command, "--config-file=", "--cache-dir", str(tmp_path / "cache"), str(program)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert done.stderr == ""
        return [line for line in done.stdout.splitlines() if ": error:" in line]

    return check


def test_the_package_has_a_py_typed_file():
    assert importlib.resources.files("cllm").joinpath("py.typed").is_file()


def test_mypy_accepts_a_correct_program_and_finds_each_mistake(check):
    assert check(GOOD) == []

    found = [int(line.split(":")[1]) for line in check(BAD)]
    assert found == [4, 5, 6, 7, 8, 9]

"""What captured context saves, counted with the local model's own tokenizer.

The prompt of turn 5 is the one that was really sent. Beside it stands the same conversation in the
old way, with the block in front of every user message.
"""

import asyncio
import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from cllm.providers.local.models import CHATML_TEMPLATE
from cllm.providers.local.process import ModelProcess, ModelProcessSettings, launch

PROMPT = "You are a helpful assistant."
QUESTIONS = [
    "What is my cat called?",
    "How old is she?",
    "Where does she sleep?",
    "What does she eat?",
    "Who feeds her?",
]
NAME = "Cat"
BLOCK_TOKENS = 80
Said = list[tuple[str, str]]


class Tokenizer:
    """Counts as the model does that reads the prompt: its chat template, then its tokens."""

    def __init__(self, child: ModelProcess) -> None:
        self._child = child

    def count(self, text: str) -> int:
        return len(self._ask("/tokenize", {"content": text, "parse_special": True})["tokens"])

    def count_prompt(self, said: Said) -> int:
        messages = [{"role": role, "content": content} for role, content in said]
        return self.count(self._ask("/apply-template", {"messages": messages})["prompt"])

    def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        connection = http.client.HTTPConnection(urlsplit(self._child.address).netloc, timeout=30)
        headers = {"Authorization": f"Bearer {self._child.key}", "Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        assert answer.status == http.client.OK, content
        decoded: dict[str, Any] = json.loads(content)
        return decoded


@pytest.fixture
def tokenizer(local_model: Path, tmp_path: Path) -> Iterator[Tokenizer]:
    settings = ModelProcessSettings(
        name="smollm2", model=local_model, slots=tmp_path, template=CHATML_TEMPLATE
    )
    child = launch(settings, dict(os.environ))
    asyncio.run(child.wait_until_ready())
    yield Tokenizer(child)
    child.stop()


def block(output: str) -> str:
    return f"--- Context: {NAME} ---\n{output}\n--- End Context ---"


def output_for(tokenizer: Tokenizer) -> str:
    """What a command has to say for its block to be of 80 tokens."""
    output = "Luna is a cat."
    while tokenizer.count(block(output)) < BLOCK_TOKENS:
        output += " cat"
    assert tokenizer.count(block(output)) == BLOCK_TOKENS
    return output


def the_old_way(sent: Said, context: str) -> Said:
    """The same conversation with the context in every user message, and in no other."""
    bare = without_context(sent, context)
    return [(role, f"{context}\n\n{text}" if role == "user" else text) for role, text in bare]


def without_context(sent: Said, context: str) -> Said:
    return [(role, text.removesuffix(f"\n\n{context}")) for role, text in sent]


def occurrences(said: Said, context: str) -> int:
    return sum(text.count(context) for _, text in said)


def test_a_block_stands_once_in_the_prompt_of_turn_5_and_not_five_times(
    provider, settings, home, cllm, tokenizer
):
    output = output_for(tokenizer)
    (home.work / "cat.txt").write_text(output, encoding="utf-8")
    commands = [{"name": NAME, "command": "cat cat.txt"}]
    settings(default_system_message=PROMPT, context_commands=commands)

    for number, question in enumerate(QUESTIONS):
        provider.queue_reply(f"Answer {number}.")
        cllm(question, "--conversation", "demo").succeeded()

    context = block(output)
    sent = provider.requests[4].message_pairs
    old = the_old_way(sent, context)
    bare = tokenizer.count_prompt(without_context(sent, context))
    in_ours = tokenizer.count_prompt(sent) - bare
    in_the_old = tokenizer.count_prompt(old) - bare
    between = tokenizer.count(f"{PROMPT}\n\n{context}") - tokenizer.count(PROMPT) - BLOCK_TOKENS
    assert [role for role, _ in sent].count("user") == len(QUESTIONS)
    assert (occurrences(sent, context), occurrences(old, context)) == (1, 5)
    assert in_ours - between == 80
    assert in_the_old - 5 * between == 400
    assert in_the_old - in_ours == 4 * (BLOCK_TOKENS + between)

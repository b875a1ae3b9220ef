"""What the real local model has to evaluate when a conversation grows past its window.

The same 60 turns twice: trimmed by tokens in blocks, and with the oldest turn leaving each time.
Counted are the tokens of the prompts that the model did not have in its cache. Target: in blocks at
most a quarter. Exits 1 if it is missed.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from contextlib import aclosing
from pathlib import Path

from cllm.core.message import Message, plain_message
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyFinished, Usage
from cllm.providers.local.fetch import Fetcher, fetch_known_model
from cllm.providers.local.models import DEFAULT_MODEL, KNOWN_MODELS, CachePaths, ModelFile
from cllm.providers.local.provider import LocalProvider
from cllm.window.plan import WindowPlan, plan_window
from cllm.window.strategies import ByTokens, prices_for
from cllm.window.tokens import estimate_message
from cllm.window.turn_index import ReportedCount, TurnIndex, count_messages, make_indexed_message
from cllm.wire.convert import parts_of
from measure import Targets

TURNS = 60
BUDGET = 500
LIMIT = 0.25
SYSTEM = plain_message("system", "You are a helpful assistant. Answer in a few words.")
SAID = "This is message number {number}: my cat sat by the window and looked at the birds. Why?"


class Talk:
    """A conversation of which the engine's part is played here, with what was reported last."""

    def __init__(self, strategy: ByTokens) -> None:
        self.strategy = strategy
        self.messages: list[Message] = []
        self.replies: dict[int, int] = {}
        self.last: ReportedCount | None = None
        self.window_start: int | None = None
        self.evaluated = 0

    def prompt(self, said: str) -> tuple[WindowPlan, Prompt]:
        self.messages.append(plain_message("user", said))
        estimates = [estimate_message(message) for message in self.messages]
        counted = count_messages(
            estimates, replies=self.replies, last=self.last, overhead=estimate_message(SYSTEM)
        )
        turn_index = TurnIndex(
            make_indexed_message(message.role, parts_of(message), tokens)
            for message, tokens in zip(self.messages, counted.messages, strict=True)
        )
        view = plan_window(turn_index, self.strategy, budget=BUDGET, window_start=self.window_start)
        self.window_start = view.window_start
        return view, Prompt(
            model=DEFAULT_MODEL,
            system=SYSTEM,
            messages=view.of(self.messages),
            parameters={"temperature": 0, "max_tokens": 12},
        )

    def hear(self, view: WindowPlan, reply: ReplyFinished) -> None:
        usage = reply.usage or Usage()
        sent = usage.input + usage.cache_read + usage.cache_write
        self.evaluated += sent - usage.cache_read
        self.last = ReportedCount(spans=view.spans, tokens=sent, overhead=estimate_message(SYSTEM))
        self.replies[len(self.messages)] = usage.output
        self.messages.append(reply.message)


async def talk(strategy: ByTokens, file: Path, root: Path) -> int:
    """The tokens that were evaluated in all turns."""
    provider = LocalProvider(
        model=ModelFile(name=DEFAULT_MODEL, path=file, known=KNOWN_MODELS[DEFAULT_MODEL]),
        paths=CachePaths(root=root),
        environ=dict(os.environ),
        threads=1,
    )
    spoken = Talk(strategy)
    try:
        for number in range(TURNS):
            view, prompt = spoken.prompt(SAID.format(number=number))
            async with aclosing(provider.ask(prompt)) as events:
                async for event in events:
                    if isinstance(event, ReplyFinished):
                        spoken.hear(view, event)
    finally:
        await provider.close()
    return spoken.evaluated


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    default = Path(__file__).resolve().parents[1] / ".cache" / "cllm"
    paths = CachePaths(root=Path(os.environ.get("CLLM_TEST_CACHE", default)))
    known = KNOWN_MODELS[DEFAULT_MODEL]
    file = fetch_known_model(known, Fetcher(paths=paths, environ=dict(os.environ))).path
    ways = {
        "in blocks": ByTokens(prices=prices_for("local", DEFAULT_MODEL)),
        "turn by turn": ByTokens(floor=BUDGET, block=1),
    }
    evaluated = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, strategy in ways.items():
            evaluated[name] = asyncio.run(talk(strategy, file, Path(folder) / name))
            print(f"{name:13} {evaluated[name]:7,} tokens of {TURNS} prompts were evaluated")
    targets = Targets()
    ratio = evaluated["in blocks"] / evaluated["turn by turn"]
    targets.at_most("evaluated in blocks / turn by turn", ratio, LIMIT)
    return targets.finish()


if __name__ == "__main__":
    sys.exit(main())

"""Counts the tokens that the local model evaluates when a conversation outgrows its window.

Runs the same 40 turns twice: trimmed in blocks, and with the oldest turn removed in each turn.
Counts the prompt tokens that were not in the model's cache. Limit: a quarter with blocks. Exits 1
if it is exceeded.
"""

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
from results import Results, make_parser

TURNS = 40
BUDGET = 500
LIMIT = 0.25
SYSTEM = plain_message("system", "You are a helpful assistant. Answer in a few words.")
MESSAGE = "This is message number {number}: my cat sat by the window and looked at the birds. Why?"


class Conversation:
    """A conversation with the engine's bookkeeping, including the last reported token count."""

    def __init__(self, strategy: ByTokens) -> None:
        self.strategy = strategy
        self.messages: list[Message] = []
        self.replies: dict[int, int] = {}
        self.last: ReportedCount | None = None
        self.window_start: int | None = None
        self.evaluated = 0

    def build_prompt(self, text: str) -> tuple[WindowPlan, Prompt]:
        self.messages.append(plain_message("user", text))
        weighed = [estimate_message(message) for message in self.messages]
        counts = count_messages(
            weighed, replies=self.replies, last=self.last, overhead=estimate_message(SYSTEM)
        )
        ledger = TurnIndex(
            make_indexed_message(message.role, parts_of(message), tokens)
            for message, tokens in zip(self.messages, counts.messages, strict=True)
        )
        view = plan_window(ledger, self.strategy, budget=BUDGET, window_start=self.window_start)
        self.window_start = view.window_start
        return view, Prompt(
            model=DEFAULT_MODEL,
            system=SYSTEM,
            messages=view.select(self.messages),
            parameters={"temperature": 0, "max_tokens": 12},
        )

    def add_reply(self, view: WindowPlan, reply: ReplyFinished) -> None:
        usage = reply.usage or Usage()
        sent = usage.input + usage.cache_read + usage.cache_write
        self.evaluated += sent - usage.cache_read
        self.last = ReportedCount(spans=view.spans, tokens=sent, overhead=estimate_message(SYSTEM))
        self.replies[len(self.messages)] = usage.output
        self.messages.append(reply.message)


async def run_turns(strategy: ByTokens, file: Path, root: Path) -> int:
    """Run all turns; return the number of evaluated tokens."""
    provider = LocalProvider(
        model=ModelFile(name=DEFAULT_MODEL, path=file, known=KNOWN_MODELS[DEFAULT_MODEL]),
        paths=CachePaths(root=root),
        environ=dict(os.environ),
        threads=1,
    )
    conversation = Conversation(strategy)
    try:
        for number in range(TURNS):
            view, prompt = conversation.build_prompt(MESSAGE.format(number=number))
            async with aclosing(provider.ask(prompt)) as events:
                async for event in events:
                    if isinstance(event, ReplyFinished):
                        conversation.add_reply(view, event)
    finally:
        await provider.close()
    return conversation.evaluated


def main() -> int:
    options = make_parser(__doc__).parse_args()
    results = Results("window_local")
    default = Path(__file__).resolve().parents[1] / ".cache" / "cllm"
    paths = CachePaths(root=Path(os.environ.get("CLLM_TEST_CACHE", default)))
    known = KNOWN_MODELS[DEFAULT_MODEL]
    file = fetch_known_model(known, Fetcher(paths=paths, environ=dict(os.environ))).path
    strategies = {
        "in blocks": ByTokens(prices=prices_for("local", DEFAULT_MODEL)),
        "one turn out per turn": ByTokens(floor=BUDGET, block=1),
    }
    evaluated = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, strategy in strategies.items():
            evaluated[name] = asyncio.run(run_turns(strategy, file, Path(folder) / name))
            print(f"{name:22} {evaluated[name]:7,} evaluated tokens in {TURNS} prompts")
    results.compare(
        *("trimmed in blocks", evaluated["in blocks"], evaluated["one turn out per turn"], LIMIT),
        itself="one turn out per turn",
        measure="evaluated tokens",
        unit="tokens",
    )
    return results.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())

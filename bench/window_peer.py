"""Measures the trimming of other libraries, for `window.py`.

Runs in the environment where these libraries are installed. Reads lines `NAME TURNS` and prints the
CPU and wall seconds of one call for a conversation of this length. Each library is used as its
documentation shows, with an approximate token counter, which is in its favour.
"""

import os
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from measurement import measure_call

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

BUDGET = 2500
TEXT = "Could you tell me a little more about that, and what it would cost us? "


@cache
def langchain(turns: int) -> Callable[[], object]:
    core: Any = import_module("langchain_core.messages")
    utils: Any = import_module("langchain_core.messages.utils")
    messages = [core.SystemMessage("Be brief.")]
    for _ in range(turns):
        messages += [core.HumanMessage(TEXT), core.AIMessage(TEXT)]
    messages.append(core.HumanMessage(TEXT))
    return lambda: core.trim_messages(
        messages,
        strategy="last",
        token_counter=utils.count_tokens_approximately,
        max_tokens=BUDGET,
        start_on="human",
        end_on=("human", "tool"),
        include_system=True,
    )


@cache
def litellm(turns: int) -> Callable[[], object]:
    utils: Any = import_module("litellm.utils")
    messages = [{"role": "system", "content": "Be brief."}]
    for _ in range(turns):
        messages += [{"role": "user", "content": TEXT}, {"role": "assistant", "content": TEXT}]
    messages.append({"role": "user", "content": TEXT})
    return lambda: utils.trim_messages(messages, model="gpt-4o", max_tokens=BUDGET)


@cache
def llama_index(turns: int) -> Callable[[], object]:
    types: Any = import_module("llama_index.core.base.llms.types")
    memory: Any = import_module("llama_index.core.memory")
    history = [
        types.ChatMessage(role=role, content=TEXT)
        for _ in range(turns)
        for role in ("user", "assistant")
    ]
    buffer = memory.ChatMemoryBuffer.from_defaults(
        chat_history=[*history, types.ChatMessage(role="user", content=TEXT)],
        token_limit=BUDGET,
        tokenizer_fn=lambda text: text.split(),
    )
    get: Callable[[], object] = buffer.get
    return get


PEERS = {"langchain": langchain, "litellm": litellm, "llama_index": llama_index}


def main() -> None:
    for line in sys.stdin:
        name, turns = line.split()
        cost = measure_call(PEERS[name](int(turns)))
        print(cost.cpu, cost.wall, flush=True)


if __name__ == "__main__":
    main()

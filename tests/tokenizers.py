"""Real tokenizers to check estimates with, from the test environment, without a network."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.request import Request, urlopen

Count = Callable[[str], int]


def _tables() -> Path:
    """Return the folder of LiteLLM's vocabularies, without importing LiteLLM."""
    spec = importlib.util.find_spec("litellm")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "litellm_core_utils" / "tokenizers"


@cache
def o200k() -> Count:
    """Return a counter with the vocabulary of OpenAI's models since 2024."""
    os.environ["TIKTOKEN_CACHE_DIR"] = str(_tables())
    import tiktoken  # noqa: PLC0415 - reads the variable at import and is slow to import

    encoding = tiktoken.get_encoding("o200k_base")
    return lambda text: len(encoding.encode(text, disallowed_special=()))


@contextmanager
def smollm2(model: Path, folder: Path) -> Iterator[Count]:
    """Yield a counter that uses the local model's own process."""
    settings = {
        "model": str(model),
        "name": "test",
        "key": "test",
        "slots": str(folder),
        "context": 512,
        "threads": 1,
        "template": None,
    }
    command = [sys.executable, "-m", "cllm.providers.local.child"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(settings).encode() + b"\n")
        child.stdin.flush()
        address = json.loads(child.stdout.readline())["address"]
        yield lambda text: _count_tokens(address, text)
        child.stdin.close()


def _count_tokens(address: str, text: str) -> int:
    body = json.dumps({"content": text}).encode()
    headers = {"Authorization": "Bearer test", "Content-Type": "application/json"}
    with urlopen(Request(f"{address}/tokenize", body, headers), timeout=30) as response:
        return len(json.load(response)["tokens"])

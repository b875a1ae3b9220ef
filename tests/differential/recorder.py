"""Records the requests of the fidelity tests and of Hypothesis as plain JSON case files.

The runner imports nothing of cllm, so that it works across internal changes. The builders of test
data do import cllm; this pytest plugin runs them once and records their requests:

    python -m pytest -p tests.differential.recorder tests/fidelity

Each line of `cases/fidelity.jsonl` has the client's protocol, the provider's kind, the body and the
steps of the provider's response, unless the provider repeats the newest text. Each line of
`cases/generated.jsonl` has a protocol and a body from the strategies in
`tests/request_strategies.py`, generated with a fixed seed.
"""

import base64
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy
from tests import fake_provider

CASES = Path(__file__).with_name("cases")
SEED = 20_261_116
EXAMPLES = 160
"""Generated bodies per protocol; those over `MAX_BODY_CHARACTERS` are skipped."""
MAX_BODY_CHARACTERS = 6_000
MAX_SENDS = 40
"""A response with more pieces than this is recorded as one piece."""

Json = dict[str, Any]


class Recorder:
    """Collects the requests of one test run, each once."""

    def __init__(self) -> None:
        self.cases: dict[str, Json] = {}
        self._open: Json | None = None
        self._kind: str | None = None

    def prompt(self, body: Json, client: str, stream: bool) -> None:
        self.close()
        self._open = {"client": client, "stream": stream, "body": body}

    def kind(self, kind: str) -> None:
        self._kind = kind

    def answer(self, path: str, steps: tuple[fake_provider.Step, ...] | None) -> None:
        """Record the provider's response to the open request; None if it repeats the text."""
        if self._open is not None:
            self._open = {**self._open, "kind": _provider_kind(path)}
            if steps is not None:
                self._open["answer"] = list(_encode_steps(steps))
            self.close(keep_open=True)

    def close(self, *, keep_open: bool = False) -> None:
        """Add the open request to the cases."""
        if self._open is not None and (self._kind or "kind" in self._open):
            case = {"kind": self._kind, **self._open}
            self.cases.setdefault(json.dumps(case, sort_keys=True), case)
        if not keep_open:
            self._open = None

    def end_test(self) -> None:
        self.close()
        self._kind = None


def _provider_kind(path: str) -> str:
    if path.startswith("/model/"):
        return "bedrock"
    return "anthropic" if path.startswith("/v1/messages") else "openai"


def _encode_steps(steps: tuple[fake_provider.Step, ...]) -> Iterator[list[Any]]:
    """Yield the steps as JSON. Many adjacent pieces are joined."""
    sends = [step for step in steps if isinstance(step, fake_provider.Send)]
    joined = bytearray()
    for step in steps:
        if isinstance(step, fake_provider.Send) and len(sends) > MAX_SENDS:
            joined += step.data
            continue
        if joined:
            yield _encode_data(bytes(joined))
            joined.clear()
        match step:
            case fake_provider.Head():
                yield ["head", step.status, dict(step.headers), step.chunked]
            case fake_provider.Send(data):
                yield _encode_data(data)
            case fake_provider.Silence():
                yield ["silence"]
            case fake_provider.Cut():
                yield ["cut"]
            case fake_provider.Hold():
                pass
    if joined:
        yield _encode_data(bytes(joined))


def _encode_data(data: bytes) -> list[Any]:
    try:
        return ["text", data.decode()]
    except UnicodeDecodeError:
        return ["data", base64.b64encode(data).decode()]


RECORDER = Recorder()


def _wrap_prompt(prompt_of: Callable[..., Any]) -> Callable[..., Any]:
    def record(body: Json, client: str, model: str, *, stream: bool) -> Any:
        defaults: Json = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
        defaults |= {"max_tokens": 4096} if client == "anthropic" else {}
        RECORDER.prompt(json.loads(json.dumps(defaults | body)), client, stream)
        return prompt_of(body, client, model, stream=stream)

    return record


def _wrap_provider(make_provider: Callable[..., Any]) -> Callable[..., Any]:
    def record(kind: str, *arguments: Any, **options: Any) -> Any:
        RECORDER.kind(kind)
        return make_provider(kind, *arguments, **options)

    return record


def _wrap_steps(choose: Callable[..., Any]) -> Callable[..., Any]:
    def record(provider: Any, request: Any) -> Any:
        is_scripted = bool(provider._answers)
        steps = choose(provider, request)
        RECORDER.answer(request.path, steps if is_scripted else None)
        return steps

    return record


def pytest_collection_finish(session: pytest.Session) -> None:
    """Wrap the functions that create requests, in all modules of the fidelity tests."""
    wrappers = {"prompt_of": _wrap_prompt, "make_provider": _wrap_provider}
    for name, module in list(sys.modules.items()):
        if name.startswith("tests.fidelity"):
            for function, wrap in wrappers.items():
                if hasattr(module, function):
                    setattr(module, function, wrap(getattr(module, function)))
    provider = fake_provider.FakeProvider
    provider._steps = _wrap_steps(provider._steps)  # type: ignore[method-assign]


def pytest_runtest_teardown(item: pytest.Item) -> None:
    RECORDER.end_test()


def pytest_sessionfinish(session: pytest.Session) -> None:
    _write("fidelity", RECORDER.cases.values())
    _write("generated", _generate_cases())


def _write(name: str, cases: Any) -> None:
    CASES.mkdir(exist_ok=True)
    lines = (json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases)
    text = "".join(f"{line}\n" for line in lines)
    (CASES / f"{name}.jsonl").write_text(text, encoding="utf-8", newline="\n")


def _generate_cases() -> Iterator[Json]:
    from tests.request_strategies import anthropic_requests, openai_requests  # noqa: PLC0415

    for client, strategy in (("openai", openai_requests()), ("anthropic", anthropic_requests())):
        for body in _generate_bodies(strategy):
            yield {"client": client, "body": body}


def _generate_bodies(strategy: SearchStrategy[Json]) -> list[Json]:
    """Generate different bodies, the same in every run."""
    bodies: dict[str, Json] = {}

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(body: Json) -> None:
        text = json.dumps(body, sort_keys=True)
        if len(text) <= MAX_BODY_CHARACTERS:
            bodies.setdefault(text, body)

    collect()
    return list(bodies.values())

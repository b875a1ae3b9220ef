"""Cases from recorded requests of the fidelity tests and from generated bodies."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.differential.catalogue.builders import (
    MODES,
    PROTOCOLS,
    PROVIDERS,
    STATES,
    make_body,
    make_case,
    make_steps,
)
from tests.differential.model import Case, Json
from tests.fake_provider import Cut, Head, Send, Silence, Step

CASES = Path(__file__).parents[1] / "cases"
BEYOND = ("responses", "deepseek", "vllm")
"""Additional providers for the recorded requests."""


def _read_lines(name: str) -> list[Json]:
    text = (CASES / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def _step(recorded: list[Any]) -> Step:
    match recorded:
        case ["head", status, headers, chunked]:
            return Head(status=status, headers=headers, chunked=chunked)
        case ["text", text]:
            return Send(text.encode())
        case ["data", data]:
            return Send(base64.b64decode(data))
        case ["silence"]:
            return Silence()
        case ["cut"]:
            return Cut()
    raise ValueError(f"No step of a recorded answer: {recorded}")


def _other(values: tuple[str, ...], value: str) -> str:
    return values[(values.index(value) + 1) % len(values)]


def fidelity_cases() -> Iterator[Case]:
    """Each request as recorded, and with another mode, state or provider."""
    for number, line in enumerate(_read_lines("fidelity")):
        name = f"fidelity-{number:04}"
        protocol, provider, body = line["client"], line["kind"], line["body"]
        mode = "stream" if line["stream"] else "whole"
        if "answer" in line:
            yield from _make_answer_cases(name, number, line, mode)
            continue
        varied = [(protocol, provider, mode, "stateless")]
        if number % 2:
            varied.append((protocol, provider, _other(MODES, mode), STATES[1 + number // 2 % 2]))
        elif number % 4:
            varied.append((protocol, BEYOND[number // 4 % len(BEYOND)], mode, "stateless"))
        for dimensions in varied:
            _, at, way, state = dimensions
            steps = make_steps(state, protocol, at, body, mode=way)
            yield make_case(name, *dimensions, steps)


def _make_answer_cases(name: str, number: int, line: Json, mode: str) -> Iterator[Case]:
    """A request with a scripted response, in the recorded mode; simple ones in both protocols."""
    protocol, provider, body = line["client"], line["kind"], line["body"]
    answer = tuple(map(_step, line["answer"]))
    waits = any(isinstance(step, Silence) for step in answer)
    profile = "short-timeout" if waits else "plain"
    state = STATES[number % 3] if number % 2 else "stateless"
    steps = make_steps(state, protocol, provider, body, mode=mode, answers=[answer])
    yield make_case(name, protocol, provider, mode, state, steps, profile)
    is_plain = set(body) <= {"model", "messages", "max_tokens"} and len(body["messages"]) == 1
    if is_plain and not waits:
        other = _other(PROTOCOLS, protocol)
        state = STATES[(number + 1) % 2]
        model = {"model": body["model"]}
        steps = make_steps(
            state, other, provider, make_body(other) | model, mode=mode, answers=[answer]
        )
        yield make_case(name, other, provider, mode, state, steps, profile)


def generated_cases() -> Iterator[Case]:
    """Each generated body with two providers and alternating modes and states."""
    for number, line in enumerate(_read_lines("generated")):
        protocol, body = line["client"], line["body"]
        body = {key: value for key, value in body.items() if key != "model"}
        for turn in range(2):
            provider = PROVIDERS[(number * 2 + turn) % len(PROVIDERS) if turn else number % 3]
            mode = MODES[(number + turn) % 2]
            state = STATES[(number // 2 + turn) % 3]
            strict = {"X-CLLM-Strict": "true"} if number % 10 == 9 and turn == 0 else None
            steps = make_steps(state, protocol, provider, body, mode=mode, headers=strict)
            yield make_case(f"generated-{number:03}-{turn}", protocol, provider, mode, state, steps)

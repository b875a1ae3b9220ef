"""A body around its history: made once, and the same bytes every time."""

from typing import Any

import msgspec
import pytest
from tests.holding import most_held

from cllm.core.message import Message, Text, plain_message
from cllm.core.notice import Notice
from cllm.core.prompt import Prompt
from cllm.wire import framing
from cllm.wire.anthropic_request import EncodedRequest
from cllm.wire.framing import PLACE, framed
from cllm.wire.history import End, History
from cllm.wire.memo import Memo
from cllm.wire.spoken import Encoded


@pytest.fixture(autouse=True)
def frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "_frames", Memo(100_000))


class Encoder:
    """Encodes as a codec does, and counts."""

    def __init__(self, prompt: Prompt, **more: Any) -> None:
        self.prompt = prompt
        self.more = more
        self.times = 0

    def __call__(self, history: History) -> Encoded:
        self.times += 1
        fields = {**self.prompt.parameters, "messages": history.listed()}
        return Encoded(body=msgspec.json.encode(fields), **self.more)


def history(*said: str) -> History:
    pieces = tuple(msgspec.json.encode(text) for text in said)
    first, *rest = pieces
    more = tuple(piece for one in rest for piece in (b",", one))
    return History(said=(first, *more), ends=(End(role="user", kinds=()),))


def prompt(**parameters: Any) -> Prompt:
    return Prompt(model="m", messages=(), parameters=parameters)


def test_a_frame_is_made_once_for_all_histories_of_an_agent():
    encode = Encoder(prompt(tools=[1]))

    first = framed(encode.prompt, history("a"), encode, kind="x")
    second = framed(encode.prompt, history("a", "b"), encode, kind="x")

    assert encode.times == 1
    assert first.body == b'{"tools":[1],"messages":["a"]}'
    assert second.body == b'{"tools":[1],"messages":["a","b"]}'


@pytest.mark.parametrize(
    ("one", "other"),
    [({"top_p": 1}, {"top_p": 1.0}), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({}, {"a": None})],
)
def test_other_parameters_have_another_frame(one, other):
    bodies = [framed(p, history("a"), Encoder(p), kind="x").body for p in map(make, (one, other))]

    assert bodies == [Encoder(p)(history("a")).body for p in map(make, (one, other))]
    assert bodies[0] != bodies[1]


def make(parameters: dict[str, Any]) -> Prompt:
    return prompt(**parameters)


def test_words_that_look_like_the_place_stay_words():
    asked = prompt(user=PLACE.decode().strip('"'))
    encode = Encoder(asked)

    body = framed(asked, history("a"), encode, kind="x").body

    assert body == encode(history("a")).body


def test_what_is_changed_in_one_request_is_not_changed_in_the_next():
    encode = Encoder(prompt())
    names: Any = framed(encode.prompt, history("a"), encode, kind="x").names

    names["mine"] = "yours"

    assert framed(encode.prompt, history("a"), encode, kind="x").names == {}
    assert encode.times == 1


def test_a_request_with_aliases_is_not_remembered():
    encode = Encoder(prompt(), names={"alias": "name"})

    for _ in range(2):
        framed(encode.prompt, history("a"), encode, kind="x")

    assert encode.times == 4


def names(number: int) -> tuple[str, ...]:
    return tuple(f"tool_{number}_{n}" for n in range(500))


def ends_of_many_parts(number: int) -> tuple[End, ...]:
    return tuple(End(role="user", kinds=(Text,) * (2_000 + number)) for _ in range(2))


def lead(number: int) -> tuple[Message, ...]:
    return tuple(plain_message("system", f"{number} {n} {'x' * 20}") for n in range(50))


def notices(number: int) -> tuple[Notice, ...]:
    return tuple(
        Notice(code="field_left_out", path=f"x{number}_{n}", message=f"The field x{number}_{n}.")
        for n in range(100)
    )


def flags(number: int) -> tuple[str, ...]:
    return tuple(f"{number}{n}" for n in range(300))


OF_ANY_LENGTH: dict[str, tuple[str, Any]] = {
    "parameters": ("parameters", lambda number: {"user": f"{number}{'x' * 5_000}"}),
    "no_more_than_a_frame": ("parameters", lambda number: {"user": f"{number}"}),
    "system_prompt": ("system", lambda n: plain_message("system", f"{n}{'x' * 5_000}")),
    "lead": ("lead", lead),
    "names": ("called", names),
    "parts": ("ends", ends_of_many_parts),
    "notices": ("notices", notices),
    "flags": ("betas", flags),
}


@pytest.mark.parametrize("shape", list(OF_ANY_LENGTH))
def test_no_more_memory_is_held_than_frames_may_take(shape, monkeypatch):
    limit = 100_000
    monkeypatch.setattr(framing, "_frames", Memo(limit))
    field, value = OF_ANY_LENGTH[shape]

    def step(number: int) -> None:
        put_frame(number, **{field: value(number)})

    put_frame(-1)
    assert limit / 4 < most_held(step, times=150) < 1.5 * limit


def put_frame(number: int, **fields: Any) -> None:
    """Have a frame of its own made, of which one field may be of any length."""
    asked = Prompt(
        model=f"m{number}",
        messages=(),
        parameters=fields.get("parameters", {}),
        system=fields.get("system"),
    )
    told = {name: fields[name] for name in ("notices", "betas") if name in fields}
    about = {name: fields[name] for name in ("lead", "called", "ends") if name in fields}

    def encode(history: History) -> Encoded:
        body = msgspec.json.encode({**asked.parameters, "messages": history.listed()})
        return EncodedRequest(body=body, **told)

    framed(asked, msgspec.structs.replace(history("a"), **about), encode, kind="x")

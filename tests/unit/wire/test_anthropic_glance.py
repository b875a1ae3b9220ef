"""Requests of Anthropic's that are sent as they came at a glance, as after a long look."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cllm.core.errors import UnsendableError
from cllm.core.prompt import Prompt
from cllm.providers.mending import mending_for
from cllm.wire.anthropic_betas import read_betas
from cllm.wire.anthropic_glance import is_plain_talk
from cllm.wire.anthropic_request import EncodedRequest, decode_request
from cllm.wire.body import encode_anthropic
from cllm.wire.malformed import MalformedError
from cllm.wire.spoken import Encoded
from cllm.wire.translate import Translated

MODELS = (
    "claude-sonnet-4-5",
    "claude-3-5-haiku-20241022",
    "claude-opus-4-6",
    "claude-opus-4-8",
    "claude-opus-5-5",
    "claude-fable-5",
    "some-model",
)
MARK = {"type": "ephemeral"}
SHORT = {"type": "text", "text": "A", "cache_control": MARK}
LONG = {"type": "text", "text": "B", "cache_control": {**MARK, "ttl": "1h"}}
UNMARKED = {"type": "text", "text": "C"}
TOOL: dict[str, Any] = {"name": "f", "input_schema": {"type": "object"}}
LONG_NAME = "f" * 129
PLAIN: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 5000,
    "messages": [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": [{"type": "text", "text": "Hi."}]},
        {"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]},
    ],
}


def read(fields: dict[str, Any], **how: Any) -> Prompt:
    return decode_request(json.dumps(fields, **how).encode())


def unmarked(said: Translated) -> Translated:
    """Marks nothing, but may have: every request is looked into for it."""
    return said


def encoded(prompt: Prompt, **more: Any) -> Encoded:
    mend = mending_for("anthropic", prompt.model, provider="x")
    return encode_anthropic(prompt, default_max_tokens=9, mend=mend, **more)


def looked_into(prompt: Prompt) -> Encoded:
    return encoded(prompt, mark=unmarked)


def outcome(prompt: Prompt, **more: Any) -> tuple[object, ...]:
    """What is sent and told of it, or why nothing is."""
    try:
        made = encoded(prompt, **more)
    except (MalformedError, UnsendableError) as error:
        return type(error), str(error)
    return made.body, made.notices, made.names, made.ids


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"stream": True},
        {"system": "Be brief."},
        {"system": [{"type": "text", "text": "Be brief.", "cache_control": MARK}]},
        {"system": ""},
        {"temperature": 0.5, "metadata": {"user_id": "u"}, "stop_sequences": ["x"]},
        {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        {"tools": [TOOL, {**TOOL, "name": "g", "cache_control": MARK}]},
        {"unheard_of": {"deep": [None, 1e3]}},
        {"messages": [{"content": "Hello", "role": "user"}]},
    ],
)
def test_plain_talk_is_not_looked_into(more):
    def never(_messages: Any) -> Any:
        raise AssertionError("the history was looked into")

    prompt = read({**PLAIN, **more}, indent=1)
    made = encode_anthropic(prompt, default_max_tokens=9, mend=never)

    assert is_plain_talk(prompt)
    assert prompt.original is not None
    assert made.body is prompt.original.body
    assert made.body == looked_into(prompt).body


def said(*contents: Any) -> dict[str, Any]:
    """Messages of these contents, in turn."""
    roles = ("user", "assistant") * len(contents)
    talk = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]
    return {"messages": talk}


@pytest.mark.parametrize(
    "more",
    [
        {"max_tokens": None},
        {"system": " "},
        {"system": [{"type": "text", "text": "A"}, {"type": "text", "text": "\n"}]},
        {"system": [{"type": "image", "source": {"type": "url", "url": "http://x"}}]},
        {"system": [{"type": "text", "text": "A", "cache_control": MARK}], "cache_control": MARK},
        {"temperature": 2},
        {"temperature": 0.5, "top_p": 0.5},
        {"thinking": {"type": "enabled", "budget_tokens": 1}},
        {"thinking": {"type": "adaptive"}},
        {"tool_choice": {"type": "auto"}},
        {"tools": [{**TOOL, "name": LONG_NAME}]},
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": LONG_NAME}},
        {"tools": [{**TOOL, "cache_control": MARK}, {**TOOL, "cache_control": MARK}]},
        {"messages": []},
        said(""),
        said(" \n"),
        said([]),
        said([{"type": "text", "text": ""}]),
        said("Hello", "Hi"),
        said("Hello", "Hi", [{"type": "text", "text": "A", "cache_control": MARK}]),
        said([{"type": "text", "text": "A", "odd": 1}]),
        said([{"type": "unheard_of", "text": "A"}]),
        said([{"type": "image", "source": {"type": "url", "url": "http://x"}}]),
        {"messages": [{"role": "user", "content": "Hello", "odd": 1}]},
        {"messages": [{"role": "assistant", "content": "Hello"}]},
        {"messages": [{"role": "user", "content": "A"}] * 3},
        {"messages": [{"role": "system", "content": "A"}, {"role": "user", "content": "A"}]},
    ],
)
def test_all_that_may_have_to_change_is_looked_into(more):
    assert not is_plain_talk(read({**PLAIN, **more}))


def test_a_prompt_that_is_no_longer_its_client_s_body_is_written_anew():
    prompt = read(PLAIN)
    changed = replace(prompt, parameters={**prompt.parameters, "max_tokens": 7})

    sent = json.loads(encode_anthropic(changed, default_max_tokens=9).body)
    assert sent == {**PLAIN, "max_tokens": 7}


texts = st.one_of(
    st.text(min_size=1, max_size=8),
    st.sampled_from(["", " ", "\n", "\u00a0", "\u2028", "\x1c", "\u200b", "\ufeff", "Hello", "ü"]),
)
marks = st.sampled_from([{}, {}, {"cache_control": MARK}, {"cache_control": {**MARK, "ttl": "1h"}}])
odd = st.sampled_from([{}, {}, {}, {"odd": 1}, {"citations": []}, {"citations": [{"a": 1}]}])
text_blocks = st.builds(lambda t, m, o: {"type": "text", "text": t, **m, **o}, texts, marks, odd)
blocks = st.one_of(
    texts.map(lambda text: {"type": "text", "text": text}),
    texts.map(lambda text: {"type": "text", "text": text}),
    text_blocks,
    st.sampled_from(
        [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "thinking", "thinking": "hm"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}},
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": ""},
            },
            {"type": "tool_use", "id": "t", "name": "f", "input": {}},
            {"type": "tool_use", "id": "t" * 65, "name": LONG_NAME, "input": {}},
            {"type": "tool_result", "tool_use_id": "t", "content": "1"},
            {"type": "tool_result", "tool_use_id": "t", "content": ""},
            {"type": "unheard_of"},
            {"type": "text"},
            {"text": "no type"},
        ]
    ),
)
contents = st.one_of(
    texts, texts, st.lists(texts.map(lambda t: {"type": "text", "text": t}), max_size=2),
    st.lists(blocks, max_size=3), st.none(),
)  # fmt: skip
beside: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {}, {}, {}, {"odd": 1}, {"odd": None}, {"name": ""}]
)
roles = st.sampled_from(["user", "assistant", "user", "assistant", "system"])


@st.composite
def talks(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Messages, mostly in turn, and mostly up to one of the user's."""
    in_turn = draw(st.sampled_from([True, True, True, False]))
    count = draw(st.sampled_from([1, 3, 5, 1, 3, 0, 2, 4]))
    found = []
    for place in range(count):
        role = ("user", "assistant")[place % 2] if in_turn else draw(roles)
        found.append({"role": role, "content": draw(contents), **draw(beside)})
    return found


tools = st.lists(
    st.builds(
        lambda name, more, mark: {**TOOL, "name": name, **more, **mark},
        st.sampled_from(["f", "g", LONG_NAME, "", "a b"]),
        st.sampled_from([{}, {"odd": 1}, {"type": "custom"}, {"type": "bash_20250124"}]),
        marks,
    ),
    max_size=3,
)
PARAMETERS: dict[str, st.SearchStrategy[Any]] = {
    "max_tokens": st.sampled_from([1, 5000, 10**30, None, None, 0]),
    "temperature": st.sampled_from([0, 0.5, 1, 1.0, 2, None]),
    "top_p": st.sampled_from([0.5, 0.95, 1, None]),
    "top_k": st.sampled_from([1, 40, None]),
    "stop_sequences": st.sampled_from([["x"], [" "], [], None]),
    "thinking": st.sampled_from(
        [
            {"type": "disabled"},
            {"type": "adaptive"},
            {"type": "adaptive", "display": "omitted"},
            {"type": "enabled", "budget_tokens": 1024},
            {"type": "enabled", "budget_tokens": 6000},
            {"type": "enabled"},
            {"type": "unheard_of"},
            {},
            None,
        ]
    ),
    "output_config": st.sampled_from([{"effort": "max"}, {"effort": "low"}, {"odd": 1}, {}, None]),
    "tools": st.one_of(tools, st.none(), st.just([5])),
    "tool_choice": st.sampled_from(
        [{"type": "auto"}, {"type": "any"}, {"type": "tool", "name": LONG_NAME}, None, {}, "auto"]
    ),
    "metadata": st.sampled_from([{"user_id": "u"}, {}, None]),
    "cache_control": st.sampled_from([MARK, None]),
    "thread": st.sampled_from([{"type": "continue", "id": "x"}, None]),
    "odd": st.sampled_from([{"deep": [1.0, None]}, 10**30, "ü", False]),
    "stream": st.sampled_from([True, False, None]),
    "system": st.one_of(
        st.lists(st.sampled_from([SHORT, LONG, UNMARKED]), min_size=2, max_size=6),
        texts,
        st.lists(text_blocks, max_size=3),
        st.lists(blocks, max_size=2),
        st.none(),
    ),
}


def bodies_of(
    talk: st.SearchStrategy[Any], names: Sequence[str]
) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda model, said, more: {
            "model": model,
            "max_tokens": 5000,
            **more,
            "messages": said,
        },
        st.sampled_from(MODELS),
        talk,
        st.fixed_dictionaries({}, optional={name: PARAMETERS[name] for name in names}),
    )


plain_talk = st.sampled_from([said("A"), said("A"), said("A", "B", "C"), said("A", "B")]).map(
    lambda talk: talk["messages"]
)
bodies = st.one_of(
    bodies_of(plain_talk, ["system", "cache_control", "tools"]),
    bodies_of(plain_talk, ["temperature", "top_p", "top_k", "thinking", "max_tokens"]),
    bodies_of(plain_talk, ["tools", "tool_choice", "thinking", "output_config"]),
    bodies_of(plain_talk, list(PARAMETERS)),
    bodies_of(talks(), []),
    bodies_of(talks(), ["system", "temperature", "stream"]),
    bodies_of(talks(), list(PARAMETERS)),
)
writings = st.sampled_from(
    [{}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}, {"sort_keys": True}]
)
flags = st.sampled_from([None, None, ["context-1m-2025-08-07"], ["unheard-of"], []])


@settings(max_examples=600)
@given(bodies, writings, flags)
def test_what_is_plain_at_a_glance_would_be_sent_as_it_is_after_a_long_look(body, how, betas):
    try:
        prompt = read(body, **how)
    except MalformedError:
        return
    original = prompt.original
    assert original is not None
    if betas is not None:
        # As the server does with a header.
        asked = {**prompt.parameters, "betas": betas}
        original = replace(original, parameters=asked)
        prompt = replace(prompt, parameters=asked, original=original)
    if not is_plain_talk(prompt):
        return
    long = looked_into(prompt)
    assert isinstance(long, EncodedRequest)
    assert (long.body, long.notices, long.names, long.ids) == (original.body, (), {}, {})
    assert long.own
    assert long.betas == read_betas(betas)
    assert encode_anthropic(prompt, default_max_tokens=9).body is original.body
    assert json.loads(original.body) == body


@settings(max_examples=300)
@given(bodies, writings)
def test_with_and_without_a_glance_the_same_is_sent_told_and_refused(body, how):
    try:
        prompt = read(body, **how)
    except MalformedError:
        return

    assert outcome(prompt, mark=unmarked) == outcome(prompt)


@pytest.mark.parametrize(
    "message",
    [
        b'{"role":"user","content":"","content":"Hello"}',
        b'{"role":"user","content":"Hello","content":" "}',
        b'{"role":"user","content":[{"type":"text","type":"image","text":"A"}]}',
        b'{"role":"user","content":[{"type":"image","text":"A","type":"text"}]}',
        b'{"role":"user","role":"assistant","content":"Hello"}',
        b'{"role":"assistant","role":"user","content":"Hello"}',
        b'{"role":"user","content":"\\u0020"}',
        b'{"r\\u006fle":"user","content":"Hello"}',
    ],
)
def test_a_field_that_is_there_twice_or_is_written_oddly_makes_no_difference(message):
    body = b'{"model":"claude-sonnet-4-5","max_tokens":5,"messages":[%b]}' % message
    prompt = decode_request(body)

    assert outcome(prompt, mark=unmarked) == outcome(prompt)

"""A prompt with cache marks says what one without them says, and keeps the rules of marks."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fake_cache import PromptCache
from tests.request_validation import validate_anthropic_request, validate_bedrock_request

from cllm.core.message import Dialect, Message, Role, plain_message
from cllm.core.prompt import Continuity, Prompt
from cllm.providers.history import cache_control_for, repair_for
from cllm.wire.convert import AddCacheControl, encode_anthropic, encode_bedrock, no_cache_control
from cllm.wire.messages import EncodedRequest

LONG = "All work and no play makes Jack a dull boy. " * 120
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
MODELS: tuple[tuple[Dialect, str], ...] = (
    ("anthropic", "claude-sonnet-4-5"),
    ("bedrock", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    ("bedrock", "amazon.nova-pro-v1:0"),
)
TEXTS = st.sampled_from(["Hello", "Well?", " ", "", LONG])


def _message(role: Role, dialect: Dialect = "openai", **fields: Any) -> Message:
    raw = json.dumps({"role": role, **fields}).encode()
    return Message(role=role, raw=raw, dialect=dialect)


@st.composite
def _user(draw: Any) -> list[Message]:
    texts = draw(st.lists(TEXTS, min_size=1, max_size=4))
    if draw(st.booleans()):
        return [plain_message("user", f"So: {texts[0]}")]
    blocks = [{"type": "text", "text": text} for text in ("So", *texts)]
    return [_message("user", draw(st.sampled_from(["openai", "anthropic"])), content=blocks)]


@st.composite
def _answer(draw: Any) -> list[Message]:
    said = {"type": "text", "text": draw(st.sampled_from(["Yes", LONG]))}
    thought = {"type": "thinking", "thinking": "Hm", "signature": "c2ln"}
    blocks = [thought, said] if draw(st.booleans()) else [said]
    return [_message("assistant", "anthropic", content=blocks)]


@st.composite
def _round(draw: Any) -> list[Message]:
    """Calls and their results; the last ones may be missing, as after an interruption."""
    count = draw(st.integers(1, 24))
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        for n in range(count)
    ]
    answered = draw(st.sampled_from([count, count, count - 1]))
    text = draw(st.sampled_from([None, "Looking"]))
    return [
        _message("assistant", content=text, tool_calls=calls),
        *(
            _message("tool", tool_call_id=f"c{n}", content=draw(st.sampled_from(["fine", ""])))
            for n in range(answered)
        ),
    ]


@st.composite
def _histories(draw: Any) -> tuple[Message, ...]:
    turns = [
        message
        for _ in range(draw(st.integers(0, 4)))
        for piece in (_user(), *([_round()] * draw(st.integers(0, 2))), _answer())
        for message in draw(piece)
    ]
    return (*turns, *draw(_user()))


@st.composite
def _prompts(draw: Any) -> Prompt:
    messages = draw(_histories())
    fresh = draw(st.integers(1, len(messages)))
    passing = draw(st.sampled_from([0, 0, 1]))
    return Prompt(
        model="",
        system=plain_message("system", draw(st.sampled_from(["Be brief.", LONG]))),
        messages=messages,
        parameters={"tools": [TOOL]},
        stream=False,
        continuity=Continuity(fresh=max(fresh, passing), passing=passing),
    )


def _encoded(prompt: Prompt, dialect: Dialect, mark: AddCacheControl) -> EncodedRequest:
    repair = repair_for(dialect, prompt.model, provider="test")
    if dialect == "bedrock":
        return encode_bedrock(prompt, repair=repair, cache_control=mark)
    return encode_anthropic(prompt, default_max_tokens=100, repair=repair, cache_control=mark)


def _without_marks(said: Any) -> Any:
    """A body, or a piece of one, with its marks gone and its plain texts as blocks."""
    if isinstance(said, dict):
        listed = {"content", "system"} & {name for name in said if isinstance(said[name], str)}
        whole = said | {name: [{"type": "text", "text": said[name]}] for name in listed}
        return {name: _without_marks(whole[name]) for name in whole if name != "cache_control"}
    if isinstance(said, list):
        return [_without_marks(block) for block in said if "cachePoint" not in block]
    return said


@pytest.mark.parametrize(("dialect", "model"), MODELS)
@given(prompt=_prompts())
@settings(deadline=None, max_examples=60)
def test_a_marked_prompt_says_what_it_said_and_keeps_the_rules_of_marks(dialect, model, prompt):
    prompt = msgspec.structs.replace(prompt, model=model)
    mark = cache_control_for(dialect, model, prompt.continuity)

    plain = _encoded(prompt, dialect, no_cache_control)
    marked = _encoded(prompt, dialect, mark)

    said = json.loads(marked.body)
    assert _without_marks(said) == _without_marks(json.loads(plain.body))
    assert marked.notices == plain.notices
    assert marked.body == _encoded(prompt, dialect, mark).body
    assert PromptCache(minimum=0).count(said).marks <= 4
    if dialect == "bedrock":
        validate_bedrock_request(marked.body, model=model)
    else:
        validate_anthropic_request(marked.body, sampling=False)

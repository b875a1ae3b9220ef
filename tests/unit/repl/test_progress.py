"""Texts about a turn that takes long or is interrupted."""

import pytest
from tests.turn_requests import make_turn_request

from cllm.core.message import plain_message
from cllm.core.prompt import Prompt
from cllm.engine.request import TurnStarted
from cllm.repl.progress import describe_interrupted, describe_reading


@pytest.mark.parametrize(
    ("storage", "text"),
    [
        ({"ref": "demo"}, "The partial reply is saved."),
        ({"ref": "demo", "on_interrupt": "discard"}, "Nothing is saved."),
        ({"ref": "demo", "read_only": True}, "Nothing is saved."),
        ({"ref": None}, "Nothing is saved."),
    ],
)
def test_an_interrupted_turn_says_whether_it_is_saved(storage, text):
    assert describe_interrupted(make_turn_request(messages=(), model="m", **storage)) == text


@pytest.mark.parametrize(
    ("model", "words", "is_described"),
    [("local/smollm2-135m", 9000, True), ("local/x.gguf", 9, False), ("openai/x", 9000, False)],
)
def test_a_long_prompt_of_a_local_model_is_described(model, words, is_described):
    message = plain_message("user", "word " * words)
    event = TurnStarted(
        conversation=None, model=model, prompt=Prompt(model=model, messages=(message,))
    )

    reading = describe_reading(event)

    assert (reading is not None) is is_described
    assert reading is None or "tokens before it answers" in reading

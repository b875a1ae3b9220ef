"""Texts about a turn that takes long or is interrupted."""

import pytest
from tests.turn_requests import make_turn_request

from cllm.core.message import plain_message
from cllm.core.prompt import Prompt
from cllm.core.reply import RefusalDelta, ReplyFinished, TextDelta, ThinkingDelta
from cllm.engine.request import TurnQueued, TurnStarted
from cllm.engine.tool_rounds import ToolRoundEnded
from cllm.repl.progress import TurnProgress, describe_reading

STARTED = TurnStarted(conversation="demo", model="m", prompt=Prompt(model="m", messages=()))
ROUND = ToolRoundEnded(
    reply=ReplyFinished(message=plain_message("assistant", ""), stop_reason="tool_calls"),
    results=(),
)


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
    progress = TurnProgress(make_turn_request(messages=(), model="m", **storage))
    for event in (STARTED, TextDelta(text="Once")):
        progress.on_event(event)

    assert progress.describe_interrupted() == text


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([], "Nothing is saved."),
        ([TurnQueued(conversation="demo")], "Nothing is saved."),
        ([STARTED], "Your message is saved."),
        ([STARTED, ThinkingDelta(text="Hm.")], "Your message is saved."),
        ([STARTED, TextDelta(text="")], "Your message is saved."),
        ([STARTED, RefusalDelta(text="No")], "The partial reply is saved."),
        ([STARTED, ROUND], "The partial reply is saved."),
    ],
)
def test_an_interrupted_turn_says_which_part_of_it_is_saved(events, text):
    progress = TurnProgress(make_turn_request(messages=(), model="m", ref="demo"))
    for event in events:
        progress.on_event(event)

    assert progress.describe_interrupted() == text


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
    assert reading is None or "tokens before it replies" in reading

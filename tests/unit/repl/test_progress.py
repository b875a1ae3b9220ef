"""Texts about a turn that takes long, is interrupted or fails."""

from datetime import UTC, datetime

import msgspec
import pytest
from tests.turn_requests import make_turn_request

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.errors import BrokenStreamError, ReplySchemaError, UnsendableError
from cllm.core.message import plain_message
from cllm.core.ports import Lease
from cllm.core.prompt import Prompt
from cllm.core.reply import RefusalDelta, ReplyFinished, TextDelta, ThinkingDelta
from cllm.engine.request import TurnQueued, TurnStarted
from cllm.engine.tool_rounds import ToolRoundEnded
from cllm.repl.progress import TurnProgress, describe_reading

NOW = datetime(2026, 11, 15, tzinfo=UTC)
UNSAVED = TurnStarted(conversation="demo", model="m", prompt=Prompt(model="m", messages=()))
STARTED = msgspec.structs.replace(
    UNSAVED,
    lease=Lease(
        conversation=StoredConversation(id="demo", created_at=NOW, updated_at=NOW),
        turn=Turn(id="t", place="t", state="running", messages=(), started_at=NOW),
        fence=1,
        created=True,
        visible=True,
    ),
)
ROUND = ToolRoundEnded(
    reply=ReplyFinished(message=plain_message("assistant", ""), stop_reason="tool_calls"),
    results=(),
)


@pytest.mark.parametrize(
    ("started", "on_interrupt", "text"),
    [
        (STARTED, "keep", "The partial reply is saved."),
        (STARTED, "discard", "Nothing is saved."),
        (UNSAVED, "keep", "Nothing is saved."),
    ],
)
def test_an_interrupted_turn_says_whether_it_is_saved(started, on_interrupt, text):
    request = make_turn_request(messages=(), model="m", ref="demo", on_interrupt=on_interrupt)
    progress = TurnProgress(request)
    for event in (started, TextDelta(text="Once")):
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
    ("events", "error", "is_saved"),
    [
        ([], BrokenStreamError("No.", provider="p"), False),
        ([UNSAVED], BrokenStreamError("No.", provider="p"), False),
        ([STARTED], BrokenStreamError("No.", provider="p"), True),
        ([STARTED], UnsendableError("No.", provider="p"), False),
        ([STARTED, ROUND], UnsendableError("No.", provider="p"), True),
        ([STARTED, TextDelta(text="{")], ReplySchemaError("No.", place="$"), False),
    ],
)
def test_a_failed_turn_is_saved_if_its_provider_was_called(events, error, is_saved):
    progress = TurnProgress(make_turn_request(messages=(), model="m", ref="demo"))
    for event in events:
        progress.on_event(event)

    assert progress.is_saved_after(error) is is_saved


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

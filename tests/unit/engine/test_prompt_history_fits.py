"""A history of at most half the budget needs no plan, which would send all of it."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from cllm.core.conversation import StoredConversation, Turn, WindowRecord
from cllm.core.message import Message, plain_message
from cllm.core.prompt import Prompt
from cllm.core.reply import Usage
from cllm.engine.prompt_builder import trim_to_window
from cllm.engine.prompt_history import ModelContext, PromptHistory
from cllm.window.strategies import ByTokens

BEGAN = datetime(2026, 11, 15, tzinfo=UTC)
WHOLE_PLAN = ByTokens(max_tokens=10**9)
TEXTS = st.sampled_from(["a", "word ", "語", "\n", "0", "{}"])
USAGES = st.builds(Usage, input=st.integers(0, 5000), output=st.integers(0, 500)) | st.none()


@st.composite
def conversations(draw) -> StoredConversation:
    count = draw(st.integers(0, 12))
    turns = tuple(
        Turn(
            id=f"t{number}",
            place=f"t{number}",
            state="complete",
            messages=(
                plain_message("user", draw(TEXTS) * draw(st.integers(1, 400))),
                plain_message("assistant", draw(TEXTS) * draw(st.integers(1, 400))),
            ),
            started_at=BEGAN,
            ended_at=BEGAN,
            model="m",
            usage=draw(USAGES),
            window=WindowRecord(first_sequence=1, sent_messages=2 * number + 1),
        )
        for number in range(count)
    )
    pins = tuple(sorted(draw(st.sets(st.integers(1, 2 * count + 1), max_size=2))))
    return StoredConversation(id="demo", created_at=BEGAN, updated_at=BEGAN, turns=turns, pins=pins)


@given(
    conversation=conversations(),
    window=st.integers(100, 40_000) | st.none(),
    seconds=st.sampled_from([0, 100_000]),
)
def test_the_plan_of_a_history_that_fits_sends_everything(conversation, window, seconds):
    new_message = plain_message("user", "And now?")
    prompt = Prompt(model="m", messages=(*conversation.messages, new_message))
    model_context = ModelContext(
        model="m",
        provider="openai",
        context_window=lambda: window,
        now=BEGAN + timedelta(seconds=seconds),
    )
    if PromptHistory(prompt, conversation, model_context=model_context).fits_whole:
        planned = trim_to_window(prompt, conversation, WHOLE_PLAN, model_context=model_context)
        assert planned.messages == prompt.messages


def fits(message: Message, window: int) -> bool:
    prompt = Prompt(model="m", messages=(message,))
    model_context = ModelContext(
        model="m", provider="openai", context_window=lambda: window, now=BEGAN
    )
    return PromptHistory(prompt, None, model_context=model_context).fits_whole


def test_a_history_above_half_of_the_window_needs_a_plan():
    long = plain_message("user", "word " * 2000)

    assert fits(long, 20_000)
    assert not fits(long, 3_000)


def test_a_file_counts_as_more_than_its_address():
    raw = b'{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y"}}]}'

    assert not fits(Message(role="user", raw=raw), 2_500)


def answered(number: int, *, usage: Usage, first: int = 1) -> Turn:
    """Return turn `number`, from 0, whose prompt started with message `first`."""
    return Turn(
        id=f"t{number}",
        place=f"t{number}",
        state="complete",
        messages=(plain_message("user", "word " * 1000), plain_message("assistant", "Fine.")),
        started_at=BEGAN,
        ended_at=BEGAN,
        model="m",
        usage=usage,
        window=WindowRecord(first_sequence=first, sent_messages=2 * number + 2 - first),
    )


def fits_after(
    *turns: Turn, window: int, text: str = "And now?", pins: tuple[int, ...] = ()
) -> bool:
    conversation = StoredConversation(
        id="demo", created_at=BEGAN, updated_at=BEGAN, turns=turns, pins=pins
    )
    prompt = Prompt(model="m", messages=(*conversation.messages, plain_message("user", text)))
    model_context = ModelContext(
        model="m", provider="openai", context_window=lambda: window, now=BEGAN
    )
    return PromptHistory(prompt, conversation, model_context=model_context).fits_whole


def test_messages_since_the_last_count_are_counted():
    turn = answered(0, usage=Usage(input=1200, output=10))

    assert fits_after(turn, window=10_000)
    assert not fits_after(turn, window=10_000, text="word " * 8000)


def test_the_reply_to_the_last_counted_prompt_is_counted():
    assert fits_after(answered(0, usage=Usage(input=1200, output=10)), window=10_000)
    assert not fits_after(answered(0, usage=Usage(input=1200, output=5000)), window=10_000)


def test_the_count_of_a_trimmed_prompt_does_not_cover_all_messages():
    usage = Usage(input=1200, output=10)
    earlier = [answered(number, usage=usage) for number in range(9)]

    assert not fits_after(*earlier, answered(9, usage=usage, first=19), window=10_000)


def test_a_conversation_with_a_pin_needs_a_plan():
    turn = answered(0, usage=Usage(input=1200, output=10))

    assert not fits_after(turn, window=10_000, pins=(1,))

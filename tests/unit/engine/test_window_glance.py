"""The first look at a prompt's bytes: what it lets through, the whole plan would send whole too."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from cllm.assembly.window import ByTokens
from cllm.core.conversation import Conversation, Turn, WindowRecord
from cllm.core.message import Message, plain_message
from cllm.core.prompt import Prompt
from cllm.engine.log import Log, Served
from cllm.engine.prompt_builder import cut_to_window

BEGAN = datetime(2026, 11, 15, tzinfo=UTC)
WHOLE_PLAN = ByTokens(max_tokens=10**9)
TEXTS = st.sampled_from(["a", "word ", "語", "\n", "0", "{}"])


@st.composite
def conversations(draw) -> Conversation:
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
            window=WindowRecord(first_sequence=1, sent_messages=2 * number + 1),
        )
        for number in range(draw(st.integers(0, 12)))
    )
    return Conversation(id="demo", created_at=BEGAN, updated_at=BEGAN, turns=turns)


@given(
    conversation=conversations(),
    window=st.integers(100, 40_000) | st.none(),
    seconds=st.sampled_from([0, 100_000]),
)
def test_what_fits_at_a_glance_is_sent_whole_by_the_whole_plan_too(conversation, window, seconds):
    said = plain_message("user", "And now?")
    prompt = Prompt(model="m", messages=(*conversation.messages, said))
    served = Served(
        model="m",
        provider="openai",
        context_window=lambda: window,
        now=BEGAN + timedelta(seconds=seconds),
    )
    if Log(prompt, conversation, served=served).fits_at_a_glance:
        planned = cut_to_window(prompt, conversation, WHOLE_PLAN, served=served)
        assert planned.messages == prompt.messages


def glance(message: Message, window: int) -> bool:
    prompt = Prompt(model="m", messages=(message,))
    served = Served(model="m", provider="openai", context_window=lambda: window, now=BEGAN)
    return Log(prompt, None, served=served).fits_at_a_glance


def test_what_is_less_than_half_of_what_a_model_takes_is_not_counted():
    long = plain_message("user", "word " * 1000)

    assert glance(long, 100_000)
    assert not glance(long, 6_000)


def test_a_file_is_never_weighed_by_its_name():
    raw = b'{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y"}}]}'

    assert not glance(Message(role="user", raw=raw), 100_000)

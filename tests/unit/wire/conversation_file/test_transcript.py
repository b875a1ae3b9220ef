"""Transcripts in Markdown and HTML."""

from datetime import UTC, datetime
from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.message_strategies import messages

from cllm.core.conversation import StoredConversation, SystemRecord, Turn, TurnState
from cllm.core.message import Message, plain_message
from cllm.wire.conversation_file.transcript import (
    HTML_END,
    CodeBlock,
    TextBlock,
    Transcript,
    TranscriptMessage,
    encode_markdown,
    start_html,
    transcript_of,
)

NOW = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)


def conversation(*messages: Message, state: TurnState = "complete", **fields) -> StoredConversation:
    turn = Turn(id="t", place="t", state=state, messages=messages, started_at=NOW)
    known = {"id": "c", "created_at": NOW, "updated_at": NOW, "model": "openai/gpt-test"}
    return StoredConversation(turns=(turn,), **{**known, **fields})


def encode_html(transcript: Transcript) -> str:
    return start_html(transcript) + HTML_END


class _Words(HTMLParser):
    """The words of a page, and the elements it has."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.elements: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        assert all(not name.startswith("on") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_messages_have_role_and_number_as_heading():
    text = encode_markdown(
        transcript_of(
            conversation(
                plain_message("user", "Hello"), plain_message("assistant", "Hi"), title="Greetings"
            ),
            shown_id="files:c",
        )
    )

    assert text == (
        "# Greetings\n\nfiles:c · openai/gpt-test · 2026-11-15 09:30 UTC\n\n"
        "## User 1\n\nHello\n\n## Assistant 2\n\nHi\n"
    )


def test_thinking_calls_results_and_files_are_shown():
    blocks = [
        {"type": "thinking", "thinking": "First\nsecond", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"a": 1}},
    ]
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "is_error": True,
        "content": [
            {"type": "text", "text": "broken"},
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
            },
        ],
    }
    messages = (
        Message(
            role="assistant",
            dialect="anthropic",
            raw=msgspec.json.encode({"role": "assistant", "content": blocks}),
        ),
        Message(
            role="tool",
            dialect="anthropic",
            raw=msgspec.json.encode({"role": "user", "content": [result]}),
        ),
    )

    text = encode_markdown(transcript_of(conversation(*messages)))

    assert "*thinking*\n\n> First\n> second" in text
    assert "*encrypted thinking*" in text
    assert "*tool call: look_up*" in text
    assert "*tool error*\n\n```\nbroken\n```" in text
    assert "*image (image/png)*" in text


@pytest.mark.parametrize(
    ("policy", "is_shown"), [("captured", True), ("pinned", True), ("dynamic", False)]
)
def test_a_stored_system_prompt_is_shown(policy, is_shown):
    stored = conversation(
        plain_message("user", "Hello"),
        plain_message("system", "in between"),
        system=plain_message("system", "Be brief."),
        system_record=SystemRecord(policy=policy),
    )

    for text in (encode_markdown(transcript_of(stored)), encode_html(transcript_of(stored))):
        assert ("Be brief." in text) == is_shown
        assert "in between" not in text


def test_the_state_of_an_incomplete_turn_is_shown():
    failed = conversation(plain_message("user", "Hello"), state="failed")

    assert "## User 1 (failed)" in encode_markdown(transcript_of(failed))
    assert "<h2>User 1 (failed)</h2>" in encode_html(transcript_of(failed))


@given(st.lists(messages(), max_size=4))
def test_any_conversation_has_a_transcript(messages):
    stored = conversation(*messages, title="<b>&\n#")

    assert encode_markdown(transcript_of(stored))
    page = _Words()
    page.feed(encode_html(transcript_of(stored)))
    assert page.elements <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "pre", "blockquote",
    }  # fmt: skip


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=40))
def test_text_is_escaped(text):
    speech = TranscriptMessage(
        role_name="User", blocks=(TextBlock(text), CodeBlock("tool result", text))
    )
    transcript = Transcript(
        title="x", id="c", model=None, created_at=NOW, updated_at=NOW, messages=(speech,)
    )
    page = _Words()
    page.feed(encode_html(transcript))
    page.close()

    assert "".join(page.words).count(text) >= 2 if text else True


@given(st.text(st.sampled_from("`a\n "), max_size=30))
def test_backticks_do_not_close_a_fence(text):
    speech = TranscriptMessage(role_name="Tool", blocks=(CodeBlock("tool result", text),))
    transcript = Transcript(
        title="x", id="c", model=None, created_at=NOW, updated_at=NOW, messages=(speech,)
    )
    _, _, fenced = encode_markdown(transcript).partition("*tool result*\n\n")
    fence = fenced.partition("\n")[0]

    assert set(fence) == {"`"}
    assert fence not in text
    assert fenced == f"{fence}\n{text}\n{fence}\n"

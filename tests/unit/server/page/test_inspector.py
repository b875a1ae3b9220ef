"""What the model saw: the prompt, the bar, what was left out, figures."""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from tests.hostile_texts import HOSTILE_TEXTS, find_problems
from tests.server_app import ServerApp, open_server_app, openai_messages

from cllm.core.conversation import SystemRecord, Turn, WindowRecord
from cllm.core.message import plain_message
from cllm.core.ports import NewConversation, Opening
from cllm.core.reply import Usage
from cllm.engine.sent_prompt import Kind, LeftOutView, PromptView, SentView
from cllm.server.page.inspector import (
    MAX_CONTENT,
    MAX_HISTORY,
    list_figures,
    list_rows,
    list_segments,
)

SECRET = "SECRET-SYSTEM-TEXT"


@pytest.fixture
async def server(tmp_path) -> AsyncIterator[ServerApp]:
    async with open_server_app(tmp_path) as running:
        yield running


async def get_inspector(server: ServerApp, path: str) -> str:
    response = await server("GET", f"/c/{path}?part=inspector")
    assert response.status_code == 200, response.text
    return response.text


def make_prompt(*sent: SentView, **fields) -> PromptView:
    defaults = {
        "turn_id": "t",
        "model": "m",
        "provider": "p",
        "system_policy": "captured",
        "exact": True,
        "from_client": False,
        "left_out": (),
        "estimated_tokens": sum(one.tokens or 0 for one in sent),
    }
    return PromptView(sent=sent, **{**defaults, **fields})


def sent(kind: Kind, tokens: int | None = 10, content="x", **fields) -> SentView:
    role = "system" if kind in {"system", "template"} else "user"
    return SentView(kind=kind, role=role, content=content, tokens=tokens, **fields)


class TestBar:
    def test_the_segments_have_the_share_of_the_window(self):
        prompt = make_prompt(sent("system", 100), sent("history", 300), sent("request", 100))

        segments = list_segments(prompt, 1000)

        assert [(one.kind, one.tokens, one.x, one.width) for one in segments] == [
            ("system", "100", 0, 100),
            ("history", "300", 100, 300),
            ("request", "100", 400, 100),
            ("free", "500", 0, 0),
        ]

    def test_the_segments_together_have_the_counted_length(self):
        prompt = make_prompt(sent("history", 100), sent("request", 100), counted_tokens=500)

        segments = list_segments(prompt, 1000)

        assert [one.width for one in segments] == [250, 250, 0]
        assert segments[-1].tokens == "500"

    def test_without_a_known_window_the_prompt_fills_the_bar(self):
        segments = list_segments(make_prompt(sent("request", 7)), None)

        assert [(one.kind, one.width) for one in segments] == [("request", 1000)]

    def test_a_dynamic_system_prompt_has_an_unknown_length(self):
        prompt = make_prompt(sent("system", None), sent("request"), system_policy="dynamic")

        assert [(one.kind, one.tokens) for one in list_segments(prompt, None)] == [
            ("system", "\N{EN DASH}"),
            ("request", "10"),
        ]


class TestRows:
    def test_messages_are_in_order_with_what_was_left_out(self):
        prompt = make_prompt(
            sent("system", content="Be brief."),
            sent("summary", content="So far."),
            sent("history", content="Old\nline", sequence_number=5),
            sent("context", 4, content="not kept"),
            sent("request", content=[{"type": "text", "text": "New"}, {"type": "image_url"}]),
            left_out=(
                LeftOutView(first=1, last=3, reason="window"),
                LeftOutView(first=4, last=4, reason="failed"),
            ),
        )

        rows = list_rows(prompt, "c")

        assert [(row.kind, row.preview or row.reason) for row in rows] == [
            ("system", "Be brief."),
            ("summary", "So far."),
            ("left-out", "outside of the window"),
            ("left-out", "failed turn"),
            ("history", "Old line"),
            ("context", "Sent per request, not stored"),
            ("request", "New [image_url]"),
        ]
        assert rows[2].label == "Not sent: 1-3"
        assert rows[4].url == "/c/c?at=5#m-5"

    def test_the_text_of_a_chat_template_has_its_own_label(self):
        [row] = list_rows(make_prompt(sent("template", content="You are")), "c")

        assert (row.label, row.preview) == ("Chat template", "You are")

    def test_a_long_history_is_counted(self):
        history = [sent("history", content=f"{n}") for n in range(MAX_HISTORY + 5)]

        rows = list_rows(make_prompt(*history), "c")

        assert len(rows) == MAX_HISTORY + 1
        assert rows[0].preview.startswith("5 earlier messages")
        assert rows[1].preview == "5"

    def test_long_content_is_cut(self):
        [row] = list_rows(make_prompt(sent("request", content="x" * (MAX_CONTENT + 1))), "c")

        assert row.content == "x" * MAX_CONTENT + "…"

    def test_system_messages_of_a_dynamic_conversation_are_hidden(self):
        message = SentView(kind="history", role="system", content=SECRET, tokens=3)

        [row] = list_rows(make_prompt(message, system_policy="dynamic"), "c")

        assert SECRET not in str(row)

    def test_the_system_prompt_of_a_dynamic_conversation_is_not_claimed_to_be_sent(self):
        [row] = list_rows(make_prompt(sent("system", None), system_policy="dynamic"), "c")

        assert row.content == "Not stored: each request sends its own"

    def test_other_content_of_the_client_is_a_reason(self):
        content = {"a": 1}
        [row] = list_rows(make_prompt(sent("history", content=content, differs=True)), "c")

        assert row.content == '{"a":1}'
        assert row.reason == "The client sent other content than is stored."


def test_figures_show_cached_and_uncached_tokens():
    usage = Usage(input=1_000, output=20, cache_read=3_000)
    turn = Turn(
        id="t",
        place="t",
        state="complete",
        messages=(),
        started_at=datetime.now(UTC),
        model="m",
        usage=usage,
        cost=0.5,
    )

    figures = {one.label: one.value for one in list_figures(turn, -0.25)}

    assert figures == {
        "Model": "m",
        "Provider": "\N{EN DASH}",
        "Input, not cached": "1,000",
        "Read from the cache": "3,000",
        "Output": "20",
        "Cost": "$0.50",
        "Saved by the cache": "-$0.25",
    }


class TestColumn:
    async def test_the_last_turn_is_the_default(self, server):
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "One", "1")
        turn = await server.add_turn(
            conversation, "Two", "2", window=WindowRecord(first_sequence=1, sent_messages=3)
        )

        html = await get_inspector(server, conversation)

        assert f'data-turn="{turn.id}"' in html
        assert re.findall(r'class="preview" dir="auto">([^<]*)<', html) == [
            "Not stored: each request sends its own",
            "One",
            "1",
            "Two",
        ]
        assert f'href="/v1/conversations/{conversation}/turns/{turn.id}/prompt"' in html

    async def test_savings_and_the_window_of_a_known_model_are_shown(self, server):
        conversation = await server.create_conversation()
        usage = Usage(input=100, cache_read=100_000, output=10)
        await server.add_turn(conversation, "One", "1", model="openai/gpt-4o", usage=usage)

        html = await get_inspector(server, conversation)

        assert "of 128k tokens" in html
        assert "Saved by the cache" in html

    async def test_a_document_has_a_link_unless_its_url_names_a_turn(self, server):
        conversation = await server.create_conversation()
        turn = await server.add_turn(conversation, "One", "1")

        whole = (await server("GET", f"/c/{conversation}")).text
        at_turn = (await server("GET", f"/c/{conversation}/t/{turn.id}")).text

        assert "data-lazy" in whole
        assert f'href="/c/{conversation}/t/{turn.id}"' in whole
        assert 'class="prompt"' in at_turn

    async def test_an_empty_conversation_has_no_prompt(self, server):
        conversation = await server.create_conversation()

        assert "No message yet." in await get_inspector(server, conversation)

    async def test_an_unknown_turn_is_not_found(self, server):
        conversation = await server.create_conversation()

        response = await server("GET", f"/c/{conversation}/t/nobody?part=inspector")

        assert response.status_code == 404

    async def test_a_dynamic_system_prompt_is_never_shown(self, server):
        conversation = await server.create_conversation()
        system = {"role": "system", "content": SECRET}
        turn = await server.save_turn(
            conversation, openai_messages(system, {"role": "user", "content": "Q"})
        )

        assert SECRET not in await get_inspector(server, f"{conversation}/t/{turn.id}")

    async def test_hostile_texts_are_shown_as_text(self, server):
        for text in HOSTILE_TEXTS:
            new = NewConversation(id=server.state.new_id(), title=text[:100].replace("\0", ""))
            record = SystemRecord(policy="captured")
            opening = Opening(system=plain_message("system", text), system_record=record)
            await server.state.store.create(new, opening=opening)
            first = await server.add_turn(new.id, text, text, model=text[:50])
            await server.add_turn(new.id, text, text, place=first.place, provider=text[:50])

            assert find_problems(await get_inspector(server, new.id)) == []

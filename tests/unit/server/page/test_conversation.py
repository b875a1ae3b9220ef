"""The column of a conversation: ranges, permalinks, the system prompt, states, hostile fields."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest
from tests.hostile_texts import HOSTILE_TEXTS, PageParser, find_problems
from tests.server_app import ServerApp, open_server_app, openai_messages

from cllm.core.conversation import SystemRecord, TurnFailure
from cllm.core.message import Message, plain_message
from cllm.core.notice import Notice
from cllm.core.ports import Changes, NewConversation, Opening
from cllm.server.page.conversation import PAGE_MESSAGES, split_system_prompt

SECRET = "SECRET-SYSTEM-TEXT"


@pytest.fixture
async def server(tmp_path) -> AsyncIterator[ServerApp]:
    async with open_server_app(tmp_path) as running:
        yield running


async def get_main(server: ServerApp, path: str) -> str:
    separator = "&" if "?" in path else "?"
    response = await server("GET", f"/c/{path}{separator}part=main")
    assert response.status_code == 200, response.text
    return response.text


async def add_turns(server: ServerApp, count: int) -> tuple[str, list[str]]:
    conversation = await server.create_conversation()
    turns = [await server.add_turn(conversation, f"Q{n}", f"A{n}") for n in range(count)]
    return conversation, [turn.id for turn in turns]


async def create(server: ServerApp, record: SystemRecord, prompt: str | None = None) -> str:
    new = NewConversation(id=server.state.new_id())
    system = None if prompt is None else plain_message("system", prompt)
    await server.state.store.create(new, opening=Opening(system=system, system_record=record))
    return new.id


def list_numbers(html: str) -> list[int]:
    return [int(number) for number in re.findall(r'id="m-(\d+)"', html)]


def link(html: str, text: str) -> str:
    found = re.search(rf'href="([^"]*)"[^>]*>{text}<', html)
    assert found is not None, text
    return found[1].replace("&amp;", "&").removeprefix("/c/")


class TestRanges:
    async def test_the_newest_messages_are_shown_and_links_lead_to_all_others(self, server):
        conversation, _ = await add_turns(server, PAGE_MESSAGES)

        newest = await get_main(server, conversation)
        earlier = await get_main(server, link(newest, "Earlier messages"))
        back = await get_main(server, link(earlier, "Later messages"))

        half = PAGE_MESSAGES
        assert list_numbers(newest) == list(range(half + 1, 2 * half + 1))
        assert list_numbers(earlier) == list(range(1, half + 1))
        assert list_numbers(back) == list_numbers(newest)
        assert "Earlier messages" not in earlier
        assert "Later messages" not in newest

    async def test_a_number_selects_the_messages_around_it(self, server):
        conversation, _ = await add_turns(server, 2 * PAGE_MESSAGES)

        numbers = list_numbers(await get_main(server, f"{conversation}?at=100"))

        assert numbers[0] in (69, 70)
        assert numbers[-1] in (129, 130)

    async def test_a_permalink_shows_the_messages_around_its_turn(self, server):
        conversation, turns = await add_turns(server, 2 * PAGE_MESSAGES)

        html = await get_main(server, f"{conversation}/t/{turns[5]}")

        numbers = list_numbers(html)
        assert numbers[0] == 1
        assert 11 in numbers
        assert "Later messages" in html

    async def test_a_variant_is_shown_in_place_of_its_turn(self, server):
        conversation = await server.create_conversation()
        first = await server.add_turn(conversation, "Q", "OLD")
        messages = openai_messages(
            {"role": "user", "content": "Q"}, {"role": "assistant", "content": "NEW"}
        )
        second = await server.save_turn(conversation, messages, place=first.place)
        await server.add_turn(conversation, "Q2", "A2")

        default = await get_main(server, conversation)
        variant = await get_main(server, f"{conversation}/t/{first.id}")

        assert "NEW" in default
        assert "OLD" not in default
        assert 'class="position">2/2<' in default
        assert "OLD" in variant
        assert "NEW" not in variant
        assert 'class="position">1/2<' in variant
        assert f'href="/c/{conversation}/t/{second.id}" aria-label="Next variant"' in variant
        assert "A2" in variant

    async def test_an_empty_conversation_has_a_sentence(self, server):
        conversation = await server.create_conversation()

        assert "No message yet." in await get_main(server, conversation)

    @pytest.mark.parametrize("path", ["/t/nobody", "?before=-1", "?at=x"])
    async def test_a_wrong_url_is_an_error(self, server, path):
        conversation = await server.create_conversation()

        response = await server("GET", f"/c/{conversation}{path}")

        assert response.status_code in (400, 404, 422)

    async def test_a_long_message_is_cut_until_it_is_shown_whole(self, server):
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "x" * 100_000 + "END", "ok")

        cut = await get_main(server, conversation)
        whole = await get_main(server, link(cut, r"Show all \(50,003 more characters\)"))

        assert "END" not in cut
        assert "END" in whole


class TestSystemPrompt:
    async def test_a_dynamic_prompt_is_never_shown(self, server):
        conversation = await create(server, SystemRecord(policy="dynamic"), SECRET)
        messages = openai_messages(
            {"role": "system", "content": SECRET}, {"role": "user", "content": "Q"}
        )
        turn = await server.save_turn(conversation, messages)

        for path in (conversation, f"{conversation}/t/{turn.id}"):
            response = await server("GET", f"/c/{path}")
            assert "sent per request, not stored" in response.text
            assert SECRET not in response.text

    async def test_a_captured_prompt_is_a_folded_block_with_its_context(self, server):
        prompt = "Be brief.\n\n--- Context: date ---\nMonday\n--- End Context ---"
        record = SystemRecord(policy="captured", source="settings")
        conversation = await create(server, record, prompt)

        html = await get_main(server, conversation)

        assert '<details class="system">' in html
        assert "Be brief." in html
        assert "<h3>Context</h3>" in html
        assert "Monday" in html

    async def test_a_pinned_prompt_is_shown(self, server):
        conversation = await create(server, SystemRecord(policy="pinned", prompt="Pinned."))

        assert "Pinned." in await get_main(server, conversation)

    def test_a_prompt_without_context_is_one_block(self):
        assert [label for label, _ in split_system_prompt("Be brief.")] == ["System prompt"]


class TestStates:
    async def test_a_failure_is_shown_with_a_button(self, server):
        conversation = await server.create_conversation()
        failure = TurnFailure(code="x", message="The provider <b>failed</b>.")
        await server.add_turn(
            conversation, "Q", state="failed", failure=failure, usage=None, cost=None
        )

        html = await get_main(server, conversation)

        assert 'data-state="failed"' in html
        assert "The provider &lt;b&gt;failed&lt;/b&gt;." in html
        assert 'data-action="retry"' in html

    async def test_an_incomplete_turn_has_its_state(self, server):
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "Q", "A", state="incomplete")

        assert "The reply is incomplete." in await get_main(server, conversation)

    async def test_notices_are_folded(self, server):
        conversation = await server.create_conversation()
        notice = Notice(code="x", message="Left <i>out</i>.", path="messages[0]")
        await server.add_turn(conversation, "Q", "A", notices=(notice,))

        html = await get_main(server, conversation)

        assert '<details class="notices">' in html
        assert "Left &lt;i&gt;out&lt;/i&gt;." in html

    async def test_a_branch_links_to_its_parent(self, server):
        conversation, _ = await add_turns(server, 2)
        new = NewConversation(id=server.state.new_id())
        await server.state.store.branch(conversation, new, at=2)

        html = await get_main(server, new.id)

        assert f'href="/c/{conversation}?at=2#m-2"' in html


class TestHostileFields:
    @pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
    async def test_every_field_is_shown_as_text(self, server, text):
        if "\x00" in text:
            text = text.replace("\x00", "")
        record = SystemRecord(policy="captured", source=text[:100])
        conversation = await create(server, record, text)
        name, call = text[:300], "call-1"
        function = {"name": name, "arguments": msgspec.json.encode({name: text}).decode()}
        data = "data:image/svg+xml;base64,PHN2Zz4="
        messages = openai_messages(
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": text},
                    {"type": "image_url", "image_url": {"url": text[:2000]}},
                    {"type": "image_url", "image_url": {"url": data}},
                    {"type": "file", "file": {"filename": name, "file_data": data}},
                    {"type": name, name: text},
                ],
            },
            {
                "role": "assistant",
                "content": text,
                "reasoning_content": text,
                "refusal": text,
                "tool_calls": [{"id": call, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": call, "content": text},
            {"role": "tool", "tool_call_id": name, "content": text},
        )
        broken = Message(
            role="user", raw=msgspec.json.encode({"role": "user", "content": {name: text}})
        )
        await server.save_turn(
            conversation,
            (*messages, broken),
            model=name,
            state="failed",
            failure=TurnFailure(code="x", message=text[:1000]),
            notices=(Notice(code="x", message=text[:1000], path=name),),
        )
        title = " ".join(text[:200].split())
        await server.state.store.update(conversation, Changes(title=title))

        html = await get_main(server, conversation)

        assert find_problems(html) == []
        assert 'data-action="retry"' in html
        assert "1337" not in PageParser(html).text
        document = await server("GET", f"/c/{conversation}")
        _, _, body = document.text.partition("<body")
        assert "<script" not in body.replace("&lt;script", "")


async def test_times_of_calls_are_shown(server):
    conversation = await server.create_conversation()
    function = {"name": "ls", "arguments": "{}"}
    call = {"id": "1", "type": "function", "function": function}
    messages = openai_messages(
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    )
    first = await server.save_turn(conversation, messages)
    answer = openai_messages({"role": "tool", "tool_call_id": "1", "content": "x"})
    await server.save_turn(conversation, answer, ended_at=first.started_at + timedelta(hours=1))

    html = await get_main(server, conversation)

    assert re.search(r'class="outcome">\d+ ms done<', html)

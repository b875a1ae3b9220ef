"""The drawing of branches and variants."""

import re

from tests.server_app import ServerApp, open_server_app

from cllm.core.ports import NewConversation
from cllm.server.page.tree import MAX_LABEL, MAX_ROWS


async def get_inspector(server: ServerApp, path: str) -> str:
    return (await server("GET", f"/c/{path}?part=inspector")).text


def list_links(html: str) -> list[str]:
    [drawing] = re.findall(r'<svg class="tree".*?</svg>', html, re.DOTALL)
    return re.findall(r'href="([^"]*)"', drawing)


async def test_branches_and_variants_are_links(tmp_path):
    async with open_server_app(tmp_path) as server:
        conversation = await server.create_conversation()
        first = await server.add_turn(conversation, "Q" * 100, "OLD")
        await server.add_turn(conversation, "Q", "NEW", place=first.place)
        new = NewConversation(id=server.state.new_id())
        await server.state.store.branch(conversation, new, at=2)

        html = await get_inspector(server, conversation)
        of_branch = await get_inspector(server, new.id)

    assert list_links(html) == [
        f"/c/{conversation}",
        f"/c/{conversation}/t/{first.id}",
        f"/c/{new.id}",
    ]
    assert "Variant 1.1: OLD" in html
    assert f">{'Q' * (MAX_LABEL - 1)}…</text>" in html
    assert list_links(of_branch)[:2] == [f"/c/{conversation}", f"/c/{new.id}"]
    assert f'href="/c/{new.id}" class="branch current" aria-current="true"' in of_branch


async def test_variants_of_the_same_turn_have_different_numbers(tmp_path):
    async with open_server_app(tmp_path) as server:
        conversation = await server.create_conversation()
        first = await server.add_turn(conversation, "Q", "A")
        for reply in ("B", "C"):
            await server.add_turn(conversation, "Q", reply, place=first.place)

        html = await get_inspector(server, conversation)

    assert re.findall(r"<text[^>]*>(Variant .*?)</text>", html) == [
        "Variant 1.1: A",
        "Variant 1.2: B",
    ]


async def test_a_conversation_without_branches_has_no_drawing(tmp_path):
    async with open_server_app(tmp_path) as server:
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "Q", "A")

        assert 'class="tree"' not in await get_inspector(server, conversation)


async def test_a_large_tree_is_cut(tmp_path):
    async with open_server_app(tmp_path) as server:
        conversation = await server.create_conversation()
        first = await server.add_turn(conversation, "Q", "0")
        for number in range(MAX_ROWS):
            await server.add_turn(conversation, "Q", str(number), place=first.place)

        html = await get_inspector(server, conversation)

    assert len(list_links(html)) == MAX_ROWS
    assert "1 more are not shown." in html

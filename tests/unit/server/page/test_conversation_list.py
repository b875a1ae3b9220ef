"""The list column: rows, pages, search, filters, empty states."""

import re

import pytest

from cllm.core.ports import Changes, Hits, NewConversation
from cllm.core.reply import Usage
from cllm.server.page.conversation_list import PAGE_SIZE, _count_messages, _describe_nothing

LINK = re.compile(r'class="row[^"]*" href="([^"]+)"')
NEXT = re.compile(r'class="next" rel="next" href="([^"]+)"')


async def read(server, path: str, part: str = "rows") -> str:
    response = await server("GET", path, params={"part": part} if "?" not in path else None)
    assert response.status_code == 200, response.text
    text: str = response.text
    return text


async def test_rows_are_links_under_the_heading_of_their_day(server):
    conversation = await server.create_conversation()
    await server.add_turn(conversation, "Why <b>cats</b>?", "Because.")

    rows = await read(server, "/")

    assert LINK.findall(rows) == [f"/c/{conversation}"]
    assert rows.count('<h2 class="day">') == 1
    assert "Why &lt;b&gt;cats&lt;/b&gt;?" in rows
    assert "<time datetime=" in rows


async def test_pages_follow_each_other_without_scripts(server):
    conversations = [await server.create_conversation() for _ in range(PAGE_SIZE + 3)]

    first = await read(server, "/")
    following = NEXT.findall(first)
    second = (await server("GET", following[0].replace("&amp;", "&"))).text

    assert len(LINK.findall(first)) == PAGE_SIZE
    assert len(LINK.findall(second)) == 3
    assert NEXT.findall(second) == []
    links = LINK.findall(first) + LINK.findall(second)
    assert sorted(links) == sorted(f"/c/{conversation}" for conversation in conversations)


async def test_a_search_links_to_messages_and_highlights_the_words(server):
    conversation = await server.create_conversation()
    await server.add_turn(conversation, "One <i>needle</i> here", "Found it")

    rows = await read(server, "/search?q=needle&part=rows")

    assert LINK.findall(rows) == [f"/c/{conversation}?at=1#m-1"]
    assert "One &lt;i&gt;<b>needle</b>&lt;/i&gt; here" in rows


def test_a_count_says_that_older_messages_may_match():
    assert _count_messages(Hits(items=(), total=1)) == "1 message"
    assert _count_messages(Hits(items=(), total=1, more=True)) == "1+ messages"
    assert _describe_nothing(Hits(items=(), total=0)) == ""
    assert "remove a filter" in _describe_nothing(Hits(items=(), total=0, more=True))


async def test_the_first_match_is_near_the_start_of_its_row(server):
    conversation = await server.create_conversation()
    await server.add_turn(conversation, "a < b && c > d, far before the needle", "Found it")

    rows = await read(server, "/search?q=needle&part=rows")

    assert '<span class="line" dir="auto">… far before the <b>needle</b></span>' in rows


async def test_a_search_finds_renamed_conversations_by_their_title(server):
    renamed, other = [await server.create_conversation() for _ in range(2)]
    await server.add_turn(renamed, "Hello", "Hi")
    await server.add_turn(other, "A needle in a haystack", "Found it")
    await server.state.store.update(renamed, Changes(title="My Needle collection"))

    rows = await read(server, "/search?q=needle&part=rows")

    assert LINK.findall(rows) == [f"/c/{renamed}", f"/c/{other}?at=1#m-1"]
    assert '<p class="count">1 title, 1 message</p>' in rows
    only_title = await read(server, "/search?q=needle+coll&part=rows")
    assert LINK.findall(only_title) == [f"/c/{renamed}"]
    assert '<p class="count">1 title</p>' in only_title
    assert LINK.findall(await read(server, "/search?q=needle&model=x&part=rows")) == []


async def test_filters_of_a_search_apply_before_its_limit(server):
    rare = NewConversation(id=server.state.new_id(), model="openai/rare")
    await server.state.store.create(rare)
    await server.add_turn(rare.id, "A needle", "Found")
    common = await server.create_conversation()
    for _ in range(PAGE_SIZE + 1):
        await server.add_turn(common, "needle needle", "needle needle")

    rows = await read(server, "/search?q=needle&model=rare&part=rows")

    assert LINK.findall(rows) == [f"/c/{rare.id}?at=1#m-1"]
    assert '<p class="count">1 message</p>' in rows
    assert NEXT.findall(rows) == []


@pytest.mark.parametrize("query", ["...", "?", " "])
async def test_a_query_without_words_is_no_error(server, query):
    assert (await server("GET", "/search", params={"q": query})).status_code == 200


async def test_empty_lists_say_what_would_fill_them(server):
    nothing = await read(server, "/")
    search = await read(server, "/search?q=it%27s+%3Cb%3E&part=rows")
    archive = await read(server, "/?archive_filter=archived&part=rows")

    for html in (nothing, search, archive):
        assert html.count('class="command"') == 3
    assert "curl http://127.0.0.1:3000/v1/chat/completions" in nothing
    assert "<b>" not in search
    assert "cllm conversations archive ID" in archive
    assert len({nothing, search, archive}) == 3


async def test_the_column_has_the_values_of_the_query(server):
    html = await read(server, "/search?q=%22cats%22&archive_filter=all&origin=chat&part=list")

    assert 'value="&#34;cats&#34;"' in html
    assert '<option value="all" selected>' in html
    assert 'value="chat" checked' in html
    assert '<details class="filters" open>' in html


@pytest.mark.parametrize("query", ["archive_filter=x", "origin=x", "days=x", "offset=-1"])
async def test_an_unknown_value_is_an_error(server, query):
    assert (await server("GET", f"/?{query}")).status_code == 422


async def test_a_row_of_a_conversation_is_empty_outside_the_selection(server):
    conversation = await server.create_conversation()
    path = f"/c/{conversation}?part=row"

    active = await read(server, path)
    await server.state.store.update(conversation, Changes(archived=True))

    assert LINK.findall(active) == [f"/c/{conversation}"]
    assert await read(server, path) == ""
    assert LINK.findall(await read(server, f"{path}&archive_filter=archived"))


async def test_a_row_has_the_last_line_tokens_and_cost(server):
    conversation = await server.create_conversation()
    await server.add_turn(conversation, "Why?", "Because\n<i>so</i>.", usage=Usage(input=1234))

    row = await read(server, f"/c/{conversation}?part=row")

    assert "Because &lt;i&gt;so&lt;/i&gt;." in row
    assert '<span class="tokens">1.2k<' in row
    assert '<span class="cost">$0.25</span>' in row


@pytest.mark.parametrize(
    ("costs", "text"),
    [((None,), "–"), ((0.0,), "$0"), ((0.0, None), "–"), ((0.5, None), "$0.50+")],  # noqa: RUF001
)
async def test_an_unknown_cost_is_not_shown_as_zero(server, costs, text):
    conversation = await server.create_conversation()
    for cost in costs:
        await server.add_turn(conversation, "Why?", "Because.", cost=cost)

    assert f'<span class="cost">{text}</span>' in await read(server, f"/c/{conversation}?part=row")


async def test_the_state_of_the_newest_turn_is_text_and_colour(server):
    conversation = await server.create_conversation()
    await server.add_turn(conversation, "Why?", state="failed")

    row = await read(server, f"/c/{conversation}?part=row")

    assert '<span class="state failed"' in row
    assert "Failed: " in row


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("origin=client", 1),
        ("origin=chat", 0),
        ("model=GPT", 1),
        ("model=claude", 0),
        ("days=1", 1),
    ],
)
async def test_filters_apply_to_lists_and_searches(server, query, count):
    new = NewConversation(id=server.state.new_id(), model="openai/gpt-test")
    await server.state.store.create(new)
    await server.add_turn(new.id, "A needle", "Found")

    listed = await read(server, f"/?{query}&part=rows")
    found = await read(server, f"/search?q=need&{query}&part=rows")

    assert len(LINK.findall(listed)) == len(LINK.findall(found)) == count


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        ("## Release **2.4**\n\n- `export --csv` writes", "Release 2.4 - export --csv writes"),
        ("```python\nimport snake_case as x\n```", "import snake_case as x"),
        ("| a | b |\n|---|--:|\n| 1 | 2 |", "a b 1 2"),
        ("> quoted, 3 > 2 # not a heading", "quoted, 3 2 not a heading"),
        ("C# and x#y a*", "C# and x#y a"),
    ],
)
async def test_the_last_line_has_no_marks_of_markdown(server, reply, line):
    conversation = await server.create_conversation()
    await server.add_turn(conversation, "Why?", reply)

    row = await read(server, f"/c/{conversation}?part=row")

    assert f'<span class="line" dir="auto">{line}</span>' in row

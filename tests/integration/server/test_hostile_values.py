"""Values that are meant to break something: each is data, or a clear refusal, and never a 500."""

import pytest

LIST = "/v1/conversations"
TEXTS = [
    "a\0b",
    "'; DROP TABLE conversations; --",
    "%_\\",
    "\U0001f600 ﷽ 漢字",
    '"quoted" AND (x OR *',
    "x" * 1000,
    "\u202e\u0007\n\r",
]


async def test_a_title_is_kept_as_given_or_refused(server):
    for text in TEXTS:
        metadata = {text: [text, 1.5e300]}
        answer = await server("POST", LIST, json={"title": text, "metadata": metadata})

        if "\0" in text and answer.status_code == 422:
            continue
        assert answer.status_code == 201, text
        detail = await server.get(f"{LIST}/{answer.json()['id']}")
        assert detail["title"] == text
        assert detail["metadata"] == metadata


async def test_a_search_for_anything_is_answered(server):
    conversation = await server.create_conversation()
    await server.add_turn(conversation, "Hello", "Hi")

    for text in TEXTS:
        answer = await server("GET", f"{LIST}/search", params={"q": text})
        assert answer.status_code in (200, 422), text


async def test_no_cursor_breaks_anything(server):
    await server.create_conversation()
    for text in TEXTS:
        for moment in ("", "2026-11-15T00:00:00+00:00~", "0001-01-01T00:00:00+00:00~"):
            answer = await server("GET", LIST, params={"cursor": moment + text})
            assert answer.status_code in (200, 422), (moment, text)


async def test_json_that_is_hardly_any_is_answered(server):
    for body in (b'{"title": "\\ud800"}', b'{"title": "\\u0000"}', b'{"metadata": {"a": 1e999}}'):
        answer = await server("POST", LIST, content=body)

        assert answer.status_code in (201, 422), body
        if answer.status_code == 201:
            assert await server.get(f"{LIST}/{answer.json()['id']}")


async def test_numbers_that_are_hardly_any_are_answered(server):
    for query in ("limit=1e3", "limit=%00", "limit=null", "offset=2147483647"):
        assert (await server("GET", f"{LIST}?{query}")).status_code in (200, 422), query


async def test_the_ends_of_time_are_answered(server):
    for moment in ("0001-01-01", "9999-12-31", "9999-12-31T23:59:59-23:59"):
        for query in (f"from={moment}", f"to={moment}"):
            assert (await server("GET", f"/v1/usage?{query}")).status_code in (200, 422), query


async def test_turns_and_messages_by_hostile_names_are_not_found(server):
    conversation = await server.create_conversation()

    for name in ("%00", "a%20b", "'%20OR%201=1", "%F0%9F%98%80", "x" * 5000):
        for kind in ("turns", "messages"):
            answer = await server("GET", f"{LIST}/{conversation}/{kind}/{name}")
            assert answer.status_code == 404, (kind, name)


@pytest.mark.parametrize("value", [-5, "x", {"a": 1}, [1], ["x", None], True])
async def test_calls_and_ids_of_calls_that_are_none_are_not_shown_as_such(server, value):
    said = {"role": "assistant", "content": "Hi", "tool_calls": value}
    result = {"role": "tool", "content": "Hi", "tool_call_id": [value]}
    answer = await server("POST", f"{LIST}/import", json={"messages": [said, result]})

    assert answer.status_code == 201
    shown = answer.json()["messages"]
    assert [message["content"] for message in shown] == ["Hi", "Hi"]
    assert not any({"tool_calls", "tool_call_id"} & set(message) for message in shown)

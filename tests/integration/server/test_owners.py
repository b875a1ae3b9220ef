"""A conversation of another owner does not exist for the caller, on every route."""

from tests.server_app import KEYS

from cllm.server.http.routes import PAGE_ROUTES, ROUTES

UNKNOWN = "11111111-2222-4333-8444-555555555555"
ALICE = {"Authorization": f"Bearer {KEYS['alice']}"}
BOB = {"x-api-key": KEYS["bob"]}
BODIES = {
    "/v1/conversations/{conversation_id}/branch": {"branch_at_sequence": 1},
    "/v1/conversations/{conversation_id}": {"title": "x"},
}
PARTS = ("", "?part=main", "?part=inspector", "?part=row")
# DELETE comes last, so that the conversation exists until then.
CONVERSATION_ROUTES = sorted(
    (row for row in ROUTES if "{conversation_id}" in row.path),
    key=lambda row: (row.method == "DELETE", "messages" not in row.path),
)


def build_path(path: str, conversation: str, turn: str) -> str:
    return (
        path.replace("{conversation_id}", conversation)
        .replace("{message}", "1")
        .replace("{turn_id}", turn)
    )


async def test_a_conversation_of_another_owner_is_like_an_unknown_one_on_every_route(keyed):
    conversation = await keyed.create_conversation(owner="alice")
    turn = await keyed.add_turn(conversation, "A needle", "Found", owner="alice")

    for row in CONVERSATION_ROUTES:
        body = BODIES.get(row.path)
        theirs = await keyed(
            row.method, build_path(row.path, conversation, turn.id), json=body, headers=BOB
        )
        unknown = await keyed(
            row.method, build_path(row.path, UNKNOWN, turn.id), json=body, headers=BOB
        )
        assert theirs.status_code == unknown.status_code == 404, row
        assert theirs.content == unknown.content, row
        assert theirs.json()["error"]["code"] == "conversation_not_found", row

    mine = await keyed("GET", f"/v1/conversations/{conversation}", headers=ALICE)
    assert mine.json()["message_count"] == 2


async def test_a_conversation_of_another_owner_is_like_an_unknown_one_on_the_page(keyed):
    conversation = await keyed.create_conversation(owner="alice")
    turn = await keyed.add_turn(conversation, "A needle", "Found", owner="alice")
    paths = [row.path for row in PAGE_ROUTES if "{conversation_id}" in row.path]

    for path in [f"{path}{part}" for path in paths for part in PARTS]:
        mine = await keyed("GET", build_path(path, conversation, turn.id), headers=ALICE)
        theirs = await keyed("GET", build_path(path, conversation, turn.id), headers=BOB)
        unknown = await keyed("GET", build_path(path, UNKNOWN, turn.id), headers=BOB)
        assert mine.status_code == 200, path
        assert theirs.status_code == unknown.status_code == 404, path
        assert theirs.content == unknown.content, path
    for path in ("/?part=rows", "/search?q=needle&part=rows"):
        assert conversation in (await keyed("GET", path, headers=ALICE)).text
        assert conversation not in (await keyed("GET", path, headers=BOB)).text


async def test_completions_do_not_continue_a_conversation_of_another_owner(keyed):
    conversation = await keyed.create_conversation(owner="alice")
    body = {"model": "openai/gpt-test", "messages": [{"role": "user", "content": "Hi"}]}

    responses = [
        await keyed(
            "POST",
            "/v1/chat/completions",
            json=body,
            headers={**BOB, "X-Conversation-ID": conversation_id},
        )
        for conversation_id in (conversation, UNKNOWN)
    ]

    assert [response.status_code for response in responses] == [404, 404]
    assert responses[0].content == responses[1].content


async def test_lists_searches_and_usage_are_of_one_owner(keyed):
    conversation = await keyed.create_conversation(owner="alice")
    await keyed.add_turn(conversation, "A needle", "Found", owner="alice")

    for headers, count in ((ALICE, 1), (BOB, 0)):
        listed = await keyed.get("/v1/conversations?archive_filter=all", headers=headers)
        found = await keyed.get("/v1/conversations/search?q=needle", headers=headers)
        used = await keyed.get("/v1/usage", headers=headers)
        assert (listed["total"], found["total"]) == (count, count)
        assert used["total"]["calls"] == count


async def test_two_owners_can_use_the_same_id(keyed):
    for owner in ("alice", "bob"):
        await keyed.create_conversation(UNKNOWN, owner=owner)
        await keyed.add_turn(UNKNOWN, f"I am {owner}", "Hello", owner=owner)

    for headers, owner in ((ALICE, "alice"), (BOB, "bob")):
        detail = await keyed.get(f"/v1/conversations/{UNKNOWN}", headers=headers)
        assert detail["messages"][0]["content"] == f"I am {owner}"
    await keyed("DELETE", f"/v1/conversations/{UNKNOWN}?permanent=true", headers=BOB)
    assert await keyed.get(f"/v1/conversations/{UNKNOWN}", headers=ALICE)

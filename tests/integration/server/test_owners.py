"""What is another's does not exist: on every call, in every store."""

from tests.server_app import KEYS

from cllm.server.http.routes import ROUTES

UNKNOWN = "11111111-2222-4333-8444-555555555555"
ALICE = {"Authorization": f"Bearer {KEYS['alice']}"}
BOB = {"x-api-key": KEYS["bob"]}
BODIES = {
    "/v1/conversations/{conversation_id}/branch": {"branch_at_sequence": 1},
    "/v1/conversations/{conversation_id}": {"title": "x"},
}
# Deleting comes last, so that there is something to ask for until then.
ABOUT_ONE = sorted(
    (row for row in ROUTES if "{conversation_id}" in row.path),
    key=lambda row: (row.method == "DELETE", "messages" not in row.path),
)


def address(path: str, conversation: str, turn: str) -> str:
    return (
        path.replace("{conversation_id}", conversation)
        .replace("{message}", "1")
        .replace("{turn_id}", turn)
    )


async def test_anothers_conversation_answers_as_an_unknown_one_on_every_call(keyed):
    conversation = await keyed.create_conversation(owner="alice")
    turn = await keyed.add_turn(conversation, "A needle", "Found", owner="alice")

    for row in ABOUT_ONE:
        body = BODIES.get(row.path)
        theirs = await keyed(
            row.method, address(row.path, conversation, turn.id), json=body, headers=BOB
        )
        unknown = await keyed(
            row.method, address(row.path, UNKNOWN, turn.id), json=body, headers=BOB
        )
        assert theirs.status_code == unknown.status_code == 404, row
        assert theirs.content == unknown.content, row
        assert theirs.json()["error"]["code"] == "conversation_not_found", row

    mine = await keyed("GET", f"/v1/conversations/{conversation}", headers=ALICE)
    assert mine.json()["message_count"] == 2


async def test_completions_do_not_continue_anothers_conversation(keyed):
    conversation = await keyed.create_conversation(owner="alice")
    body = {"model": "openai/gpt-test", "messages": [{"role": "user", "content": "Hi"}]}

    answers = [
        await keyed(
            "POST",
            "/v1/chat/completions",
            json=body,
            headers={**BOB, "X-Conversation-ID": asked},
        )
        for asked in (conversation, UNKNOWN)
    ]

    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].content == answers[1].content


async def test_lists_searches_and_sums_are_of_ones_own(keyed):
    conversation = await keyed.create_conversation(owner="alice")
    await keyed.add_turn(conversation, "A needle", "Found", owner="alice")

    for headers, count in ((ALICE, 1), (BOB, 0)):
        listed = await keyed.get("/v1/conversations?archive_filter=all", headers=headers)
        found = await keyed.get("/v1/conversations/search?q=needle", headers=headers)
        used = await keyed.get("/v1/usage", headers=headers)
        assert (listed["total"], found["total"]) == (count, count)
        assert used["total"]["calls"] == count


async def test_the_same_id_can_be_two_peoples(keyed):
    for owner in ("alice", "bob"):
        await keyed.create_conversation(UNKNOWN, owner=owner)
        await keyed.add_turn(UNKNOWN, f"I am {owner}", "Hello", owner=owner)

    for headers, owner in ((ALICE, "alice"), (BOB, "bob")):
        detail = await keyed.get(f"/v1/conversations/{UNKNOWN}", headers=headers)
        assert detail["messages"][0]["content"] == f"I am {owner}"
    await keyed("DELETE", f"/v1/conversations/{UNKNOWN}?permanent=true", headers=BOB)
    assert await keyed.get(f"/v1/conversations/{UNKNOWN}", headers=ALICE)

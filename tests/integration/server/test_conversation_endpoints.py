"""The conversations endpoints, over the application itself and a store in memory."""

import json
import uuid

import msgspec
import pytest
from tests.server_app import DYNAMIC, KEYS, SETTINGS_WITH_KEYS, open_server_app, openai_messages

from cllm.core.conversation import Branch, SystemRecord
from cllm.core.message import Message, plain_message
from cllm.core.ports import NewConversation, Opening
from cllm.core.reply import Usage

UNKNOWN = "11111111-2222-4333-8444-555555555555"
LIST = "/v1/conversations"


class TestLists:
    async def test_an_empty_list_returns_its_parameters(self, server):
        assert await server.get(LIST) == {
            "conversations": [],
            "total": 0,
            "limit": 50,
            "offset": 0,
            "next_cursor": None,
        }

    async def test_a_summary_has_the_documented_fields(self, server):
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "Hello there", "Hi")

        (summary,) = (await server.get(LIST))["conversations"]

        assert summary["id"] == conversation
        assert summary["title"] == "Hello there"
        assert summary["message_count"] == 2
        assert summary["archived_at"] is None
        assert summary["metadata"] == {}
        assert (summary["source"], summary["side"], summary["parent"]) == (None, False, None)
        assert summary["created_at"].endswith("Z")
        assert "system_message" not in summary

    async def test_pages_by_offset_or_cursor_return_each_once_newest_first(self, server):
        created = [await server.create_conversation() for _ in range(7)]
        everything = (await server.get(LIST))["conversations"]

        by_offset = [
            one["id"]
            for offset in range(0, 7, 3)
            for one in (await server.get(f"{LIST}?limit=3&offset={offset}"))["conversations"]
        ]
        by_cursor, cursor = [], None
        while True:
            query = {"limit": 3} | ({"cursor": cursor} if cursor else {})
            page = await server.get(LIST, params=query)
            assert page["total"] == 7
            by_cursor += [one["id"] for one in page["conversations"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break

        assert by_offset == by_cursor == [one["id"] for one in everything]
        assert sorted(by_offset) == sorted(created)

    async def test_the_archive_filter_selects_conversations(self, server):
        active, archived = await server.create_conversation(), await server.create_conversation()
        assert (await server("DELETE", f"{LIST}/{archived}")).status_code == 204

        listed = {
            choice: {
                one["id"]
                for one in (await server.get(f"{LIST}?archive_filter={choice}"))["conversations"]
            }
            for choice in ("active", "archived", "all")
        }

        assert listed == {"active": {active}, "archived": {archived}, "all": {active, archived}}

    @pytest.mark.parametrize("name", ["store", "files"])
    async def test_side_conversations_are_listed_only_on_request(self, server, name):
        prefix = "files:" if name == "files" else ""
        store = getattr(server.state, name)
        parent = Branch(conversation="main", sequence=0, kind="side")
        await store.create(NewConversation(id="own"))
        await store.create(NewConversation(id="main", source="claude-code"))
        await store.create(
            NewConversation(id="side", source="claude-code", is_side=True, parent=parent)
        )

        async def listed(query: str) -> list[str]:
            where = f"{LIST}?{query}" + ("&store=files" if prefix else "")
            page = await server.get(where)
            assert page["total"] == len(page["conversations"])
            return [one["id"].removeprefix(prefix) for one in page["conversations"]]

        assert await listed("") == ["main", "own"]
        assert await listed("side=true") == ["side", "main", "own"]
        assert await listed("source=claude-code") == ["main"]
        assert await listed("source=claude-code&side=true") == ["side", "main"]
        assert await listed("source=codex&side=true") == []
        store_query = "&store=files" if prefix else ""
        (summary, *_) = (await server.get(f"{LIST}?side=true{store_query}"))["conversations"]
        assert (summary["source"], summary["side"]) == ("claude-code", True)
        assert summary["parent"] == {
            "conversation_id": f"{prefix}main",
            "sequence_number": 0,
            "kind": "side",
        }
        detail = await server.get(f"{LIST}/{prefix}side")
        assert (detail["source"], detail["side"]) == ("claude-code", True)
        assert detail["parent"] == summary["parent"]

    @pytest.mark.parametrize(
        ("query", "param"),
        [
            ("side=maybe", "side"),
            ("source=a&source=b", "source"),
            ("limit=0", "limit"),
            ("limit=101", "limit"),
            ("limit=x", "limit"),
            ("offset=-1", "offset"),
            ("offset=99999999999999999999", "offset"),
            ("archive_filter=some", "archive_filter"),
            ("store=elsewhere", "store"),
        ],
    )
    async def test_an_invalid_parameter_is_named(self, server, query, param):
        response = await server("GET", f"{LIST}?{query}")

        assert response.status_code == 422
        assert response.json()["error"]["code"] == "validation_error"
        assert response.json()["error"]["param"] == param

    async def test_an_invalid_cursor_is_rejected(self, server):
        response = await server("GET", f"{LIST}?cursor=nonsense")

        assert response.status_code == 422


class TestCreating:
    async def test_a_new_conversation_is_dynamic_and_can_be_read(self, server):
        response = await server("POST", LIST, json={"title": " Trimmed ", "metadata": {"a": [1]}})

        assert response.status_code == 201
        created = response.json()
        assert uuid.UUID(created["id"])
        assert created["title"] == "Trimmed"
        assert created["metadata"] == {"a": [1]}
        detail = await server.get(f"{LIST}/{created['id']}")
        assert detail["messages"] == []
        assert detail["system"] == {"policy": "dynamic", "source": None, "prompt": None}

    async def test_an_empty_body_is_accepted(self, server):
        assert (await server("POST", LIST)).status_code == 201
        assert (await server("POST", LIST, content=b"{}")).status_code == 201

    async def test_the_content_type_is_ignored(self, server):
        response = await server(
            "POST", LIST, content=b'{"title": "x"}', headers={"content-type": "text/plain"}
        )

        assert response.json()["title"] == "x"

    @pytest.mark.parametrize("policy", ["captured", "dynamic", "pinned"])
    async def test_another_policy_can_be_chosen(self, server, policy):
        created = (await server("POST", LIST, json={"system_policy": policy})).json()

        stored = await server.load(created["id"])
        assert stored.system_record is not None
        assert stored.system_record.policy == policy

    async def test_a_captured_conversation_has_the_system_prompt_of_the_settings(self, tmp_path):
        async with open_server_app(tmp_path, "default_system_message: Be brief.") as server:
            created = (await server("POST", LIST, json={"system_policy": "captured"})).json()
            detail = await server.get(f"{LIST}/{created['id']}")

        assert detail["system"]["policy"] == "captured"
        assert detail["system"]["prompt"] == "Be brief."
        assert detail["messages"] == []

    @pytest.mark.parametrize(
        ("body", "param"),
        [
            (b"\x0c", None),
            (b"\t", None),
            (b'{"title": 3}', "title"),
            (b'{"metadata": []}', "metadata"),
            (b'{"system_policy": "free"}', "system_policy"),
            (b'{"tilte": "x"}', "tilte"),
            (b"[]", None),
            (b"{", None),
            (b'{"title": "\xff"}', None),
        ],
    )
    async def test_an_invalid_body_is_a_validation_error(self, server, body, param):
        response = await server("POST", LIST, content=body)

        assert response.status_code == 422
        assert response.json()["error"]["code"] == "validation_error"
        assert response.json()["error"]["param"] == param

    async def test_a_deeply_nested_body_is_rejected(self, server):
        body = b'{"metadata": {"a": ' + b"[" * 5000 + b"]" * 5000 + b"}}"

        assert (await server("POST", LIST, content=body)).status_code == 422

    async def test_a_body_that_is_too_long_is_rejected(self, tmp_path):
        async with open_server_app(tmp_path, "server: {limits: {body_bytes: 100}}") as server:
            response = await server("POST", LIST, json={"title": "x" * 200})

        assert response.status_code == 413
        assert response.json()["error"]["code"] == "request_too_large"


class TestDetail:
    async def test_a_message_has_the_documented_fields(self, server):
        conversation = await server.create_conversation()
        turn = await server.add_turn(conversation, "What is 2+2?", "4")

        question, reply = (await server.get(f"{LIST}/{conversation}"))["messages"]

        assert question["role"] == "user"
        assert question["content"] == "What is 2+2?"
        assert question["parts"] == [{"kind": "text", "text": "What is 2+2?"}]
        assert question["sequence_number"] == 1
        assert (question["usage"], question["cost"], question["model"]) == (None, None, None)
        assert reply["sequence_number"] == 2
        assert reply["model"] == "openai/gpt-test"
        assert reply["usage"]["total_tokens"] == 15
        assert reply["cost"] == 0.25
        assert reply["state"] == "complete"
        assert reply["turn_id"] == turn.id
        assert "tool_calls" not in reply

    @pytest.mark.parametrize("estimated", [False, True])
    async def test_estimated_usage_is_marked(self, server, estimated):
        conversation = await server.create_conversation()
        usage = Usage(input=10, output=5, estimated=estimated)
        await server.add_turn(conversation, "What is 2+2?", "4", usage=usage)

        _, reply = (await server.get(f"{LIST}/{conversation}"))["messages"]
        (day,) = (await server.get("/v1/usage"))["usage"]

        assert reply["usage"]["estimated"] is estimated
        assert day["estimated"] is estimated

    async def test_tool_calls_and_results_are_shown_in_openais_format(self, server):
        call = {
            "id": "c1",
            "type": "function",
            "function": {"name": "look_up", "arguments": '{"a":1}'},
        }
        raws = (
            {"role": "user", "content": [{"type": "text", "text": "Look it up"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
            {"role": "assistant", "content": "It is 42."},
        )
        conversation = await server.create_conversation()
        await server.save_turn(conversation, openai_messages(*raws))

        messages = (await server.get(f"{LIST}/{conversation}"))["messages"]

        assert messages[0]["content"] == raws[0]["content"]
        assert messages[1]["tool_calls"] == [call]
        assert messages[1]["content"] is None
        assert messages[1]["parts"][0]["kind"] == "tool_call"
        assert messages[2]["tool_call_id"] == "c1"
        assert [message["usage"] is None for message in messages] == [True, True, True, False]

    async def test_messages_in_anthropics_format_have_text_calls_and_parts(self, server):
        blocks = [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"a": 1}},
            {"type": "unheard_of", "x": 1},
        ]
        result = [{"type": "tool_result", "tool_use_id": "t1", "content": "42"}]
        messages = (
            plain_message("user", "Hello"),
            Message(
                role="assistant",
                dialect="anthropic",
                raw=msgspec.json.encode({"role": "assistant", "content": blocks}),
            ),
            Message(
                role="tool",
                dialect="anthropic",
                raw=msgspec.json.encode({"role": "user", "content": result}),
            ),
        )
        conversation = await server.create_conversation()
        await server.save_turn(conversation, messages)

        _, reply, tool = (await server.get(f"{LIST}/{conversation}"))["messages"]

        assert reply["content"] == "Let me see."
        assert reply["tool_calls"][0]["function"]["name"] == "look_up"
        assert json.loads(reply["tool_calls"][0]["function"]["arguments"]) == {"a": 1}
        assert [part["kind"] for part in reply["parts"]] == [
            "thinking",
            "text",
            "tool_call",
            "unknown",
        ]
        assert reply["parts"][3]["raw"] == blocks[3]
        assert tool["tool_call_id"] == "t1"

    async def test_every_returned_id_can_be_requested(self, server):
        conversation = await server.create_conversation()
        turn = await server.add_turn(conversation, "One", "1")
        await server.add_turn(conversation, "Two", "2")
        branch = (
            await server("POST", f"{LIST}/{conversation}/branch", json={"branch_at_sequence": 2})
        ).json()
        await server.save_turn(
            branch["id"],
            (plain_message("user", "One"), plain_message("assistant", "i")),
            place=turn.place,
        )
        detail = await server.get(f"{LIST}/{branch['id']}?variants=true")

        listed = [*detail["messages"], *(m for v in detail["variants"] for m in v["messages"])]
        assert len(listed) == 4
        for message in listed:
            found = await server.get(f"{LIST}/{branch['id']}/messages/{message['id']}")
            assert found == message
            turn_found = await server.get(f"{LIST}/{branch['id']}/turns/{message['turn_id']}")
            assert message in turn_found["messages"]
        parent = detail["parent"]["conversation_id"]
        assert (await server.get(f"{LIST}/{parent}"))["id"] == conversation

    async def test_a_message_can_be_read_by_its_number(self, server):
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "One", "1")

        assert (await server.get(f"{LIST}/{conversation}/messages/2"))["content"] == "1"
        for wrong, status, code in (
            ("3", 404, "sequence_not_found"),
            ("0", 422, "invalid_sequence_number"),
            ("nobody-0", 404, "message_not_found"),
        ):
            response = await server("GET", f"{LIST}/{conversation}/messages/{wrong}")
            assert (response.status_code, response.json()["error"]["code"]) == (status, code)

    async def test_variants_have_the_same_sequence_numbers(self, server):
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "Zero", "0")
        first = await server.add_turn(conversation, "One", "1")
        await server.save_turn(
            conversation,
            (plain_message("user", "One"), plain_message("assistant", "uno")),
            place=first.place,
        )

        plain = await server.get(f"{LIST}/{conversation}")
        detail = await server.get(f"{LIST}/{conversation}?variants=true")

        assert plain["variants"] is None
        assert [m["content"] for m in detail["messages"]] == ["Zero", "0", "One", "uno"]
        (variant,) = detail["variants"]
        assert not variant["on_default_path"]
        assert [(m["content"], m["sequence_number"]) for m in variant["messages"]] == [
            ("One", 3),
            ("1", 4),
        ]

    async def test_a_long_conversation_can_be_read_in_pages(self, server):
        conversation = await server.create_conversation()
        for number in range(5):
            await server.add_turn(conversation, f"q{number}", f"a{number}")

        seen, after = [], 0
        while after is not None:
            page = await server.get(f"{LIST}/{conversation}?after={after}&limit=3")
            assert page["message_count"] == 10
            seen += [m["sequence_number"] for m in page["messages"]]
            after = page["next_after"]

        assert seen == list(range(1, 11))
        assert (await server.get(f"{LIST}/{conversation}?after=99"))["messages"] == []

    @pytest.mark.parametrize(
        ("reference", "status", "code"),
        [
            (UNKNOWN, 404, "conversation_not_found"),
            (UNKNOWN.upper(), 404, "conversation_not_found"),
            ("not-a-uuid", 400, "invalid_conversation_id"),
            ("..%2fetc", 404, "not_found"),
            ("a%00b", 400, "invalid_conversation_id"),
            ("files:nobody", 404, "conversation_not_found"),
            ("files:a.b", 400, "invalid_conversation_id"),
        ],
    )
    async def test_unknown_and_invalid_ids(self, server, reference, status, code):
        response = await server("GET", f"{LIST}/{reference}")

        assert (response.status_code, response.json()["error"]["code"]) == (status, code)

    async def test_a_conversation_with_another_form_of_id_can_be_read(self, server):
        await server.create_conversation("demo")
        await server.add_turn("demo", "Hello", "Hi")

        assert (await server.get(f"{LIST}/demo"))["message_count"] == 2

    async def test_a_uuid_in_upper_case_is_the_same_conversation(self, server):
        conversation = await server.create_conversation()

        assert (await server.get(f"{LIST}/{conversation.upper()}"))["id"] == conversation


class TestChanging:
    async def test_omitted_fields_are_unchanged(self, server):
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "Hello", "Hi")
        await server("PATCH", f"{LIST}/{conversation}", json={"metadata": {"a": 1}})

        changed = (await server("PATCH", f"{LIST}/{conversation}", json={"title": "New"})).json()

        assert changed["title"] == "New"
        assert changed["metadata"] == {"a": 1}
        assert changed["message_count"] == 2

    async def test_nothing_to_change_changes_nothing(self, server):
        conversation = await server.create_conversation()
        before = (await server.get(f"{LIST}/{conversation}"))["updated_at"]

        changed = (await server("PATCH", f"{LIST}/{conversation}", json={})).json()

        assert changed["updated_at"] == before

    async def test_an_archived_conversation_can_be_read_branched_and_unarchived(self, server):
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "Hello", "Hi")
        path = f"{LIST}/{conversation}"
        assert (await server("DELETE", path)).status_code == 204
        assert (await server("DELETE", path)).status_code == 204

        assert (await server.get(path))["archived_at"] is not None
        branch = await server("POST", f"{path}/branch", json={"branch_at_sequence": 1})
        assert branch.status_code == 201
        back = (await server("PATCH", path, json={"archived": False})).json()
        assert back["archived_at"] is None

    async def test_a_title_can_be_removed(self, server):
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "Hello", "Hi")

        changed = (await server("PATCH", f"{LIST}/{conversation}", json={"title": None})).json()

        assert changed["title"] is None

    @pytest.mark.parametrize("body", [{"archived": "yes"}, {"metadata": None}, {"id": "x"}])
    async def test_an_invalid_change_is_rejected(self, server, body):
        conversation = await server.create_conversation()

        assert (await server("PATCH", f"{LIST}/{conversation}", json=body)).status_code == 422


class TestDeleting:
    async def test_a_permanent_deletion_leaves_only_branches(self, server):
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "A needle", "Found")
        path = f"{LIST}/{conversation}"
        branch = (await server("POST", f"{path}/branch", json={"branch_at_sequence": 2})).json()

        assert (await server("DELETE", f"{path}?permanent=true")).status_code == 204

        assert (await server("GET", path)).status_code == 404
        found = await server.get(f"{LIST}/search?q=needle&archive_filter=all")
        assert [hit["conversation_id"] for hit in found["results"]] == [branch["id"]]
        detail = await server.get(f"{LIST}/{branch['id']}")
        assert len(detail["messages"]) == 2
        assert detail["parent"] is None

    async def test_a_message_is_deleted_with_all_later_ones(self, server):
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "One", "1")
        await server.add_turn(conversation, "Two", "2")
        path = f"{LIST}/{conversation}"

        assert (await server("DELETE", f"{path}/messages/3")).status_code == 204

        assert [m["content"] for m in (await server.get(path))["messages"]] == ["One", "1"]

    @pytest.mark.parametrize(
        ("number", "status", "code"),
        [
            ("0", 422, "invalid_sequence_number"),
            ("-1", 422, "invalid_sequence_number"),
            ("x", 422, "invalid_sequence_number"),
            ("99999999999999999999", 422, "invalid_sequence_number"),
            ("٣", 422, "invalid_sequence_number"),
            ("9", 404, "sequence_not_found"),
        ],
    )
    async def test_invalid_and_unknown_sequence_numbers(self, server, number, status, code):
        conversation = await server.create_conversation()

        response = await server("DELETE", f"{LIST}/{conversation}/messages/{number}")

        assert (response.status_code, response.json()["error"]["code"]) == (status, code)


class TestBranching:
    async def test_a_branch_has_the_messages_up_to_a_number_and_its_parent(self, server):
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "One", "1")
        await server.add_turn(conversation, "Two", "2")

        response = await server(
            "POST", f"{LIST}/{conversation}/branch", json={"branch_at_sequence": 3}
        )

        assert response.status_code == 201
        branch = response.json()
        assert branch["id"] != conversation
        assert [m["content"] for m in branch["messages"]] == ["One", "1", "Two"]
        assert branch["parent"] == {
            "conversation_id": conversation,
            "sequence_number": 3,
            "kind": "branch",
        }
        assert await server.get(f"{LIST}/{branch['id']}") == branch

    @pytest.mark.parametrize(
        ("at", "status", "code"),
        [
            (0, 422, "invalid_sequence_number"),
            (-3, 422, "invalid_sequence_number"),
            (2**70, 422, "invalid_sequence_number"),
            (9, 404, "sequence_not_found"),
            ("1", 422, "validation_error"),
            (True, 422, "validation_error"),
            (None, 422, "validation_error"),
        ],
    )
    async def test_an_invalid_branch_point(self, server, at, status, code):
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "One", "1")

        response = await server(
            "POST", f"{LIST}/{conversation}/branch", json={"branch_at_sequence": at}
        )

        assert (response.status_code, response.json()["error"]["code"]) == (status, code)


class TestSearching:
    async def test_a_match_has_its_position_and_a_snippet(self, server):
        conversation = await server.create_conversation()
        turn = await server.add_turn(conversation, "Where is the needle?", "In the haystack")

        found = await server.get(f"{LIST}/search?q=HAYSTACK")

        assert found["total"] == 1
        (hit,) = found["results"]
        assert hit["conversation_id"] == conversation
        assert hit["sequence_number"] == 2
        assert hit["role"] == "assistant"
        assert "haystack" in hit["snippet"]
        assert turn.id

    async def test_the_filter_finds_archived_conversations(self, server):
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "needle", "ok")
        await server("DELETE", f"{LIST}/{conversation}")

        assert (await server.get(f"{LIST}/search?q=needle"))["total"] == 0
        assert (await server.get(f"{LIST}/search?q=needle&archive_filter=archived"))["total"] == 1

    @pytest.mark.parametrize("query", ["", "?q=", "?q=%20", "?q=a&limit=0"])
    async def test_an_empty_search_is_rejected(self, server, query):
        assert (await server("GET", f"{LIST}/search{query}")).status_code == 422


class TestFiles:
    async def test_conversation_files_are_a_separate_store(self, server):
        files = server.state.files
        assert files is not None
        await files.create(
            NewConversation(id="demo", title="From the terminal"),
            opening=Opening(
                system=plain_message("system", "Be brief."),
                system_record=SystemRecord(policy="captured", source="settings"),
            ),
        )

        listed = await server.get(f"{LIST}?store=files")
        assert [one["id"] for one in listed["conversations"]] == ["files:demo"]
        assert (await server.get(LIST))["total"] == 0
        detail = await server.get(f"{LIST}/files:demo")
        assert detail["id"] == "files:demo"
        assert detail["system"]["prompt"] == "Be brief."
        renamed = await server("PATCH", f"{LIST}/files:demo", json={"title": "Renamed"})
        assert renamed.json()["id"] == "files:demo"
        assert (await server("DELETE", f"{LIST}/files:demo?permanent=true")).status_code == 204
        assert (await server.get(f"{LIST}?store=files"))["total"] == 0

    @pytest.mark.parametrize("path", [f"{LIST}?store=files", f"{LIST}/search?q=hello&store=files"])
    async def test_an_unreadable_file_is_reported_by_its_id(self, server, tmp_path, path):
        files = server.state.files
        await files.create(NewConversation(id="bad"))
        (stored,) = tmp_path.rglob("bad.json")
        stored.write_text("{broken", encoding="utf-8")

        response = await server("GET", path)

        assert response.status_code == 200
        (notice,) = msgspec.json.decode(response.headers["x-cllm-notice"])
        assert (notice["code"], notice["path"]) == ("conversation_skipped", "files:bad")
        assert "'files:bad'" in notice["message"]
        assert str(stored.parent) not in str(response.headers)

    async def test_a_server_with_keys_has_no_such_store(self, tmp_path):
        headers = {"x-api-key": KEYS["alice"]}
        async with open_server_app(tmp_path, SETTINGS_WITH_KEYS, headers=headers) as server:
            listed = await server("GET", f"{LIST}?store=files")
            read = await server("GET", f"{LIST}/files:demo")
            unknown = await server("GET", f"{LIST}/{UNKNOWN}")

        assert listed.status_code == 422
        assert read.status_code == 404
        assert read.content == unknown.content


async def test_a_dynamic_conversation_shows_no_system_message(server):
    conversation = await server.create_conversation()
    await server.save_turn(
        conversation,
        (
            plain_message("user", "Hello"),
            plain_message("system", "a secret instruction"),
            plain_message("assistant", "Hi"),
        ),
    )
    assert DYNAMIC.system is None

    for path in ("", "?variants=true", "/export", "/export?format=markdown", "/export?format=html"):
        assert (
            "secret instruction" not in (await server("GET", f"{LIST}/{conversation}{path}")).text
        )

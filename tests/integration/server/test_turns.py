"""Single turns: their prompts and their event streams."""

import asyncio

import pytest

from cllm.core.conversation import SystemRecord, Turn, WindowRecord
from cllm.core.message import plain_message
from cllm.core.ports import Changes, NewConversation, Opening, StreamEvent, TurnStart

LIST = "/v1/conversations"


def window(first: int, sent: int, **more) -> WindowRecord:
    return WindowRecord(first_sequence=first, sent_messages=sent, **more)


async def get_prompt(server, conversation: str, turn: Turn):
    return await server.get(f"{LIST}/{conversation}/turns/{turn.id}/prompt")


class TestPrompts:
    async def test_sent_messages_are_shown_in_order_without_a_dynamic_system_prompt(self, server):
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "One", "1", window=window(1, 1))
        turn = await server.add_turn(conversation, "Two", "2", window=window(1, 3, counted=42))

        prompt = await get_prompt(server, conversation, turn)

        assert [(one["kind"], one["role"], one["content"]) for one in prompt["sent"]] == [
            ("system", "system", "not kept"),
            ("history", "user", "One"),
            ("history", "assistant", "1"),
            ("request", "user", "Two"),
        ]
        assert prompt["exact"]
        assert prompt["left_out"] == []
        assert prompt["counted_tokens"] == 42
        assert all(one["tokens"] > 0 for one in prompt["sent"][1:])
        assert prompt["estimated_tokens"] == sum(one["tokens"] or 0 for one in prompt["sent"])

    async def test_left_out_messages_have_a_reason(self, server):
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "One", "1")
        await server.add_turn(conversation, "Two", "2")
        await server.add_turn(conversation, "Broken", state="failed", usage=None, cost=None)
        turn = await server.add_turn(conversation, "Three", "3", window=window(3, 3))

        prompt = await get_prompt(server, conversation, turn)

        assert prompt["left_out"] == [
            {"first": 1, "last": 2, "reason": "window"},
            {"first": 5, "last": 5, "reason": "failed"},
        ]
        assert [one["sequence_number"] for one in prompt["sent"]] == [None, 3, 4, None]
        assert prompt["exact"]

    async def test_a_pinned_turn_is_sent_from_before_the_window(self, server):
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "One", "1")
        await server.add_turn(conversation, "Two", "2")
        await server.state.store.update(conversation, Changes(pins=(1,)))
        turn = await server.add_turn(conversation, "Three", "3", window=window(5, 3))

        prompt = await get_prompt(server, conversation, turn)

        assert [one["content"] for one in prompt["sent"][1:]] == ["One", "1", "Three"]
        assert prompt["exact"]

    async def test_a_prompt_with_another_number_of_messages_is_not_exact(self, server):
        conversation = await server.create_conversation()
        await server.add_turn(conversation, "One", "1")
        turn = await server.add_turn(conversation, "Two", "2", window=window(1, 9))

        assert not (await get_prompt(server, conversation, turn))["exact"]

    async def test_a_stored_system_prompt_is_shown(self, server):
        store = server.state.store
        new = NewConversation(id=server.state.new_id())
        record = SystemRecord(policy="captured", source="settings")
        opening = Opening(system=plain_message("system", "Be brief."), system_record=record)
        await store.create(new, opening=opening)
        turn = await server.add_turn(new.id, "Hello", "Hi", window=window(1, 1))

        prompt = await get_prompt(server, new.id, turn)

        assert prompt["system_policy"] == "captured"
        assert prompt["sent"][0]["content"] == "Be brief."

    async def test_an_unknown_turn_is_not_found(self, server):
        conversation = await server.create_conversation()

        for path in ("", "/prompt", "/events"):
            response = await server("GET", f"{LIST}/{conversation}/turns/nobody{path}")
            assert response.status_code == 404
            assert response.json()["error"]["code"] == "turn_not_found"


class TestStreams:
    async def start(self, server, conversation: str):
        start = TurnStart(id=server.state.new_id(), messages=(plain_message("user", "Hello"),))
        return await server.state.store.begin_turn(conversation, start)

    def event(self, number: int) -> StreamEvent:
        return StreamEvent(number=number, data=b"id: %d\ndata: {%d}\n\n" % (number, number))

    async def finish(self, server, lease) -> None:
        turn = Turn(
            id=lease.turn.id,
            place=lease.turn.place,
            state="complete",
            messages=(plain_message("user", "Hello"), plain_message("assistant", "Hi")),
            started_at=lease.turn.started_at,
            ended_at=server.state.clock(),
        )
        await server.state.store.finish_turn(lease, turn)

    async def test_an_ended_turn_is_replayed_after_the_last_event_id(self, server):
        conversation = await server.create_conversation()
        lease = await self.start(server, conversation)
        await server.state.store.add_events(lease, [self.event(n) for n in (1, 2, 3)])
        await self.finish(server, lease)
        path = f"{LIST}/{conversation}/turns/{lease.turn.id}/events"

        whole = await server("GET", path)
        rest = await server("GET", path, headers={"Last-Event-ID": "2"})
        nothing = await server("GET", path, headers={"Last-Event-ID": "3"})

        assert whole.headers["content-type"].startswith("text/event-stream")
        assert whole.content == b"".join(self.event(n).data for n in (1, 2, 3))
        assert rest.content == self.event(3).data
        assert nothing.content == b""

    async def test_a_running_turn_is_followed_to_its_end_with_each_event_once(self, server):
        conversation = await server.create_conversation()
        lease = await self.start(server, conversation)
        store = server.state.store
        await store.add_events(lease, [self.event(1), self.event(2)])

        async def run() -> None:
            for number in (3, 4):
                await asyncio.sleep(0.15)
                await store.add_events(lease, [self.event(number)])
            await asyncio.sleep(0.5)
            await store.add_events(lease, [self.event(5)])
            await self.finish(server, lease)

        path = f"{LIST}/{conversation}/turns/{lease.turn.id}/events"
        response, _ = await asyncio.gather(
            server("GET", path, headers={"Last-Event-ID": "1"}), run()
        )

        events = [line for line in response.text.split("\n") if line.startswith("id: ")]
        assert events == ["id: 2", "id: 3", "id: 4", "id: 5"]
        assert ": still running" in response.text

    async def test_an_expired_stream_is_an_error(self, server):
        conversation = await server.create_conversation()
        turn = await server.add_turn(conversation, "Hello", "Hi")

        response = await server("GET", f"{LIST}/{conversation}/turns/{turn.id}/events")

        assert response.status_code == 404
        assert response.json()["error"]["code"] == "events_not_kept"

    @pytest.mark.parametrize("value", ["x", "-1", "1.5", "9" * 40])
    async def test_an_invalid_last_event_id_is_rejected(self, server, value):
        conversation = await server.create_conversation()

        response = await server(
            "GET", f"{LIST}/{conversation}/turns/t/events", headers={"Last-Event-ID": value}
        )

        assert response.status_code == 400
        assert response.json()["error"]["code"] == "invalid_header"

    async def test_a_deleted_conversation_ends_the_stream_with_an_error(self, server):
        """A follower that polls between the end of the turn and the deletion sees a normal end."""
        texts = [await self.follow_deleted(server) for _ in range(5)]

        assert all(text.startswith(self.event(1).data.decode()) for text in texts)
        assert any("conversation_not_found" in text for text in texts)

    async def follow_deleted(self, server) -> str:
        """Follow a turn that ends and is deleted immediately; return the received text."""
        conversation = await server.create_conversation()
        lease = await self.start(server, conversation)
        store = server.state.store
        await store.add_events(lease, [self.event(1)])

        async def delete() -> None:
            await asyncio.sleep(0.25)
            await self.finish(server, lease)
            await store.delete(conversation)

        path = f"{LIST}/{conversation}/turns/{lease.turn.id}/events"
        response, _ = await asyncio.gather(server("GET", path), delete())
        return str(response.text)

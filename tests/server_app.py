"""The server's application in this process, with real settings and a real store.

For tests of single endpoints. `tests/server_process.py` runs `cllm serve` as a process.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec

from cllm.core.conversation import LOCAL_OWNER, StoredConversation, SystemRecord, Turn
from cllm.core.message import Message, plain_message
from cllm.core.ports import NewConversation, Opening, TurnStart
from cllm.core.reply import Usage
from cllm.server.http.app import build_app
from cllm.server.state import ServerState, open_server_state
from cllm.settings.load import CommandLine, Environment, load_settings

ADDRESS = "http://127.0.0.1:3000"
DYNAMIC = Opening(system=None, system_record=SystemRecord(policy="dynamic"))
KEYS = {"alice": "key-of-alice-0123456789", "bob": "key-of-bob-0123456789ab"}
SETTINGS_WITH_KEYS = (
    "server: {keys: ["
    + ", ".join(f"{{name: {name}, owner: {name}, key: {key}}}" for name, key in KEYS.items())
    + "]}"
)


def openai_messages(*raws: dict[str, Any]) -> tuple[Message, ...]:
    """Return messages in OpenAI's format."""
    return tuple(Message(role=raw["role"], raw=msgspec.json.encode(raw)) for raw in raws)


@dataclass(frozen=True)
class ServerApp:
    """A server and its HTTP client, with methods that add to its store."""

    state: ServerState
    client: httpx.AsyncClient

    async def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        return await self.client.request(method, path, **options)

    async def get(self, path: str, **options: Any) -> Any:
        """Return the JSON of a response that must have status 200."""
        response = await self.client.get(path, **options)
        assert response.status_code == 200, response.text
        return response.json()

    async def create_conversation(
        self, conversation: str | None = None, *, owner: str = LOCAL_OWNER
    ) -> str:
        """Create an empty dynamic conversation."""
        new = NewConversation(id=conversation or self.state.new_id())
        await self.state.store.create(new, owner=owner, opening=DYNAMIC)
        return new.id

    async def add_turn(
        self, conversation: str, *texts: str, owner: str = LOCAL_OWNER, **fields: Any
    ) -> Turn:
        """Save a turn whose texts alternate between user and assistant."""
        messages = tuple(
            plain_message("assistant" if index % 2 else "user", text)
            for index, text in enumerate(texts)
        )
        return await self.save_turn(conversation, messages, owner=owner, **fields)

    async def save_turn(
        self,
        conversation: str,
        messages: tuple[Message, ...],
        *,
        owner: str = LOCAL_OWNER,
        place: str | None = None,
        **fields: Any,
    ) -> Turn:
        store = self.state.store
        start = TurnStart(id=self.state.new_id(), messages=messages[:1], place=place)
        lease = await store.begin_turn(conversation, start, owner=owner)
        defaults = {
            "state": "complete",
            "model": "openai/gpt-test",
            "provider": "openai",
            "usage": Usage(input=10, output=5),
            "cost": 0.25,
            "ended_at": self.state.clock(),
        }
        turn = Turn(
            id=lease.turn.id,
            place=lease.turn.place,
            messages=messages,
            started_at=lease.turn.started_at,
            **{**defaults, **fields},
        )
        await store.finish_turn(lease, turn)
        return turn

    async def load(self, conversation: str, *, owner: str = LOCAL_OWNER) -> StoredConversation:
        return await self.state.store.load(conversation, owner=owner)


@asynccontextmanager
async def open_server_app(
    folder: Path, settings: str = "", *, store: str | None = "memory:", **options: Any
) -> AsyncIterator[ServerApp]:
    """Open a server with the settings of a Cllmfile, which name its store if `store` is None."""
    home = folder / "home"
    (home / ".cllm").mkdir(parents=True, exist_ok=True)
    (home / ".cllm/Cllmfile.yml").write_text(settings, encoding="utf-8")
    environment = {"OPENAI_API_KEY": "sk-openai-test", "KEY_OF_ALICE": KEYS["alice"]}
    location = Environment(home=home, directory=folder, environment=environment)
    loaded = load_settings(location, CommandLine(values={} if store is None else {"store": store}))
    state = open_server_state(loaded)
    app = build_app(state)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url=ADDRESS, **options) as client,
    ):
        yield ServerApp(state=state, client=client)

"""Replaces references to stored items in the input of a request by the items."""

from collections.abc import Sequence
from typing import Any

from cllm.core.errors import ConversationNotFoundError
from cllm.server.api.response_views import find_item
from cllm.server.http.errors import ApiError
from cllm.server.state import ApiRequest
from cllm.server.turns.previous_response import StoredResponse, list_responses
from cllm.wire.responses.ids import read_item_id
from cllm.wire.responses.request import is_reference

MAX_ID_LENGTH = 120
"""Of an ID in an error message, in characters."""


async def resolve_references(items: Sequence[Any], request: ApiRequest, *, field: str) -> list[Any]:
    """Return the items of a field; raise ApiError for an item that is not stored."""
    reader = _ItemReader(request, field)
    return [await reader.read(item.get("id")) if is_reference(item) else item for item in items]


class _ItemReader:
    def __init__(self, request: ApiRequest, field: str) -> None:
        self._store = request.server.store
        self._owner = request.caller.owner
        self._field = field
        self._responses: dict[str, dict[str, StoredResponse]] = {}

    async def read(self, item_id: Any) -> Any:
        item = await self._find(item_id) if isinstance(item_id, str) else None
        if item is None:
            message = f"Item with id '{str(item_id)[:MAX_ID_LENGTH]}' not found."
            raise ApiError("item_not_found", message, param=self._field)
        return item

    async def _find(self, item_id: str) -> Any:
        key = read_item_id(item_id)
        if key is None:
            return None
        conversation, turn = key.response.conversation, key.response.turn
        if conversation not in self._responses:
            self._responses[conversation] = await self._load(conversation)
        found = self._responses[conversation].get(turn)
        index = key.index if key.is_input else None
        return None if found is None else find_item(found, item_id, index=index)

    async def _load(self, conversation: str) -> dict[str, StoredResponse]:
        try:
            return list_responses(await self._store.load(conversation, owner=self._owner))
        except ConversationNotFoundError:
            return {}

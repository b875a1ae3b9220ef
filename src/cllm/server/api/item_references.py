"""Replaces references to stored items in the input of a request by the items."""

from typing import Any

import msgspec

from cllm.server.api.response_views import find_item
from cllm.server.http.errors import ApiError
from cllm.server.state import ApiRequest
from cllm.server.turns.previous_response import StoredResponse, load_response
from cllm.wire.openai.request import decode_body
from cllm.wire.responses.ids import ResponseKey, read_item_id

REFERENCE = "item_reference"


async def resolve_references(body: bytes, request: ApiRequest, *, field: str = "input") -> bytes:
    """Return the body with the items; raise ApiError for an item that is not stored."""
    fields = decode_body(body)
    items = fields.get(field)
    if not isinstance(items, list) or not any(map(is_reference, items)):
        return body
    reader = _ItemReader(request, field)
    resolved = [await reader.read(item.get("id")) if is_reference(item) else item for item in items]
    return msgspec.json.encode({**fields, field: resolved})


def is_reference(item: Any) -> bool:
    """Whether it is a reference: OpenAI's SDK may omit the type, or send null."""
    if not isinstance(item, dict):
        return False
    return item.get("type") == REFERENCE or item.keys() == {"id"}


class _ItemReader:
    def __init__(self, request: ApiRequest, field: str) -> None:
        self._request = request
        self._field = field
        self._found: dict[ResponseKey, StoredResponse | None] = {}

    async def read(self, item_id: Any) -> Any:
        key = read_item_id(item_id) if isinstance(item_id, str) else None
        found = None if key is None else await self._load(key.response)
        item = None
        if key is not None and found is not None:
            item = find_item(found, item_id, index=key.index if key.is_input else None)
        if item is None:
            message = f"Item with id '{item_id}' not found."
            raise ApiError("item_not_found", message, param=self._field)
        return item

    async def _load(self, key: ResponseKey) -> StoredResponse | None:
        if key not in self._found:
            store, owner = self._request.server.store, self._request.caller.owner
            self._found[key] = await load_response(store, key, owner=owner)
        return self._found[key]

"""The table of routes."""

from typing import Literal

import msgspec

Protocol = Literal["openai", "anthropic"]
Access = Literal["anyone", "caller"]
"""Who may call a route: every client, or those with a key where keys are configured."""


class Row(msgspec.Struct, frozen=True):
    """A route. Its endpoint, `module:function`, takes an `ApiRequest` and returns a response."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    endpoint: str
    access: Access
    protocol: Protocol = "openai"


CONVERSATIONS = "/v1/conversations"
CONVERSATION = f"{CONVERSATIONS}/{{conversation_id}}"
MESSAGE = f"{CONVERSATION}/messages/{{message}}"
TURN = f"{CONVERSATION}/turns/{{turn_id}}"

ROUTES = (
    Row("POST", "/v1/chat/completions", "api.completions:complete", "caller"),
    Row("POST", "/v1/messages", "api.messages:create", "caller", "anthropic"),
    Row("POST", "/v1/messages/count_tokens", "api.messages:count", "caller", "anthropic"),
    Row("POST", "/v1/embeddings", "api.completions:embed", "caller"),
    Row("GET", "/v1/models", "api.server:models", "caller"),
    Row("GET", "/v1/models/{model:path}", "api.server:model", "caller"),
    Row("GET", "/v1/usage", "api.server:usage", "caller"),
    Row("GET", CONVERSATIONS, "api.conversations:list_conversations", "caller"),
    Row("POST", CONVERSATIONS, "api.conversations:create_conversation", "caller"),
    Row("GET", f"{CONVERSATIONS}/search", "api.conversations:search", "caller"),
    Row("POST", f"{CONVERSATIONS}/import", "api.exports:import_conversation", "caller"),
    Row("GET", CONVERSATION, "api.conversations:get_conversation", "caller"),
    Row("PATCH", CONVERSATION, "api.conversations:change_conversation", "caller"),
    Row("DELETE", CONVERSATION, "api.conversations:delete_conversation", "caller"),
    Row("POST", f"{CONVERSATION}/branch", "api.conversations:branch_conversation", "caller"),
    Row("GET", f"{CONVERSATION}/export", "api.exports:export", "caller"),
    Row("GET", MESSAGE, "api.conversations:get_message", "caller"),
    Row("DELETE", MESSAGE, "api.conversations:delete_messages", "caller"),
    Row("GET", TURN, "api.turns:get_turn", "caller"),
    Row("GET", f"{TURN}/prompt", "api.turns:get_prompt", "caller"),
    Row("GET", f"{TURN}/events", "api.turns:get_events", "caller"),
    Row("GET", "/health", "api.server:health", "anyone"),
    Row("GET", "/ready", "api.server:ready", "anyone"),
    Row("GET", "/metrics", "http.metrics:metrics", "caller"),
    Row("GET", "/openapi.json", "openapi.description:description", "anyone"),
    Row("GET", "/docs", "openapi.page:docs", "anyone"),
)

"""The table of routes."""

from typing import Literal

import msgspec

Protocol = Literal["openai", "anthropic"]
Access = Literal["anyone", "caller"]
"""Who may call a route: every client, or those with a key where keys are configured."""


class HttpRoute(msgspec.Struct, frozen=True):
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
    HttpRoute("POST", "/v1/chat/completions", "api.completions:complete", "caller"),
    HttpRoute("POST", "/v1/messages", "api.messages:create", "caller", "anthropic"),
    HttpRoute("POST", "/v1/messages/count_tokens", "api.messages:count", "caller", "anthropic"),
    HttpRoute("POST", "/v1/embeddings", "api.completions:embed", "caller"),
    HttpRoute("GET", "/v1/models", "api.server:models", "caller"),
    HttpRoute("GET", "/v1/models/{model:path}", "api.server:model", "caller"),
    HttpRoute("GET", "/v1/usage", "api.server:usage", "caller"),
    HttpRoute("GET", CONVERSATIONS, "api.conversations:list_conversations", "caller"),
    HttpRoute("POST", CONVERSATIONS, "api.conversations:create_conversation", "caller"),
    HttpRoute("GET", f"{CONVERSATIONS}/search", "api.conversations:search", "caller"),
    HttpRoute("POST", f"{CONVERSATIONS}/import", "api.exports:import_conversation", "caller"),
    HttpRoute("GET", CONVERSATION, "api.conversations:get_conversation", "caller"),
    HttpRoute("PATCH", CONVERSATION, "api.conversations:change_conversation", "caller"),
    HttpRoute("DELETE", CONVERSATION, "api.conversations:delete_conversation", "caller"),
    HttpRoute("POST", f"{CONVERSATION}/branch", "api.conversations:branch_conversation", "caller"),
    HttpRoute("GET", f"{CONVERSATION}/export", "api.exports:export", "caller"),
    HttpRoute("GET", MESSAGE, "api.conversations:get_message", "caller"),
    HttpRoute("DELETE", MESSAGE, "api.conversations:delete_messages", "caller"),
    HttpRoute("GET", TURN, "api.turns:get_turn", "caller"),
    HttpRoute("GET", f"{TURN}/prompt", "api.turns:get_prompt", "caller"),
    HttpRoute("GET", f"{TURN}/events", "api.turns:get_events", "caller"),
    HttpRoute("GET", "/health", "api.server:health", "anyone"),
    HttpRoute("GET", "/ready", "api.server:ready", "anyone"),
    HttpRoute("GET", "/metrics", "http.metrics:metrics", "caller"),
    HttpRoute("GET", "/openapi.json", "openapi.description:description", "anyone"),
    HttpRoute("GET", "/docs", "openapi.page:docs", "anyone"),
)

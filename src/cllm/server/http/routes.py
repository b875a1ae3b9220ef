"""The table of routes. A route that is not in it does not exist; one without `access` is denied."""

from typing import Literal

import msgspec

from cllm.server.serving import Access

Protocol = Literal["openai", "anthropic"]


class Row(msgspec.Struct, frozen=True):
    """A route: how it is called, the function that answers, and who may call it.

    The endpoint is `module:function`, a coroutine function of a Starlette request that returns a
    response or raises one of our errors, which is told in the words of `protocol`.
    """

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
    Row("POST", "/v1/chat/completions", "cllm.server.api.completions:complete", "caller"),
    Row("POST", "/v1/messages", "cllm.server.api.messages:create", "caller", "anthropic"),
    Row(
        "POST",
        "/v1/messages/count_tokens",
        "cllm.server.api.messages:count",
        "caller",
        "anthropic",
    ),
    Row("POST", "/v1/embeddings", "cllm.server.api.completions:embed", "caller"),
    Row("GET", "/v1/models", "cllm.server.api.models:models", "caller"),
    Row("GET", "/v1/models/{model:path}", "cllm.server.api.models:model", "caller"),
    Row("GET", "/v1/usage", "cllm.server.api.usage:usage", "caller"),
    Row("GET", CONVERSATIONS, "cllm.server.api.conversations:list_conversations", "caller"),
    Row("POST", CONVERSATIONS, "cllm.server.api.conversations:create_conversation", "caller"),
    Row("GET", f"{CONVERSATIONS}/search", "cllm.server.api.conversations:search", "caller"),
    Row("POST", f"{CONVERSATIONS}/import", "cllm.server.api.exports:import_conversation", "caller"),
    Row("GET", CONVERSATION, "cllm.server.api.conversations:get_conversation", "caller"),
    Row("PATCH", CONVERSATION, "cllm.server.api.conversations:change_conversation", "caller"),
    Row("DELETE", CONVERSATION, "cllm.server.api.conversations:delete_conversation", "caller"),
    Row(
        "POST",
        f"{CONVERSATION}/branch",
        "cllm.server.api.conversations:branch_conversation",
        "caller",
    ),
    Row("GET", f"{CONVERSATION}/export", "cllm.server.api.exports:export", "caller"),
    Row("GET", MESSAGE, "cllm.server.api.conversations:get_message", "caller"),
    Row("DELETE", MESSAGE, "cllm.server.api.conversations:delete_messages", "caller"),
    Row("GET", TURN, "cllm.server.api.turns:get_turn", "caller"),
    Row("GET", f"{TURN}/prompt", "cllm.server.api.turns:get_prompt", "caller"),
    Row("GET", f"{TURN}/events", "cllm.server.api.turns:get_events", "caller"),
    Row("GET", "/health", "cllm.server.api.health:health", "anyone"),
    Row("GET", "/ready", "cllm.server.api.health:ready", "anyone"),
    Row("GET", "/metrics", "cllm.server.http.metrics:metrics", "caller"),
    Row("GET", "/openapi.json", "cllm.server.openapi.description:description", "anyone"),
    Row("GET", "/docs", "cllm.server.openapi.page:docs", "anyone"),
)

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
    Row("POST", "/v1/chat/completions", "cllm.server.completions:complete", "caller"),
    Row("POST", "/v1/messages", "cllm.server.messages:create", "caller", "anthropic"),
    Row(
        "POST",
        "/v1/messages/count_tokens",
        "cllm.server.messages_counting:count",
        "caller",
        "anthropic",
    ),
    Row("POST", "/v1/embeddings", "cllm.server.embeddings:embed", "caller"),
    Row("GET", "/v1/models", "cllm.server.models:models", "caller"),
    Row("GET", "/v1/models/{model:path}", "cllm.server.models:model", "caller"),
    Row("GET", "/v1/usage", "cllm.server.usage:usage", "caller"),
    Row("GET", CONVERSATIONS, "cllm.server.conversations:list_conversations", "caller"),
    Row("POST", CONVERSATIONS, "cllm.server.conversations:create_conversation", "caller"),
    Row("GET", f"{CONVERSATIONS}/search", "cllm.server.search:search", "caller"),
    Row("POST", f"{CONVERSATIONS}/import", "cllm.server.exporting:import_conversation", "caller"),
    Row("GET", CONVERSATION, "cllm.server.conversations:get_conversation", "caller"),
    Row("PATCH", CONVERSATION, "cllm.server.conversations:change_conversation", "caller"),
    Row("DELETE", CONVERSATION, "cllm.server.conversations:delete_conversation", "caller"),
    Row(
        "POST",
        f"{CONVERSATION}/branch",
        "cllm.server.conversations:branch_conversation",
        "caller",
    ),
    Row("GET", f"{CONVERSATION}/export", "cllm.server.exporting:export", "caller"),
    Row("GET", MESSAGE, "cllm.server.conversations:get_message", "caller"),
    Row("DELETE", MESSAGE, "cllm.server.conversations:delete_messages", "caller"),
    Row("GET", TURN, "cllm.server.past:get_turn", "caller"),
    Row("GET", f"{TURN}/prompt", "cllm.server.past:get_prompt", "caller"),
    Row("GET", f"{TURN}/events", "cllm.server.past:get_events", "caller"),
    Row("GET", "/health", "cllm.server.health:health", "anyone"),
    Row("GET", "/ready", "cllm.server.health:ready", "anyone"),
    Row("GET", "/metrics", "cllm.server.metrics:metrics", "caller"),
    Row("GET", "/openapi.json", "cllm.server.openapi:description", "anyone"),
    Row("GET", "/docs", "cllm.server.docs_page:docs", "anyone"),
)

"""The table of routes."""

from typing import Literal

import msgspec

Protocol = Literal["openai", "anthropic", "responses", "either", "page"]
"""`either`: Anthropic's if the request has the header `anthropic-version`. `page`: HTML."""
Access = Literal["anyone", "caller", "admin"]
"""Who may call a route: everybody, or callers with an API key if keys are configured.

`admin`: if the keys have several owners, callers with an admin key.
"""


class HttpRoute(msgspec.Struct, frozen=True):
    """A route. Its endpoint, `module:function`, takes an `ApiRequest` and returns a response."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    endpoint: str
    access: Access
    protocol: Protocol = "openai"

    @property
    def aliases(self) -> tuple[str, ...]:
        """Paths for clients of OpenAI's whose base URL lacks `/v1`."""
        return (self.path.removeprefix("/v1"),) if self.path in WITHOUT_VERSION else ()


OPENAI_ID = "openai"
"""The type of a path parameter: the ID of a conversation in OpenAI's format."""
RESPONSE = "/v1/responses/{response_id}"
CONVERSATIONS = "/v1/conversations"
CONVERSATION = f"{CONVERSATIONS}/{{conversation_id}}"
MESSAGE = f"{CONVERSATION}/messages/{{message}}"
OPENAI_CONVERSATION = f"{CONVERSATIONS}/{{conversation_id:{OPENAI_ID}}}"
ITEMS = f"{CONVERSATION}/items"
ITEM = f"{ITEMS}/{{item_id}}"
IMPORTS = "/v1/imports"
IMPORT = f"{IMPORTS}/{{import_id}}"
TURN = f"{CONVERSATION}/turns/{{turn_id}}"

WITHOUT_VERSION = (
    "/v1/chat/completions",
    "/v1/embeddings",
    "/v1/models",
    "/v1/responses",
    RESPONSE,
    f"{RESPONSE}/cancel",
    f"{RESPONSE}/input_items",
    "/v1/models/{model:path}",
)

ROUTES = (
    HttpRoute("POST", "/v1/chat/completions", "api.completions:create_chat_completion", "caller"),
    HttpRoute("POST", "/v1/responses", "api.responses:create_response", "caller", "responses"),
    HttpRoute("GET", RESPONSE, "api.stored_responses:get_response", "caller", "responses"),
    HttpRoute("DELETE", RESPONSE, "api.stored_responses:delete_response", "caller", "responses"),
    HttpRoute(
        "POST", f"{RESPONSE}/cancel", "api.stored_responses:cancel_response", "caller", "responses"
    ),
    HttpRoute(
        "GET",
        f"{RESPONSE}/input_items",
        "api.stored_responses:list_input_items",
        "caller",
        "responses",
    ),
    HttpRoute("POST", "/v1/messages", "api.messages:create_message", "caller", "anthropic"),
    HttpRoute(
        "POST", "/v1/messages/count_tokens", "api.messages:count_tokens", "caller", "anthropic"
    ),
    HttpRoute("POST", "/v1/embeddings", "api.embeddings:create_embedding", "caller"),
    HttpRoute("GET", "/v1/models", "api.models:get_models", "caller", "either"),
    HttpRoute("GET", "/v1/models/{model:path}", "api.models:get_model", "caller", "either"),
    HttpRoute("GET", "/v1/usage", "api.usage:get_usage", "caller"),
    HttpRoute("GET", CONVERSATIONS, "api.conversations:list_conversations", "caller"),
    HttpRoute("POST", CONVERSATIONS, "api.openai_conversations:create_conversation", "caller"),
    HttpRoute("GET", f"{CONVERSATIONS}/events", "api.conversation_feed:get_feed", "caller"),
    HttpRoute("GET", f"{CONVERSATIONS}/search", "api.conversations:search_conversations", "caller"),
    HttpRoute("GET", "/v1/messages/search", "api.conversations:search_conversations", "caller"),
    HttpRoute("POST", f"{CONVERSATIONS}/import", "api.exports:import_conversation", "caller"),
    HttpRoute(
        "POST",
        OPENAI_CONVERSATION,
        "api.openai_conversations:update_conversation",
        "caller",
        "responses",
    ),
    HttpRoute("GET", CONVERSATION, "api.openai_conversations:get_conversation", "caller"),
    HttpRoute("PATCH", CONVERSATION, "api.conversations:change_conversation", "caller"),
    HttpRoute("DELETE", CONVERSATION, "api.openai_conversations:delete_conversation", "caller"),
    HttpRoute(
        "GET",
        ITEMS,
        "api.conversation_items:list_conversation_items",
        "caller",
        "responses",
    ),
    HttpRoute(
        "POST",
        ITEMS,
        "api.conversation_items:create_conversation_items",
        "caller",
        "responses",
    ),
    HttpRoute("GET", ITEM, "api.conversation_items:get_conversation_item", "caller", "responses"),
    HttpRoute(
        "DELETE",
        ITEM,
        "api.conversation_items:delete_conversation_item",
        "caller",
        "responses",
    ),
    HttpRoute("POST", f"{CONVERSATION}/branch", "api.conversations:branch_conversation", "caller"),
    HttpRoute("GET", f"{CONVERSATION}/export", "api.exports:export_conversation", "caller"),
    HttpRoute("GET", MESSAGE, "api.conversations:get_message", "caller"),
    HttpRoute("DELETE", MESSAGE, "api.conversations:delete_messages", "caller"),
    HttpRoute("GET", TURN, "api.turns:get_turn", "caller"),
    HttpRoute("POST", f"{TURN}/cancel", "api.turns:cancel_turn", "caller"),
    HttpRoute("GET", f"{TURN}/prompt", "api.turns:get_prompt", "caller"),
    HttpRoute("GET", f"{TURN}/events", "api.turn_events:get_events", "caller"),
    HttpRoute("GET", IMPORTS, "api.imports:list_imports", "caller"),
    HttpRoute("POST", IMPORTS, "api.imports:create_import", "caller"),
    HttpRoute("GET", IMPORT, "api.imports:get_import", "caller"),
    HttpRoute("DELETE", IMPORT, "api.imports:delete_import", "caller"),
    HttpRoute("POST", f"{IMPORT}/pieces", "api.imports:append_piece", "caller"),
    HttpRoute("POST", f"{IMPORT}/run", "api.imports:run_import", "caller"),
    HttpRoute("GET", "/health", "api.health:get_health", "anyone"),
    HttpRoute("GET", "/ready", "api.health:get_readiness", "anyone"),
    HttpRoute("GET", "/metrics", "http.metrics:get_metrics", "admin"),
    HttpRoute("GET", "/openapi.json", "openapi.description:get_description", "anyone"),
    HttpRoute("GET", "/docs", "openapi.page:get_docs", "anyone"),
)

PAGE_ROUTES = (
    HttpRoute("GET", "/static/{name}", "page.static_files:get_static_file", "anyone", "page"),
    HttpRoute("GET", "/", "page.pages:show_list", "caller", "page"),
    HttpRoute("GET", "/search", "page.pages:show_search", "caller", "page"),
    HttpRoute("GET", "/usage", "page.pages:show_usage", "caller", "page"),
    HttpRoute("GET", "/c/{conversation_id}", "page.pages:show_conversation", "caller", "page"),
    HttpRoute("GET", "/c/{conversation_id}/t/{turn_id}", "page.pages:show_turn", "caller", "page"),
    HttpRoute("POST", "/render", "page.markdown:render_block", "caller", "page"),
)
"""The routes of the web page. They return HTML and are not part of the API."""

"""What each route does, for its description: a table beside the table of routes.

A row says what goes in and what comes out. It decides nothing; a test holds that no route is
without one.
"""

from typing import Any, Literal

import msgspec

from cllm.server.api import views
from cllm.server.api.models import ModelListView, ModelView
from cllm.server.api.turns import PromptView
from cllm.server.http import parameters
from cllm.server.http.routes import CONVERSATION, CONVERSATIONS, MESSAGE, TURN

JSON = "application/json"
EVENTS = "text/event-stream"
CONVERSATION_CODES = ("invalid_conversation_id", "conversation_not_found")
COMPLETION_CODES = (
    "invalid_conversation_id",
    "invalid_header",
    "model_not_allowed",
    "conversation_not_found",
    "model_not_found",
    "conversation_busy",
    "idempotency_conflict",
    "request_too_large",
    "empty_messages_array",
    "validation_error",
    "rate_limited",
    "budget_exceeded",
    "upstream_unreachable",
    "upstream_timeout",
)
COMPLETION_HEADERS = (
    "X-Conversation-ID",
    "X-Provider",
    "X-On-Conflict",
    "X-CLLM-Strict",
    "Idempotency-Key",
)


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One route: `body` and `answer` are types of ours, or names of the schemas of completions.

    `media` is in which form the answer comes; `also` is another form that can be asked for.
    `codes` are the errors to expect beside those that any call can meet, `path` the forms of what
    stands in the address.
    """

    name: str
    summary: str
    tag: Literal["completions", "conversations", "turns", "server"]
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | str | None = None
    body_is_needed: bool = True
    answer: type[msgspec.Struct] | str | None = None
    status: int = 200
    media: str = JSON
    also: dict[str, str] = msgspec.field(default_factory=dict)
    codes: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    path: dict[str, str] = msgspec.field(default_factory=dict)


def _completion(name: str, summary: str, body: str, answer: str, **more: Any) -> Operation:
    return Operation(
        name=name,
        summary=summary,
        tag="completions",
        body=body,
        answer=answer,
        codes=COMPLETION_CODES,
        headers=COMPLETION_HEADERS,
        **more,
    )


OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", "/v1/chat/completions"): _completion(
        "createChatCompletion",
        "Ask a model, with or without a conversation.",
        "ChatRequest",
        "ChatCompletion",
        also={EVENTS: "ChatChunk"},
    ),
    ("POST", "/v1/messages"): _completion(
        "createMessage",
        "Ask a model in Anthropic's words, with or without a conversation.",
        "MessagesRequest",
        "MessagesAnswer",
        also={EVENTS: ""},
    ),
    ("POST", "/v1/messages/count_tokens"): _completion(
        "countTokens", "Count what a request takes.", "MessagesRequest", "TokenCount"
    ),
    ("POST", "/v1/embeddings"): Operation(
        name="createEmbedding",
        summary="Passed on to the model's provider.",
        tag="completions",
        body="EmbeddingRequest",
        answer="EmbeddingList",
        codes=("model_not_found", "validation_error", "upstream_unreachable"),
    ),
    ("GET", "/v1/models"): Operation(
        name="listModels",
        summary="The models that the settings name, and the local ones.",
        tag="server",
        answer=ModelListView,
    ),
    ("GET", "/v1/models/{model:path}"): Operation(
        name="getModel",
        summary="One of these models.",
        tag="server",
        answer=ModelView,
        codes=("model_not_found",),
    ),
    ("GET", "/v1/usage"): Operation(
        name="getUsage",
        summary="Tokens and costs, by day or by model.",
        tag="server",
        query=parameters.UsageQuery,
        answer=views.UsageListView,
        codes=("validation_error",),
    ),
    ("GET", CONVERSATIONS): Operation(
        name="listConversations",
        summary="A page of conversations, newest first.",
        tag="conversations",
        query=parameters.ListQuery,
        answer=views.ListView,
        codes=("validation_error",),
    ),
    ("POST", CONVERSATIONS): Operation(
        name="createConversation",
        summary="A new conversation, in which nothing has been said.",
        tag="conversations",
        body=parameters.NewBody,
        body_is_needed=False,
        answer=views.SummaryView,
        status=201,
        codes=("request_too_large", "validation_error"),
    ),
    ("GET", f"{CONVERSATIONS}/search"): Operation(
        name="searchConversations",
        summary="Messages with all of these words.",
        tag="conversations",
        query=parameters.SearchQuery,
        answer=views.SearchView,
        codes=("validation_error",),
    ),
    ("POST", f"{CONVERSATIONS}/import"): Operation(
        name="importConversation",
        summary="A conversation file becomes a new conversation.",
        tag="conversations",
        body="ConversationFile",
        answer=views.DetailView,
        status=201,
        codes=("request_too_large", "validation_error"),
    ),
    ("GET", CONVERSATION): Operation(
        name="getConversation",
        summary="A conversation with its messages.",
        tag="conversations",
        query=parameters.DetailQuery,
        answer=views.DetailView,
        codes=(*CONVERSATION_CODES, "validation_error"),
    ),
    ("PATCH", CONVERSATION): Operation(
        name="changeConversation",
        summary="Another title or metadata; put into the archive, or brought back.",
        tag="conversations",
        body=parameters.ChangeBody,
        answer=views.SummaryView,
        codes=(*CONVERSATION_CODES, "conversation_busy", "request_too_large", "validation_error"),
    ),
    ("DELETE", CONVERSATION): Operation(
        name="deleteConversation",
        summary="Put a conversation into the archive, or delete it for good.",
        tag="conversations",
        query=parameters.DeleteQuery,
        status=204,
        codes=(*CONVERSATION_CODES, "conversation_busy", "validation_error"),
    ),
    ("POST", f"{CONVERSATION}/branch"): Operation(
        name="branchConversation",
        summary="A new conversation with the messages up to a number.",
        tag="conversations",
        body=parameters.BranchBody,
        answer=views.DetailView,
        status=201,
        codes=(
            *CONVERSATION_CODES,
            "sequence_not_found",
            "invalid_sequence_number",
            "validation_error",
        ),
    ),
    ("GET", f"{CONVERSATION}/export"): Operation(
        name="exportConversation",
        summary="The conversation as one document.",
        tag="conversations",
        query=parameters.ExportQuery,
        answer="ConversationFile",
        also={"text/markdown": "", "text/html": ""},
        codes=(*CONVERSATION_CODES, "validation_error"),
    ),
    ("GET", MESSAGE): Operation(
        name="getMessage",
        summary="One message, by its id or its sequence number.",
        tag="conversations",
        answer=views.MessageView,
        codes=(
            *CONVERSATION_CODES,
            "message_not_found",
            "sequence_not_found",
            "invalid_sequence_number",
        ),
    ),
    ("DELETE", MESSAGE): Operation(
        name="deleteMessages",
        path={"message": "^[1-9][0-9]{0,8}$"},
        summary="Delete the message with this sequence number and all later ones.",
        tag="conversations",
        status=204,
        codes=(
            *CONVERSATION_CODES,
            "sequence_not_found",
            "conversation_busy",
            "invalid_sequence_number",
        ),
    ),
    ("GET", TURN): Operation(
        name="getTurn",
        summary="One turn, on the default path or off it.",
        tag="turns",
        answer=views.TurnView,
        codes=(*CONVERSATION_CODES, "turn_not_found"),
    ),
    ("GET", f"{TURN}/prompt"): Operation(
        name="getPrompt",
        summary="What the turn sent, and what was left out and why.",
        tag="turns",
        answer=PromptView,
        codes=(*CONVERSATION_CODES, "turn_not_found"),
    ),
    ("GET", f"{TURN}/events"): Operation(
        name="getEvents",
        summary="The turn's stream again, from Last-Event-ID on.",
        tag="turns",
        answer="",
        media=EVENTS,
        headers=("Last-Event-ID",),
        codes=(*CONVERSATION_CODES, "invalid_header", "turn_not_found", "events_not_kept"),
    ),
    ("GET", "/health"): Operation(
        name="getHealth", summary="The process answers.", tag="server", answer="Status"
    ),
    ("GET", "/ready"): Operation(
        name="getReadiness",
        summary="The store answers as well.",
        tag="server",
        answer="Status",
        codes=("conversation_storage_unavailable",),
    ),
    ("GET", "/metrics"): Operation(
        name="getMetrics",
        summary="Counters of this process, for Prometheus.",
        tag="server",
        answer="",
        media="text/plain",
    ),
    ("GET", "/openapi.json"): Operation(
        name="getDescription", summary="This description.", tag="server", answer="Anything"
    ),
    ("GET", "/docs"): Operation(
        name="getDocs",
        summary="This description, to be read.",
        tag="server",
        answer="",
        media="text/html",
    ),
}

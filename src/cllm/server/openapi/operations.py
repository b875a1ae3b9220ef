"""The table of operations for the OpenAPI description: one for each route."""

from typing import Any, Literal

import msgspec

from cllm.server.api import views
from cllm.server.api.health import Status
from cllm.server.api.models import ModelListView, ModelView
from cllm.server.api.turns import PromptView
from cllm.server.api.usage import UsageListView
from cllm.server.http import parameters
from cllm.server.http.errors import JSON
from cllm.server.http.routes import CONVERSATION, CONVERSATIONS, MESSAGE, TURN

EVENT_STREAM = "text/event-stream"
SEQUENCE_CODES = ("sequence_not_found", "invalid_sequence_number")
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


class Operation(msgspec.Struct, frozen=True):
    """One route. Names of types are in `schemas.json`.

    `codes` are the errors that path, query and body type do not imply. `path` has patterns of path
    parameters.
    """

    name: str
    tag: Literal["completions", "conversations", "turns", "server"]
    summary: str
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | str | None = None
    body_required: bool = True
    answer: type[msgspec.Struct] | str | None = None
    status: int = 200
    media: str = JSON
    other_media: dict[str, str] = msgspec.field(default_factory=dict)
    codes: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    path: dict[str, str] = msgspec.field(default_factory=dict)


def _completion(name: str, summary: str, body: str, answer: str, **more: Any) -> Operation:
    return Operation(
        name,
        "completions",
        summary,
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
        other_media={EVENT_STREAM: "ChatChunk"},
    ),
    ("POST", "/v1/messages"): _completion(
        "createMessage",
        "Ask a model in Anthropic's words, with or without a conversation.",
        "MessagesRequest",
        "MessagesAnswer",
        other_media={EVENT_STREAM: ""},
    ),
    ("POST", "/v1/messages/count_tokens"): _completion(
        "countTokens", "Count what a request takes.", "MessagesRequest", "TokenCount"
    ),
    ("POST", "/v1/embeddings"): Operation(
        "createEmbedding",
        "completions",
        "Passed on to the model's provider.",
        body="EmbeddingRequest",
        answer="EmbeddingList",
        codes=("model_not_found", "validation_error", "upstream_unreachable"),
    ),
    ("GET", "/v1/models"): Operation(
        "listModels",
        "server",
        "The models that the settings name, and the local ones.",
        answer=ModelListView,
    ),
    ("GET", "/v1/models/{model:path}"): Operation(
        "getModel", "server", "One of these models.", answer=ModelView, codes=("model_not_found",)
    ),
    ("GET", "/v1/usage"): Operation(
        "getUsage",
        "server",
        "Tokens and costs, by day or by model.",
        query=parameters.UsageQuery,
        answer=UsageListView,
    ),
    ("GET", CONVERSATIONS): Operation(
        "listConversations",
        "conversations",
        "A page of conversations, newest first.",
        query=parameters.ListQuery,
        answer=views.ListView,
    ),
    ("POST", CONVERSATIONS): Operation(
        "createConversation",
        "conversations",
        "A new conversation, in which nothing has been said.",
        body=parameters.NewBody,
        body_required=False,
        answer=views.SummaryView,
        status=201,
        codes=("request_too_large",),
    ),
    ("GET", f"{CONVERSATIONS}/search"): Operation(
        "searchConversations",
        "conversations",
        "Messages with all of these words.",
        query=parameters.SearchQuery,
        answer=views.SearchView,
    ),
    ("POST", f"{CONVERSATIONS}/import"): Operation(
        "importConversation",
        "conversations",
        "A conversation file becomes a new conversation.",
        body="ConversationFile",
        answer=views.DetailView,
        status=201,
        codes=("request_too_large", "validation_error"),
    ),
    ("GET", CONVERSATION): Operation(
        "getConversation",
        "conversations",
        "A conversation with its messages.",
        query=parameters.DetailQuery,
        answer=views.DetailView,
    ),
    ("PATCH", CONVERSATION): Operation(
        "changeConversation",
        "conversations",
        "Another title or metadata; put into the archive, or brought back.",
        body=parameters.ChangeBody,
        answer=views.SummaryView,
        codes=("conversation_busy", "request_too_large"),
    ),
    ("DELETE", CONVERSATION): Operation(
        "deleteConversation",
        "conversations",
        "Put a conversation into the archive, or delete it for good.",
        query=parameters.DeleteQuery,
        status=204,
        codes=("conversation_busy",),
    ),
    ("POST", f"{CONVERSATION}/branch"): Operation(
        "branchConversation",
        "conversations",
        "A new conversation with the messages up to a number.",
        body=parameters.BranchBody,
        answer=views.DetailView,
        status=201,
        codes=(*SEQUENCE_CODES,),
    ),
    ("GET", f"{CONVERSATION}/export"): Operation(
        "exportConversation",
        "conversations",
        "The conversation as one document.",
        query=parameters.ExportQuery,
        answer="ConversationFile",
        other_media={"text/markdown": "", "text/html": ""},
    ),
    ("GET", MESSAGE): Operation(
        "getMessage",
        "conversations",
        "One message, by its id or its sequence number.",
        answer=views.MessageView,
        codes=("message_not_found", *SEQUENCE_CODES),
    ),
    ("DELETE", MESSAGE): Operation(
        "deleteMessages",
        "conversations",
        "Delete the message with this sequence number and all later ones.",
        path={"message": "^[1-9][0-9]{0,8}$"},
        status=204,
        codes=("sequence_not_found", "conversation_busy", "invalid_sequence_number"),
    ),
    ("GET", TURN): Operation(
        "getTurn",
        "turns",
        "One turn, on the default path or off it.",
        answer=views.TurnView,
        codes=("turn_not_found",),
    ),
    ("GET", f"{TURN}/prompt"): Operation(
        "getPrompt",
        "turns",
        "What the turn sent, and what was left out and why.",
        answer=PromptView,
        codes=("turn_not_found",),
    ),
    ("GET", f"{TURN}/events"): Operation(
        "getEvents",
        "turns",
        "The turn's stream again, from Last-Event-ID on.",
        answer="",
        media=EVENT_STREAM,
        headers=("Last-Event-ID",),
        codes=("invalid_header", "turn_not_found", "events_not_kept"),
    ),
    ("GET", "/health"): Operation("getHealth", "server", "The process answers.", answer=Status),
    ("GET", "/ready"): Operation(
        "getReadiness",
        "server",
        "The store answers as well.",
        answer=Status,
        codes=("conversation_storage_unavailable",),
    ),
    ("GET", "/metrics"): Operation(
        "getMetrics",
        "server",
        "Counters of this process, for Prometheus.",
        answer="",
        media="text/plain",
    ),
    ("GET", "/openapi.json"): Operation(
        "getDescription", "server", "This description.", answer="Anything"
    ),
    ("GET", "/docs"): Operation(
        "getDocs", "server", "This description, to be read.", answer="", media="text/html"
    ),
}

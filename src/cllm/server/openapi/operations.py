"""The table of OpenAPI operations: one for each route."""

from typing import Any, Literal

import msgspec

from cllm.engine.sent_prompt import PromptView
from cllm.server.api import views
from cllm.server.api.health import Status
from cllm.server.api.imports import ImportListView, ImportView, NewImportBody, PieceQuery
from cllm.server.api.models import ModelListView, ModelView
from cllm.server.api.stored_responses import InputItemsQuery, ResponseQuery
from cllm.server.api.usage import UsageListView
from cllm.server.http import parameters
from cllm.server.http.errors import JSON
from cllm.server.http.routes import (
    CONVERSATION,
    CONVERSATIONS,
    IMPORT,
    IMPORTS,
    ITEM,
    ITEMS,
    MESSAGE,
    OPENAI_CONVERSATION,
    RESPONSE,
    TURN,
)

EVENT_STREAM = "text/event-stream"
SEQUENCE_CODES = ("sequence_not_found", "invalid_sequence_number")
OPENAI_PATH = {
    "conversation_id": "^(conv_[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$",
    "item_id": "^[A-Za-z0-9_-]{1,200}$",
}
RESPONSE_PATH = {"response_id": "^resp_[0-9a-f]{64}$"}
COMPLETION_CODES = (
    "invalid_conversation_id",
    "invalid_header",
    "conversation_not_found",
    "model_not_found",
    "conversation_busy",
    "conversation_exists",
    "idempotency_conflict",
    "request_too_large",
    "empty_messages_array",
    "validation_error",
    "rate_limited",
    "insufficient_quota",
    "upstream_unreachable",
    "upstream_timeout",
)
COMPLETION_HEADERS = (
    "X-Conversation-ID",
    "X-Provider",
    "X-On-Conflict",
    "X-CLLM-Strict",
    "X-CLLM-History",
    "X-CLLM-Switch-Model",
    "Idempotency-Key",
)


class OpenAIVariant(msgspec.Struct, frozen=True):
    """The body and the response of a route in OpenAI's format, in addition to its own."""

    response: str
    body: str | None = None
    status: int = 200


class Operation(msgspec.Struct, frozen=True):
    """One route. A type is a class or a name in `schemas.json`.

    `codes` are the errors that path, query and body type do not imply. `path` has the patterns of
    path parameters.
    """

    name: str
    tag: Literal["completions", "responses", "conversations", "turns", "server"]
    summary: str
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | str | None = None
    body_required: bool = True
    body_media: str = JSON
    response: type[msgspec.Struct] | str | None = None
    status: int = 200
    openai: OpenAIVariant | None = None
    media_type: str = JSON
    other_media: dict[str, str] = msgspec.field(default_factory=dict)
    codes: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    path: dict[str, str] = msgspec.field(default_factory=dict)


def _completion(
    name: str,
    summary: str,
    body: str,
    response: str,
    *,
    more_codes: tuple[str, ...] = (),
    **more: Any,
) -> Operation:
    return Operation(
        name,
        "completions",
        summary,
        body=body,
        response=response,
        codes=(*COMPLETION_CODES, *more_codes),
        headers=COMPLETION_HEADERS,
        **more,
    )


OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", "/v1/chat/completions"): _completion(
        "createChatCompletion",
        "Create a chat completion, with or without a stored conversation.",
        "ChatRequest",
        "ChatCompletion",
        other_media={EVENT_STREAM: "ChatChunk"},
    ),
    ("POST", "/v1/responses"): _completion(
        "createResponse",
        "Create a response; it is stored, unless `store` is false.",
        "ResponsesRequest",
        "Response",
        other_media={EVENT_STREAM: ""},
        more_codes=("invalid_request", "previous_response_not_found", "item_not_found"),
    ),
    ("GET", RESPONSE): Operation(
        "getResponse",
        "responses",
        "Get a stored response, or its events with `stream=true`.",
        query=ResponseQuery,
        response="Response",
        other_media={EVENT_STREAM: ""},
        codes=("response_not_found", "events_not_kept"),
        path=RESPONSE_PATH,
    ),
    ("DELETE", RESPONSE): Operation(
        "deleteResponse",
        "responses",
        "Delete a response; the turn and later turns stay.",
        response="DeletedResponse",
        codes=("response_not_found", "conversation_busy"),
        path=RESPONSE_PATH,
    ),
    ("POST", f"{RESPONSE}/cancel"): Operation(
        "cancelResponse",
        "responses",
        "Cancel a background response.",
        body="Anything",
        body_required=False,
        response="Response",
        codes=("response_not_found", "invalid_request"),
        path=RESPONSE_PATH,
    ),
    ("GET", f"{RESPONSE}/input_items"): Operation(
        "listInputItems",
        "responses",
        "List the items of the request, newest first.",
        query=InputItemsQuery,
        response="ItemList",
        codes=("response_not_found", "item_not_found"),
        path=RESPONSE_PATH,
    ),
    ("POST", "/v1/messages"): _completion(
        "createMessage",
        "Create a message in Anthropic's format, with or without a stored conversation.",
        "MessagesRequest",
        "MessagesAnswer",
        other_media={EVENT_STREAM: ""},
    ),
    ("POST", "/v1/messages/count_tokens"): _completion(
        "countTokens", "Count the input tokens of a request.", "MessagesRequest", "TokenCount"
    ),
    ("POST", "/v1/embeddings"): Operation(
        "createEmbedding",
        "completions",
        "Create embeddings with the model's provider.",
        body="EmbeddingRequest",
        response="EmbeddingList",
        codes=("model_not_found", "validation_error", "upstream_unreachable"),
    ),
    ("GET", "/v1/models"): Operation(
        "listModels",
        "server",
        "List the models and aliases in the settings and the local models; in Anthropic's format "
        "if the request has `anthropic-version`.",
        response=ModelListView,
    ),
    ("GET", "/v1/models/{model:path}"): Operation(
        "getModel",
        "server",
        "Get a listed model, or another that the server can call.",
        response=ModelView,
        codes=("model_not_found",),
    ),
    ("GET", "/v1/usage"): Operation(
        "getUsage",
        "server",
        "Get tokens and costs by day or by model.",
        query=parameters.UsageQuery,
        response=UsageListView,
    ),
    ("GET", CONVERSATIONS): Operation(
        "listConversations",
        "conversations",
        "List conversations, newest first.",
        query=parameters.ListQuery,
        response=views.ListView,
    ),
    ("POST", CONVERSATIONS): Operation(
        "createConversation",
        "conversations",
        "Create a conversation; in OpenAI's format with `items`, or from OpenAI's SDK.",
        body=parameters.NewBody,
        body_required=False,
        response=views.SummaryView,
        status=201,
        openai=OpenAIVariant("OpenAIConversation", body="NewOpenAIConversation"),
        codes=("request_too_large", "item_not_found"),
    ),
    ("GET", f"{CONVERSATIONS}/events"): Operation(
        "watchConversations",
        "conversations",
        "Follow changes of all conversations as events, after Last-Event-ID.",
        response="",
        media_type=EVENT_STREAM,
        headers=("Last-Event-ID",),
        codes=("invalid_header",),
    ),
    ("GET", f"{CONVERSATIONS}/search"): Operation(
        "searchConversations",
        "conversations",
        "Search for messages that contain all words of the query.",
        query=parameters.SearchQuery,
        response=views.SearchView,
    ),
    ("GET", "/v1/messages/search"): Operation(
        "searchMessages",
        "conversations",
        "The same as searchConversations.",
        query=parameters.SearchQuery,
        response=views.SearchView,
    ),
    ("POST", f"{CONVERSATIONS}/import"): Operation(
        "importConversation",
        "conversations",
        "Import a conversation file as a new conversation.",
        body="ConversationFile",
        response=views.DetailView,
        status=201,
        codes=("request_too_large", "validation_error"),
    ),
    ("GET", CONVERSATION): Operation(
        "getConversation",
        "conversations",
        "Get a conversation with its messages; without them if the ID has OpenAI's format.",
        query=parameters.DetailQuery,
        response=views.DetailView,
        openai=OpenAIVariant("OpenAIConversation"),
    ),
    ("PATCH", CONVERSATION): Operation(
        "changeConversation",
        "conversations",
        "Change the title or metadata; archive or unarchive the conversation.",
        body=parameters.ChangeBody,
        response=views.SummaryView,
        codes=("conversation_busy", "request_too_large"),
    ),
    ("DELETE", CONVERSATION): Operation(
        "deleteConversation",
        "conversations",
        "Archive a conversation, or delete it permanently: always, if the ID has OpenAI's format.",
        query=parameters.DeleteQuery,
        status=204,
        openai=OpenAIVariant("DeletedConversation"),
        codes=("conversation_busy",),
    ),
    ("POST", OPENAI_CONVERSATION): Operation(
        "updateConversation",
        "conversations",
        "Change the metadata of a conversation, in OpenAI's format.",
        body="OpenAIMetadata",
        response="OpenAIConversation",
        codes=(
            "conversation_not_found",
            "conversation_busy",
            "request_too_large",
            "validation_error",
        ),
        path={"conversation_id": "^conv_[0-9a-f]{32}$"},
    ),
    ("GET", ITEMS): Operation(
        "listItems",
        "conversations",
        "List the items of a conversation, newest first.",
        query=InputItemsQuery,
        response="ItemList",
        codes=("item_not_found",),
        path=OPENAI_PATH,
    ),
    ("POST", ITEMS): Operation(
        "createItems",
        "conversations",
        "Add items to a conversation, without a call of a model.",
        body="NewItems",
        response="ItemList",
        codes=("item_not_found", "conversation_busy", "request_too_large", "validation_error"),
        path=OPENAI_PATH,
    ),
    ("GET", ITEM): Operation(
        "getItem",
        "conversations",
        "Get one item of a conversation.",
        response="Item",
        codes=("item_not_found",),
        path=OPENAI_PATH,
    ),
    ("DELETE", ITEM): Operation(
        "deleteItem",
        "conversations",
        "Delete the last item of a conversation.",
        response="OpenAIConversation",
        codes=("item_not_found", "invalid_request", "conversation_busy"),
        path=OPENAI_PATH,
    ),
    ("POST", f"{CONVERSATION}/branch"): Operation(
        "branchConversation",
        "conversations",
        "Create a branch: a new conversation with the messages up to a sequence number.",
        body=parameters.BranchBody,
        response=views.DetailView,
        status=201,
        codes=(*SEQUENCE_CODES,),
    ),
    ("GET", f"{CONVERSATION}/export"): Operation(
        "exportConversation",
        "conversations",
        "Export the conversation as JSON, Markdown or HTML.",
        query=parameters.ExportQuery,
        response="ConversationFile",
        other_media={"text/markdown": "", "text/html": ""},
    ),
    ("GET", MESSAGE): Operation(
        "getMessage",
        "conversations",
        "Get one message by its ID or its sequence number.",
        response=views.MessageView,
        codes=("message_not_found", *SEQUENCE_CODES),
    ),
    ("DELETE", MESSAGE): Operation(
        "deleteMessages",
        "conversations",
        "Delete the message with this sequence number and all later messages.",
        path={"message": "^[1-9][0-9]{0,8}$"},
        status=204,
        codes=("sequence_not_found", "conversation_busy", "invalid_sequence_number"),
    ),
    ("GET", TURN): Operation(
        "getTurn",
        "turns",
        "Get one turn, on the default path or not.",
        response=views.TurnView,
        codes=("turn_not_found",),
    ),
    ("POST", f"{TURN}/cancel"): Operation(
        "cancelTurn",
        "turns",
        "Stop a running turn; the text so far is saved.",
        body="Anything",
        body_required=False,
        response=views.TurnView,
        codes=("turn_not_found", "conversation_busy"),
    ),
    ("GET", f"{TURN}/prompt"): Operation(
        "getPrompt",
        "turns",
        "Get the prompt that the turn sent, and the messages that it left out.",
        response=PromptView,
        codes=("turn_not_found",),
    ),
    ("GET", f"{TURN}/events"): Operation(
        "getEvents",
        "turns",
        "Read the event stream of the turn again, after Last-Event-ID.",
        response="",
        media_type=EVENT_STREAM,
        headers=("Last-Event-ID",),
        codes=("invalid_header", "turn_not_found", "events_not_kept"),
    ),
    ("GET", IMPORTS): Operation(
        "listImports",
        "conversations",
        "List the uploads, and the imports of the last hour.",
        response=ImportListView,
    ),
    ("POST", IMPORTS): Operation(
        "createImport",
        "conversations",
        "Start the upload of an archive of another program, or of a backup.",
        body=NewImportBody,
        response=ImportView,
        status=201,
        codes=("request_too_large", "too_many_imports", "imports_unavailable"),
    ),
    ("GET", IMPORT): Operation(
        "getImport",
        "conversations",
        "Get the progress of an upload or import, and its report.",
        response=ImportView,
        codes=("import_not_found",),
    ),
    ("DELETE", IMPORT): Operation(
        "deleteImport",
        "conversations",
        "Cancel an upload or import; conversations that were added stay.",
        status=204,
        codes=("import_not_found",),
    ),
    ("POST", f"{IMPORT}/pieces"): Operation(
        "appendPiece",
        "conversations",
        "Send the next bytes of an archive.",
        query=PieceQuery,
        body="Binary",
        body_media="application/octet-stream",
        response=ImportView,
        codes=("import_not_found", "import_conflict", "request_too_large", "imports_unavailable"),
    ),
    ("POST", f"{IMPORT}/run"): Operation(
        "runImport",
        "conversations",
        "Import an archive that has arrived completely, in the background.",
        body="Anything",
        body_required=False,
        response=ImportView,
        status=202,
        codes=("import_not_found", "import_conflict"),
    ),
    ("GET", "/health"): Operation(
        "getHealth", "server", "Check that the process responds.", response=Status
    ),
    ("GET", "/ready"): Operation(
        "getReadiness",
        "server",
        "Check that the store responds too.",
        response=Status,
        codes=("conversation_storage_unavailable",),
    ),
    ("GET", "/metrics"): Operation(
        "getMetrics",
        "server",
        "Get the metrics of this process in the format of Prometheus.",
        response="",
        media_type="text/plain",
    ),
    ("GET", "/openapi.json"): Operation(
        "getDescription", "server", "Get this OpenAPI description.", response="Anything"
    ),
    ("GET", "/docs"): Operation(
        "getDocs",
        "server",
        "Get this description as an HTML page.",
        response="",
        media_type="text/html",
    ),
}

"""The response object of the Responses API without its output: parameters, status, usage, error."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from cllm.core.reply import StopReason, Usage
from cllm.wire.openai.fields import encode_usage as encode_chat_usage
from cllm.wire.openai.options import Fields
from cllm.wire.responses.custom_tools import find_custom_names
from cllm.wire.responses.ids import make_item_id

Status = Literal["completed", "incomplete"]
SERVER_ERROR = "server_error"
RESPONSE_ERROR_CODES = (SERVER_ERROR, "rate_limit_exceeded", "invalid_prompt")
CODES_OF_ERRORS = {
    "context_length_exceeded": "invalid_prompt",
    "insufficient_quota": "rate_limit_exceeded",
    "invalid_request": "invalid_prompt",
    "rate_limited": "rate_limit_exceeded",
    "validation_error": "invalid_prompt",
}
# Request parameters that a reply repeats, with their defaults.
ECHOED_PARAMETERS: Fields = {
    "background": False,
    "conversation": None,
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": False,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
# Those that a reply repeats only if the request has them.
OPTIONAL_PARAMETERS = ("max_tool_calls", "prompt_cache_key", "safety_identifier", "top_logprobs")
OWN_PARAMETERS = (
    "background",
    "conversation",
    "instructions",
    "metadata",
    "previous_response_id",
    "store",
)


class ResponseFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a reply besides its output; `parameters` are the client's."""

    id: str
    model: str
    created: int
    parameters: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def custom_names(self) -> frozenset[str]:
        """The names of the custom tools of the request."""
        return find_custom_names(self.parameters)

    def item_id(self, prefix: str, index: int) -> str:
        return make_item_id(prefix, self.id, index)

    def own_fields(self) -> Fields:
        """Return the fields that are this server's, also if the provider has the same API."""
        return {"id": self.id, **self._echo(OWN_PARAMETERS)}

    def response(self, status: str, **fields: Any) -> Fields:
        """Return the response object; `fields` are output, usage and error."""
        echoed = self._echo(ECHOED_PARAMETERS)
        for name in OPTIONAL_PARAMETERS:
            if name in self.parameters:
                echoed[name] = self.parameters[name]
        head = {"id": self.id, "object": "response", "created_at": self.created, "status": status}
        empty: Fields = {"error": None, "incomplete_details": None, "output": [], "usage": None}
        return {**head, "model": self.model, **echoed, **empty, **fields}

    def _echo(self, names: Iterable[str]) -> Fields:
        parameters = self.parameters
        return {
            name: ECHOED_PARAMETERS[name] if parameters.get(name) is None else parameters[name]
            for name in names
        }

    def failed_response(self, message: str, *, code: str | None) -> Fields:
        return self.response("failed", error={"code": error_code(code), "message": message})


def error_code(code: str | None) -> str:
    """Return the code of OpenAI's for a failed response; it has few of them."""
    return code if code in RESPONSE_ERROR_CODES else CODES_OF_ERRORS.get(code or "", SERVER_ERROR)


def response_status(stop_reason: StopReason, *, refused: bool) -> tuple[Status, Fields | None]:
    """Return status and details; a refusal with text is complete, one without text is filtered."""
    if stop_reason in ("end", "stop_sequence", "tool_calls"):
        return "completed", None
    if stop_reason == "refusal" and refused:
        return "completed", None
    filtered = stop_reason in ("content_filter", "refusal")
    return "incomplete", {"reason": "content_filter" if filtered else "max_output_tokens"}


def encode_usage(usage: Usage | None) -> Fields | None:
    """Encode token counts; OpenAI's totals include the details."""
    if usage is None:
        return None
    chat = encode_chat_usage(usage)
    return {
        "input_tokens": chat["prompt_tokens"],
        "input_tokens_details": chat["prompt_tokens_details"],
        "output_tokens": chat["completion_tokens"],
        "output_tokens_details": chat["completion_tokens_details"],
        "total_tokens": chat["total_tokens"],
    }

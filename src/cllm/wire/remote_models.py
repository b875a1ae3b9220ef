"""Decodes the list of models that a provider returns, in the format of OpenAI or Anthropic."""

from typing import Any

import msgspec

from cllm.wire.errors import MalformedError

MAX_NAME_LENGTH = 256
MAX_CONTEXT = 1_000_000_000
# The fields that servers add for the size of the context window.
CONTEXT_FIELDS = (
    "context_length",
    "context_window",
    "max_context_length",
    "max_input_tokens",
    "max_model_len",
)


class RemoteModel(msgspec.Struct, frozen=True, array_like=True):
    """`context` is in tokens; None if the provider does not list it."""

    name: str
    context: int | None = None


class _Entry(msgspec.Struct):
    id: Any = None
    context_length: Any = None
    context_window: Any = None
    max_context_length: Any = None
    max_input_tokens: Any = None
    max_model_len: Any = None


_Element = _Entry | list[Any] | str | float | bool | None


class _Page(msgspec.Struct):
    data: list[_Element]


_decoder = msgspec.json.Decoder(_Page | list[_Element])


def decode_remote_models(body: bytes) -> tuple[RemoteModel, ...]:
    """Return each model once, by name; skips entries without a name that can be printed."""
    try:
        page = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError("not a list of models") from error
    elements = page.data if isinstance(page, _Page) else page
    models = {
        entry.id: RemoteModel(entry.id, _find_context(entry))
        for entry in elements
        if isinstance(entry, _Entry) and _is_name(entry.id)
    }
    return tuple(models[name] for name in sorted(models))


def _is_name(value: Any) -> bool:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_LENGTH:
        return False
    return value.isprintable() and value == value.strip()


def _find_context(entry: _Entry) -> int | None:
    values = (getattr(entry, field) for field in CONTEXT_FIELDS)
    return next((value for value in values if _is_size(value)), None)


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 < value <= MAX_CONTEXT

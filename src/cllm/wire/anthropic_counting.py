"""Anthropic's request for a count of tokens: that for a message, without what is about the answer.

What nobody here knows stays in it, as it does in a request for a message.
"""

import msgspec

from cllm.core.prompt import Prompt

NOT_COUNTED = frozenset(
    (
        "container",
        "inference_geo",
        "max_tokens",
        "metadata",
        "service_tier",
        "stop_sequences",
        "stream",
        "temperature",
        "top_k",
        "top_p",
    )
)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def encode_count(body: bytes, prompt: Prompt) -> bytes:
    """The body of a request for a message as one for a count; the client's own, if that it is."""
    fields = {name: raw for name, raw in _fields.decode(body).items() if name not in NOT_COUNTED}
    original = prompt.original
    if original is None or original.model != prompt.model:
        return msgspec.json.encode(fields)
    same = _bytes(_fields.decode(original.body)) == _bytes(fields)
    if same:
        return original.body
    return msgspec.json.encode(fields)


def _bytes(fields: dict[str, msgspec.Raw]) -> dict[str, bytes]:
    return {name: bytes(raw) for name, raw in fields.items()}

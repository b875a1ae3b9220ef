"""The reasoning that some servers put into OpenAI's messages, which has no field of OpenAI's."""

import msgspec

REASONING = b'"reasoning'
REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")


def without_reasoning(raw: bytes) -> bytes:
    """A message's JSON without its reasoning; the same bytes if it has none."""
    if REASONING not in raw:
        return raw
    fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    kept = {name: value for name, value in fields.items() if name not in REASONING_FIELDS}
    return raw if len(kept) == len(fields) else msgspec.json.encode(kept)

"""Bedrock's request for a count of tokens: what Converse would be asked, where it counts."""

import msgspec

COUNTED = ("messages", "system", "toolConfig", "additionalModelRequestFields")
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def encode_count(body: bytes) -> bytes:
    """The body of a Converse request as one for a count."""
    fields = _fields.decode(body)
    counted = {name: fields[name] for name in COUNTED if name in fields}
    return msgspec.json.encode({"input": {"converse": counted}})

"""What an error says that came in OpenAI's words, or in those of a server that speaks like it."""

import re
from typing import Any

import msgspec

from cllm.wire.malformed import ErrorDetails

STATUS = re.compile(r"[45]\d\d")
TOO_LONG_CODES = ("context_length_exceeded", "exceed_context_size_error")


def decode_error(body: bytes) -> ErrorDetails:
    """What an error body says, whatever shape it has; nothing if it is not JSON."""
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ErrorDetails()
    if not isinstance(decoded, dict):
        return ErrorDetails()
    return error_details(decoded.get("error", decoded))


def error_details(error: Any) -> ErrorDetails:
    """What is under `error` in a body or a chunk."""
    if isinstance(error, str):
        return ErrorDetails(message=error)
    if not isinstance(error, dict):
        return ErrorDetails()
    message, kind, code = (
        "" if error.get(name) is None else str(error[name]) for name in ("message", "type", "code")
    )
    too_long = kind in TOO_LONG_CODES or code in TOO_LONG_CODES
    status = int(code) if STATUS.fullmatch(code) else None
    return ErrorDetails(message=message, type=kind, code=code, status=status, too_long=too_long)

"""Values as JSON answers."""

from typing import Any

import msgspec
from starlette.responses import Response

JSON = "application/json"


def answer(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type=JSON)


def answer_nothing() -> Response:
    return Response(status_code=204)

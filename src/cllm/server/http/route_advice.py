"""The advice in the 404 response for a path that no route has."""

import re
from difflib import get_close_matches

from cllm.server.http.routes import ROUTES

PARAMETER = re.compile(r"\{[^}]*\}")
SEE_DOCS = "see /docs for the routes."
VERSION = "v1"
# The parts of OpenAI's and Anthropic's APIs that this server does not have, by their first segment.
REASONS = {
    "assistants": "The Assistants API is not available; use POST /v1/responses.",
    "audio": "This server has no audio API; call the provider directly.",
    "batches": "Batches are not available; send each request on its own.",
    "completions": "The older Completions API is not available; use POST /v1/chat/completions.",
    "complete": "The older Text Completions API is not available; use POST /v1/messages.",
    "files": "Files are not stored here; send them inside the messages.",
    "fine_tuning": "This server has no fine-tuning API; call the provider directly.",
    "images": "This server has no image API; call the provider directly.",
    "moderations": "This server has no moderation API; call the provider directly.",
    "realtime": "The Realtime API is not available; use POST /v1/responses with `stream`.",
    "threads": "The Assistants API is not available; use POST /v1/responses.",
    "uploads": "Files are not stored here; send them inside the messages.",
    "vector_stores": "Vector stores are not available; send the texts inside the messages.",
}


def advise(path: str) -> str:
    """Return the reason for a part of an API that is missing, or the nearest route."""
    segments = [segment for segment in path.lower().split("/") if segment]
    if segments[:1] == [VERSION]:
        segments = segments[1:]
    if not segments or not path.lower().startswith(f"/{VERSION}"):
        return f"No route has this path; {SEE_DOCS}"
    if segments[:2] == ["messages", "batches"]:
        return REASONS["batches"]
    if segments[0] in REASONS:
        return REASONS[segments[0]]
    routes = {PARAMETER.sub("x", row.path): f"{row.method} {row.path}" for row in ROUTES}
    nearest = get_close_matches(path.lower(), routes, n=1, cutoff=0.75)
    if not nearest:
        return f"No route has this path; {SEE_DOCS}"
    return f"No route has this path; the nearest is {routes[nearest[0]]}. See /docs."

"""Serves the scripts and styles of the page."""

from functools import cache
from importlib import resources

from starlette.responses import Response

from cllm.server.http.errors import ApiError
from cllm.server.page.layout import HEADERS
from cllm.server.state import ApiRequest

MEDIA_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
CACHE = {**HEADERS, "Cache-Control": "no-cache"}


async def get_static_file(request: ApiRequest) -> Response:
    """GET /static/{name}."""
    files = _load_files()
    name = request.path_params["name"]
    if name not in files:
        raise ApiError("not_found", "The page has no file with this name.")
    etag, body = files[name]
    headers = {**CACHE, "ETag": etag}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=MEDIA_TYPES[name.rpartition(".")[2]])


@cache
def _load_files() -> dict[str, tuple[str, bytes]]:
    """Return the entity tag and content by name."""
    import hashlib  # noqa: PLC0415 - only for the page

    files = {}
    for entry in resources.files("cllm.server.page").joinpath("static").iterdir():
        if entry.name.rpartition(".")[2] in MEDIA_TYPES:
            body = entry.read_bytes()
            files[entry.name] = (f'"{hashlib.sha256(body).hexdigest()[:32]}"', body)
    return files

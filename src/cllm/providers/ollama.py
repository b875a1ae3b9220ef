"""Lists the models of a running Ollama server with its own API.

Turns use the provider `ollama`, which has OpenAI's protocol.
"""

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

OLLAMA = "ollama"
DEFAULT_URL = "http://127.0.0.1:11434"
DEFAULT_PORT = 11434
PORTS = {"http": 80, "https": 443}
# Addresses on which a server listens, but to which no client connects.
UNSPECIFIED = ("", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
TIMEOUT_SECONDS = 1.0
MAX_BYTES = 4 * 1024 * 1024
EMBEDDING_NAMES = ("embed", "bge-", "minilm")
EMBEDDING_FAMILY = "bert"


class _Details(msgspec.Struct, frozen=True, kw_only=True):
    family: str | None = None
    families: tuple[str, ...] | None = None


class OllamaModel(msgspec.Struct, frozen=True, kw_only=True):
    """`capabilities` and `remote_host` are missing in responses of older servers."""

    name: str
    modified_at: str = ""
    size: int = 0
    details: _Details | None = None
    capabilities: tuple[str, ...] | None = None
    remote_host: str | None = None

    @property
    def is_chat_model(self) -> bool:
        if self.capabilities is not None:
            return "completion" in self.capabilities
        families = () if self.details is None else (self.details.family, self.details.families)
        is_embedding = any(part in self.name.lower() for part in EMBEDDING_NAMES)
        return not is_embedding and EMBEDDING_FAMILY not in str(families).lower()

    @property
    def is_remote(self) -> bool:
        """Whether Ollama forwards the prompts to another machine."""
        return bool(self.remote_host) or self.name.endswith(("-cloud", ":cloud"))

    @property
    def modified(self) -> datetime:
        try:
            moment = datetime.fromisoformat(self.modified_at)
        except ValueError:
            return datetime.min.replace(tzinfo=UTC)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


class _Tags(msgspec.Struct, frozen=True, kw_only=True):
    models: tuple[OllamaModel, ...] = ()


def find_ollama_url(environ: Mapping[str, str]) -> str:
    """Return the URL of the server from OLLAMA_HOST, as Ollama's own client reads it."""
    text = environ.get("OLLAMA_HOST", "").strip().strip("'\"")
    if not text:
        return DEFAULT_URL
    scheme, separator, _ = text.partition("://")
    try:
        parts = urlsplit(text if separator else f"http://{text}")
        port = parts.port
    except ValueError:
        return DEFAULT_URL
    if parts.scheme not in PORTS:
        return DEFAULT_URL
    default = PORTS[scheme] if separator else DEFAULT_PORT
    host = "127.0.0.1" if (parts.hostname or "") in UNSPECIFIED else str(parts.hostname)
    host = f"[{host}]" if ":" in host else host
    path = parts.path.rstrip("/")
    return f"{parts.scheme}://{host}:{default if port is None else port}{path}"


def list_ollama_models(
    url: str, *, timeout: float = TIMEOUT_SECONDS
) -> tuple[OllamaModel, ...] | None:
    """Return the chat models on the server's machine, the newest first; None without a server."""
    data = _read(f"{url}/api/tags", timeout)
    if data is None:
        return None
    try:
        tags = msgspec.json.decode(data, type=_Tags)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    models = [model for model in tags.models if model.is_chat_model and not model.is_remote]
    return tuple(sorted(models, key=lambda model: model.modified, reverse=True))


def _read(url: str, timeout: float) -> bytes | None:
    """Read a response within a time. Runs in a thread: a DNS lookup has no timeout."""
    result: list[bytes] = []
    thread = threading.Thread(target=_get, args=(url, timeout, result), daemon=True)
    thread.start()
    thread.join(timeout)
    return result[0] if result else None


def _get(url: str, timeout: float, result: list[bytes]) -> None:
    import http.client  # noqa: PLC0415 - only without a configured model

    parts = urlsplit(url)
    kind: Any = (
        http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    )
    try:
        connection = kind(parts.hostname, parts.port, timeout=timeout)
        try:
            connection.request("GET", parts.path, headers={"User-Agent": "cllm"})
            response = connection.getresponse()
            data = response.read(MAX_BYTES + 1)
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException):
        return
    if response.status == http.client.OK and len(data) <= MAX_BYTES:
        result.append(data)

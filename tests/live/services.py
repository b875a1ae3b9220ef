"""The services that `make live` calls, and what each needs.

`CLLM_LIVE_NAME_MODEL` sets the model of a service and `CLLM_LIVE_NAME_URL` its address.
"""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

AWS_KEYS = ("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID")
AWS_OTHERS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION")
GEMINI = "https://generativelanguage.googleapis.com/v1beta/openai"
OLLAMA = "http://127.0.0.1:11434/v1"


@dataclass(frozen=True, kw_only=True)
class Service:
    """A service. It is called if one of the `keys` is set, or without keys if its URL responds."""

    name: str
    model: str
    keys: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    url: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def find_model(self, environ: Mapping[str, str]) -> str:
        model = environ.get(f"CLLM_LIVE_{self.name.upper()}_MODEL", self.model)
        return f"{self.name}/{model}"

    def find_url(self, environ: Mapping[str, str]) -> str | None:
        return environ.get(f"CLLM_LIVE_{self.name.upper()}_URL", self.url)

    def find_problem(self, environ: Mapping[str, str]) -> str | None:
        """Why the service cannot be called, or None."""
        if self.keys:
            is_set = any(environ.get(name) for name in self.keys)
            return None if is_set else f"set {' or '.join(self.keys)}"
        url = self.find_url(environ) or ""
        address = urlsplit(url)
        try:
            socket.create_connection((address.hostname or "", address.port or 80), 2).close()
        except OSError:
            return f"no server responds at {url}"
        return None

    def build_settings(self, environ: Mapping[str, str]) -> dict[str, Any]:
        """Return the Cllmfile. Keys stay in the environment."""
        url = self.find_url(environ)
        provider = dict(self.settings) | ({"api_base": url} if url else {})
        return {"num_retries": 1, "providers": {self.name: provider}}

    def select_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that the command gets."""
        names = (*self.keys, *self.others)
        return {name: environ[name] for name in names if environ.get(name)}


SERVICES = (
    Service(name="openai", model="gpt-4o-mini", keys=("OPENAI_API_KEY",)),
    Service(name="anthropic", model="claude-haiku-4-5", keys=("ANTHROPIC_API_KEY",)),
    Service(name="bedrock", model="claude-haiku-4-5", keys=AWS_KEYS, others=AWS_OTHERS),
    Service(name="ollama", model="qwen3-vl:2b", url=OLLAMA),
    Service(
        name="google",
        model="gemini-2.5-flash",
        keys=("GEMINI_API_KEY",),
        url=GEMINI,
        settings={"type": "openai", "api_key": "${GEMINI_API_KEY}"},
    ),
)


def current_environment() -> Mapping[str, str]:
    return os.environ

"""The trust check: which Cllmfiles the user trusts.

A Cllmfile in the current directory may be somebody else's. Keys that can run, redirect, read or
write something need trust. The ledger stores trust as a hash of exactly these keys.
"""

import hashlib
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from cllm.core.errors import CllmError, SettingsError, UntrustedFileError
from cllm.providers.registry import is_model_file
from cllm.schemas.source import is_url
from cllm.settings.cllmfile import VARIABLE, Cllmfile, find_variables
from cllm.settings.layers import CommandLine, Environment, user_folder

DANGEROUS_KEYS = (
    "allow_dynamic_commands",
    "api_base",
    "api_key",
    "base_url",
    "context_commands",
    "conversations_path",
    "dynamic_commands",
    "extra_headers",
    "log_file",
    "providers",
    "save",
    "server",
    "store",
)
DANGEROUS_FIELDS = (
    "container",
    "extra_body",
    "mcp_servers",
    "models",
    "plugins",
    "provider",
    "search_parameters",
    "web_search_options",
)
"""Fields of a request with which a provider sends the prompt, or queries about it, to others."""
OWN_TOOLS = ("custom", "function")
SECRET_NAME = re.compile(
    r"(KEY|TOKEN|SECRET|PASS|PASSWORD|PASSWD|PASSPHRASE|COOKIE|JWT|WEBHOOK|CONNECTION_STRING)$"
    r"|(^|_)(KEYS?|TOKENS?|SECRETS?|PASS(WORD|WD)?|PWD|PAT|AUTH|CREDENTIALS?|BEARER|PRIVATE)(_|\d|$)"
    r"|(^|_)(SK|CREDS?|SESSION|PROXY)(_|\d|$)|APIKEY"
    r"|(^|_)(URL|URI|DSN)$",
    re.IGNORECASE,
)
HARMLESS_NAMES = ("PWD", "OLDPWD")
CREDENTIAL = re.compile(r"(^|_)(api_key|access_key|secret|token|password|bearer)(_|$)|^key$")
PASSWORD_IN_ADDRESS = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")
TOKEN_IN_ADDRESS = re.compile(
    r"([?&](?:[a-z_-]*(?:key|token|secret|password|sig|signature|auth))=)[^&\s#]+", re.IGNORECASE
)
LEDGER_NAME = "trusted.json"


def is_secret_name(name: str) -> bool:
    return name not in HARMLESS_NAMES and SECRET_NAME.search(name) is not None


def dangerous_settings(content: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that need trust.

    These include variables, which are substituted into trusted commands; model files, which can
    run code; schemas that are downloaded or outside the folder; and tools that the provider runs.
    """
    return {
        key: value
        for key, value in sorted(content.items())
        if key in DANGEROUS_KEYS
        or key in DANGEROUS_FIELDS
        or key == "variables"
        or any(map(is_secret_name, find_variables(value)))
        or (key in ("model", "fallbacks", "aliases") and _can_load_file(value))
        or (key == "json_schema_file" and is_outside_folder(value))
        or (key == "tools" and _has_hosted_tool(value))
    }


def _has_hosted_tool(tools: Any) -> bool:
    """Whether the provider runs a tool itself, such as `mcp`, which can name any server."""
    rows = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    return any(tool.get("type", "function") not in OWN_TOOLS for tool in rows)


def is_outside_folder(file: Any) -> bool:
    """Whether a `json_schema_file` is outside the folder of the Cllmfile."""
    path = PurePosixPath(str(file))
    return (
        is_url(str(file))
        or path.is_absolute()
        or ".." in path.parts
        or str(file).startswith("~")
        or bool(find_variables(file))
    )


def _can_load_file(models: Any) -> bool:
    if isinstance(models, dict):
        models = list(models.values())
    names = models if isinstance(models, list) else [models]
    return bool(find_variables(models)) or any(map(is_model_file, map(str, names)))


def settings_to_trust(file: Cllmfile) -> dict[str, Any]:
    """Includes a link out of the folder, which could read any file as settings."""
    parts = dangerous_settings(file.content)
    return parts if file.link is None else {**parts, "a link": file.link}


def mask_secrets(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        inner = {name: mask_secrets(name, item) for name, item in value.items()}
        return dict.fromkeys(inner, "***") if key == "extra_headers" else inner
    if isinstance(value, list):
        return [mask_secrets(key, item) for item in value]
    if not isinstance(value, str):
        return value
    secret = CREDENTIAL.search(key) is not None and VARIABLE.fullmatch(value) is None
    return "***" if secret else mask_credentials(value)


def mask_credentials(text: str) -> str:
    return TOKEN_IN_ADDRESS.sub(r"\1***", PASSWORD_IN_ADDRESS.sub(r"\1***@", text))


def fingerprint(parts: dict[str, Any], folder: Path) -> str:
    """Includes the folder: the same paths in another folder are other files."""
    content = {"folder": str(folder.resolve()), "parts": parts}
    text = msgspec.json.encode(content, order="deterministic", enc_hook=str)
    return hashlib.sha256(text).hexdigest()


def check_trust(file: Cllmfile, env: Environment, line: CommandLine) -> None:
    if not line.trust and env.environment.get("CLLM_TRUST") != "always":
        TrustLedger(user_folder(env)).check(file)


class TrustLedger:
    def __init__(self, folder: Path) -> None:
        self._path = folder / LEDGER_NAME

    def check(self, file: Cllmfile) -> None:
        parts = settings_to_trust(file)
        if (
            parts
            and not file.in_user_folder
            and fingerprint(parts, file.path.parent) not in self._entries()
        ):
            raise UntrustedFileError(path=str(file.path), keys=tuple(parts))

    def trust(self, file: Cllmfile) -> tuple[str, ...]:
        parts = settings_to_trust(file)
        if parts:
            entries = self._entries() | {
                fingerprint(parts, file.path.parent): str(file.path.absolute())
            }
            self._write(entries)
        return tuple(parts)

    def _entries(self) -> dict[str, str]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise SettingsError(
                "it cannot be read; repair or delete it.", path=str(self._path)
            ) from error

    def _write(self, entries: dict[str, str]) -> None:
        scratch = self._path.with_name(f".{LEDGER_NAME}.{os.getpid()}")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(
                os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
            ) as file:
                file.write(msgspec.json.format(msgspec.json.encode(entries), indent=2) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(self._path)
        except OSError as error:
            reason = os.strerror(error.errno or 0).lower()
            raise CllmError(
                f"Cannot write {self._path} ({reason}); check its permissions."
            ) from error

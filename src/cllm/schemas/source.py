"""The source of a schema, and the rules for loading it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from cllm.core.errors import SettingsError

DEFAULT_TTL = 24 * 60 * 60
DEFAULT_MAX_BYTES = 1024 * 1024
TRUE_VALUES = ("1", "true", "yes", "on")
FALSE_VALUES = ("", "0", "false", "no", "off")
URL_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class SchemaSource(msgspec.Struct, frozen=True, kw_only=True):
    """`is_confined`: an untrusted Cllmfile names the file, so links must not leave the folder."""

    name: str
    inline: Any = None
    file: str | None = None
    folder: Path = Path()
    is_confined: bool = False

    @property
    def url(self) -> str | None:
        return self.file if self.file is not None and is_url(self.file) else None


class SchemaRules(msgspec.Struct, frozen=True, kw_only=True):
    allow_http: bool = False
    ttl: int = DEFAULT_TTL
    max_bytes: int = DEFAULT_MAX_BYTES
    offline: bool = False


def is_url(file: str) -> bool:
    return URL_SCHEME.match(file) is not None


def schema_rules(environment: Mapping[str, str]) -> SchemaRules:
    return SchemaRules(
        allow_http=_switch(environment, "CLLM_ALLOW_HTTP_SCHEMAS"),
        ttl=_number(environment, "CLLM_SCHEMA_CACHE_TTL", DEFAULT_TTL, "seconds"),
        max_bytes=_number(environment, "CLLM_MAX_SCHEMA_SIZE", DEFAULT_MAX_BYTES, "bytes"),
        offline=_switch(environment, "CLLM_OFFLINE_MODE"),
    )


def _switch(environment: Mapping[str, str], name: str) -> bool:
    value = environment.get(name, "").strip().lower()
    if value in TRUE_VALUES or value in FALSE_VALUES:
        return value in TRUE_VALUES
    raise SettingsError(f"{name} must be true or false.")


def _number(environment: Mapping[str, str], name: str, default: int, unit: str) -> int:
    value = environment.get(name, "").strip()
    if not value:
        return default
    if value.isascii() and value.isdigit() and len(value) <= len(str(2**53)):
        return int(value)
    raise SettingsError(f"{name} must be a whole number of {unit}.")

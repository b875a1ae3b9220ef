"""Chooses a model if none is configured, and says once which one and why.

Never reads the system keyring.
"""

import contextlib
from pathlib import Path

import msgspec

from cllm.core.errors import MissingExtraError, SettingsError
from cllm.providers.local.models import (
    DEFAULT_MODEL,
    KNOWN_MODELS,
    SUGGESTED_MODEL,
    is_runtime_installed,
)
from cllm.providers.ollama import OLLAMA, find_ollama_url, list_ollama_models
from cllm.providers.registry import BUILTIN_PROVIDERS, LOCAL
from cllm.settings.cllmfile import VARIABLE
from cllm.settings.load import Settings, user_folder

MARKER = "hint-shown"
MEGABYTE = 1_000_000
# The small current model of each provider. The first provider with a key is used.
SMALL_MODELS = {
    "openai": "gpt-6-luna",
    "anthropic": "claude-haiku-5-5",
    "mistral": "mistral-small-latest",
    "deepseek": "deepseek-flash",
    "xai": "grok-4-1-fast-non-reasoning",
    "groq": "openai/gpt-oss-20b",
    "cerebras": "gpt-oss-120b",
    "openrouter": "openai/gpt-6-luna",
    "together": "openai/gpt-oss-120b",
    "fireworks": "accounts/fireworks/models/gpt-oss-20b",
    "moonshot": "kimi-k2.6",
    "perplexity": "sonar",
}


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True):
    """`reason` completes "no model is configured, and …"."""

    model: str
    reason: str

    @property
    def summary(self) -> str:
        return f"Using {self.model}: no model is configured, and {self.reason}."

    @property
    def hint(self) -> str:
        advice = "use -m NAME, CLLM_MODEL or: cllm models default NAME"
        if self.model == f"{LOCAL}/{DEFAULT_MODEL}":
            size = KNOWN_MODELS[SUGGESTED_MODEL].size / MEGABYTE
            advice = (
                "save a key (cllm keys set PROVIDER) or download a better local model "
                f"(cllm models pull {SUGGESTED_MODEL}, {size:.0f} MB), and {advice}"
            )
        return f"{self.summary} To change this, {advice}. (This hint is shown once.)"


def choose_model(settings: Settings) -> ModelChoice:
    """Choose by the keys that exist, else a model of a running Ollama, else the local model."""
    saved = _list_saved_keys(settings)
    for provider, model in SMALL_MODELS.items():
        source = _find_key_source(provider, settings, saved)
        if source is not None:
            return ModelChoice(model=f"{provider}/{model}", reason=source)
    models = list_ollama_models(find_ollama_address(settings))
    if models:
        reason = f"'{models[0].name}' is the newest model of the running Ollama"
        return ModelChoice(model=f"{OLLAMA}/{models[0].name}", reason=reason)
    reason = "no API key and no running Ollama was found"
    return ModelChoice(model=f"{LOCAL}/{DEFAULT_MODEL}", reason=reason)


def check_choice(choice: ModelChoice) -> None:
    """Raise MissingExtraError if it is the local model and cannot run."""
    if choice.model == f"{LOCAL}/{DEFAULT_MODEL}" and not is_runtime_installed():
        raise MissingExtraError(
            feature="The local model",
            extra="local",
            alternative="save the key of a hosted provider: cllm keys set PROVIDER",
        )


def list_keyed_providers(settings: Settings) -> list[str]:
    """Return the built-in providers with a key, by name."""
    saved = _list_saved_keys(settings)
    return [name for name in BUILTIN_PROVIDERS if _find_key_source(name, settings, saved)]


def take_hint(choice: ModelChoice, folder: Path) -> str | None:
    """Return the hint for a model that was not chosen the last time, and record the choice."""
    marker = folder / MARKER
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if marker.read_text(encoding="utf-8").strip() == choice.model:
            return None
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        marker.write_text(f"{choice.model}\n", encoding="utf-8")
    return choice.hint


def _list_saved_keys(settings: Settings) -> frozenset[str]:
    from cllm.settings.saved_keys import SavedKeys  # noqa: PLC0415 - only without a model

    with contextlib.suppress(SettingsError):
        saved = SavedKeys(user_folder(settings.env)).list_keys()
        return frozenset(key.provider for key in saved)
    return frozenset()


def _find_key_source(provider: str, settings: Settings, saved: frozenset[str]) -> str | None:
    """Return where the key of a provider is, as the reason of a choice."""
    row = settings.providers.get(provider)
    if row is not None and row.api_key is not None:
        key = row.api_key.reveal().strip()
        if key and VARIABLE.fullmatch(key) is None:
            return f"the settings have an API key for {provider}"
    variable = BUILTIN_PROVIDERS[provider].key
    if variable is not None and settings.env.environment.get(variable, "").strip():
        return f"{variable} is set"
    return f"a key for {provider} is saved" if provider in saved else None


def find_ollama_address(settings: Settings) -> str:
    row = settings.providers.get(OLLAMA)
    configured = None if row is None else row.api_base
    if configured is None:
        return find_ollama_url(settings.env.environment)
    return configured.rstrip("/").removesuffix("/v1")

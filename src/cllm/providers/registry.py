"""The table of built-in providers, and the resolution of a model to its provider."""

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import msgspec

from cllm.core.errors import ModelNotFoundError
from cllm.providers.third_party import is_offered
from cllm.wire.media import COMPATIBLE, IMAGES_ONLY, OPENAI_CHAT, MediaRule
from cllm.wire.reasoning import (
    AS_SENT,
    NEEDS_REASONING_CONTENT,
    PREFERS_REASONING,
    TAKES_DETAILS,
    TAKES_EITHER,
    TAKES_NONE,
    TAKES_REASONING,
    TAKES_REASONING_CONTENT,
    TAKES_THINKING_BLOCKS,
    ReasoningRule,
)

LOCAL = "local"
LITELLM = "litellm"
# Services that only LiteLLM calls; conversations of other programs name them without `litellm/`.
LITELLM_PREFIXES = frozenset(
    (
        *("ai21", "aiml", "amazon_nova", "azure", "azure_ai", "azure_text", "baseten", "clarifai"),
        *("cloudflare", "codestral", "cohere", "cohere_chat", "dashscope", "databricks"),
        *("deepinfra", "featherless_ai", "fireworks_ai", "friendliai", "galadriel", "gemini"),
        *("gigachat", "github", "github_copilot", "gradient_ai", "heroku", "hosted_vllm"),
        *("huggingface", "hyperbolic", "inception", "lambda_ai", "llamafile", "lm_studio"),
        *("maritalk", "meta_llama", "minimax", "morph", "nebius", "nlp_cloud", "novita", "nscale"),
        *("nvidia_nim", "oci", "ollama_chat", "ovhcloud", "predibase", "replicate", "sagemaker"),
        *("sagemaker_chat", "sambanova", "scaleway", "snowflake", "text-completion-openai"),
        *("together_ai", "v0", "vercel_ai_gateway", "vertex_ai", "vertex_ai_beta", "volcengine"),
        *("wandb", "watsonx", "watsonx_text", "xinference", "zai"),
    )
)
OPENAI = "openai"
MIN_SIMILARITY = 0.75
MAX_SUGGESTED = 3


class ProviderRow(msgspec.Struct, frozen=True, kw_only=True):
    """`key`: the environment variable of a key that is needed. `reasoning`: docs/decisions/0016.

    `media`: the attachments that it accepts.
    """

    base_url: str
    key: str | None = None
    kind: str = "openai"
    reasoning: ReasoningRule = AS_SENT
    media: MediaRule = COMPATIBLE


OPENAI_COMPATIBLE: dict[str, tuple[str, str | None, ReasoningRule]] = {
    "cerebras": ("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", TAKES_REASONING),
    "deepseek": ("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", NEEDS_REASONING_CONTENT),
    "fireworks": (
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_API_KEY",
        TAKES_REASONING_CONTENT,
    ),
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY", TAKES_REASONING),
    "llama-server": ("http://127.0.0.1:8080/v1", None, TAKES_REASONING_CONTENT),
    "lmstudio": ("http://127.0.0.1:1234/v1", None, TAKES_EITHER),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY", TAKES_THINKING_BLOCKS),
    "moonshot": ("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY", NEEDS_REASONING_CONTENT),
    "nvidia": ("https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY", TAKES_EITHER),
    "ollama": ("http://127.0.0.1:11434/v1", None, TAKES_REASONING),
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY", TAKES_NONE),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", TAKES_DETAILS),
    "perplexity": ("https://api.perplexity.ai", "PERPLEXITY_API_KEY", TAKES_EITHER),
    "together": ("https://api.together.xyz/v1", "TOGETHER_API_KEY", TAKES_EITHER),
    "vllm": ("http://127.0.0.1:8000/v1", None, PREFERS_REASONING),
    "xai": ("https://api.x.ai/v1", "XAI_API_KEY", TAKES_NONE),
}
# Other servers get the attachments of every message unchanged.
MEDIA_RULES = {"groq": IMAGES_ONLY, "ollama": IMAGES_ONLY, "openai": OPENAI_CHAT}
_rows = {
    "anthropic": ProviderRow(
        base_url="https://api.anthropic.com", key="ANTHROPIC_API_KEY", kind="anthropic"
    ),
    "bedrock": ProviderRow(base_url="", kind="bedrock"),
    LITELLM: ProviderRow(base_url="", kind="litellm", reasoning=TAKES_REASONING_CONTENT),
    **{
        name: ProviderRow(
            base_url=base_url,
            key=key,
            reasoning=reasoning,
            media=MEDIA_RULES.get(name, COMPATIBLE),
        )
        for name, (base_url, key, reasoning) in OPENAI_COMPATIBLE.items()
    },
}
BUILTIN_PROVIDERS: dict[str, ProviderRow] = dict(sorted(_rows.items()))
KNOWN_PREFIXES: dict[str, str] = {
    "chatgpt-": "openai",
    "claude-": "anthropic",
    "deepseek-": "deepseek",
    "gpt-": "openai",
    "grok-": "xai",
    "mistral-": "mistral",
    "o1": "openai",
    "o3": "openai",
    "o4-": "openai",
    "smollm2-": LOCAL,
    "text-embedding-": "openai",
}


MODEL_FILE = ".gguf"
PATH_STARTS = ("", ".", "..", "~")
"""What precedes the first slash of a path that is no `provider/model`."""


def find_server(provider: str, base_url: str) -> ProviderRow:
    """Find an OpenAI-compatible server by the host if it is known, else by the provider's name.

    `openai` at another address gets what the client sends.
    """
    host = _host(base_url)
    # Rows without a key are servers on loopback, and any of them can use any port.
    for row in BUILTIN_PROVIDERS.values():
        if row.kind == OPENAI and row.key is not None and _host(row.base_url) == host:
            return row
    builtin = BUILTIN_PROVIDERS.get(provider)
    if builtin is None or provider == OPENAI:
        return ProviderRow(base_url=base_url)
    return builtin


def _host(base_url: str) -> str:
    return base_url.partition("://")[2].partition("/")[0].lower()


def _has_litellm() -> bool:
    return find_spec(LITELLM) is not None


class ResolvedModel(msgspec.Struct, frozen=True, kw_only=True):
    provider: str
    name: str


def resolve_model(
    model: str,
    *,
    configured: Mapping[str, Sequence[str]],
    is_third_party: Callable[[str], bool] = is_offered,
    has_litellm: Callable[[], bool] = _has_litellm,
) -> ResolvedModel:
    """Resolve by the prefix, else by a configured list of models, else by a known name.

    `is_third_party` is checked last, so that no package can take over a name.
    """
    providers = {LOCAL, *BUILTIN_PROVIDERS, *configured}
    prefix, slash, _ = model.partition("/")
    if slash and prefix in providers:
        return _resolve_prefixed(prefix, model)
    for provider, names in configured.items():
        if model in names:
            return ResolvedModel(provider=provider, name=model)
    if model.endswith(MODEL_FILE) and (not slash or prefix in PATH_STARTS):
        return ResolvedModel(provider=LOCAL, name=model)
    if not slash:
        owner = _find_owner(model)
        if owner is not None:
            return ResolvedModel(provider=owner, name=model)
    elif prefix and is_third_party(prefix):
        return _resolve_prefixed(prefix, model)
    elif prefix in LITELLM_PREFIXES and has_litellm():
        return ResolvedModel(provider=LITELLM, name=model)
    raise _unknown_model_error(model, providers, configured)


def _resolve_prefixed(provider: str, model: str) -> ResolvedModel:
    name = model.removeprefix(f"{provider}/")
    if not name:
        raise ModelNotFoundError(
            f"'{model}' is a provider without a model; use {provider}/NAME.", model=model
        )
    return ResolvedModel(provider=provider, name=name)


def _unknown_model_error(
    model: str, providers: set[str], configured: Mapping[str, Sequence[str]]
) -> ModelNotFoundError:
    from difflib import get_close_matches  # noqa: PLC0415 - only for an error

    listed = [(provider, name) for provider, names in configured.items() for name in names]
    prefix, slash, name = model.partition("/")
    known = sorted(providers) if slash else []
    similar = get_close_matches(prefix, known, n=1, cutoff=MIN_SIMILARITY)
    near = get_close_matches(
        model, {name for _, name in listed}, n=MAX_SUGGESTED, cutoff=MIN_SIMILARITY
    )
    matches = [f"{provider}/{name}" for provider in similar] or [
        f"{provider}/{one}" for provider, one in listed if one in near
    ][:MAX_SUGGESTED]
    if matches:
        advice = f"did you mean {' or '.join(matches)}?"
    elif slash and model.endswith(MODEL_FILE):
        advice = f"for a model file, use ./{model}"
    elif slash and prefix not in PATH_STARTS:
        advice = (
            f"'{prefix}' is not a provider of cllm; choose another model with -m, or, if LiteLLM "
            f"supports it, use {LITELLM}/{model} with the extra '{LITELLM}'."
        )
    else:
        advice = "use provider/model, for example openai/gpt-4o or local/smollm2-135m."
    return ModelNotFoundError(f"Unknown model '{model}': {advice}", model=model)


MAX_LISTED = 20


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """`names` maps aliases to the provider's names for its models."""

    provider: str
    kind: str
    models: Collection[str] = ()
    names: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    has_custom_address: bool = False


def map_model_name(name: str, catalogue: Catalogue) -> str:
    if name in catalogue.names:
        return catalogue.names[name]
    if catalogue.kind == "anthropic" and "anthropic." in name:
        return _import_bedrock().find_anthropic_name(name) or name
    return name


def has_model(name: str, catalogue: Catalogue) -> bool | None:
    """Return whether the provider has the model; None if that is unknown."""
    if name in catalogue.names or name in catalogue.models:
        return True
    if catalogue.kind == "bedrock":
        return bool(_import_bedrock().is_known_model(name))
    if map_model_name(name, catalogue) != name:
        return True
    owner = _find_owner(name)
    if owner == catalogue.provider:
        return True
    if (
        owner is None
        or catalogue.has_custom_address
        or catalogue.provider not in KNOWN_PREFIXES.values()
    ):
        return None
    return False


def _find_owner(name: str) -> str | None:
    return next((p for start, p in KNOWN_PREFIXES.items() if name.startswith(start)), None)


def model_not_found_error(name: str, catalogue: Catalogue) -> ModelNotFoundError:
    names = dict.fromkeys((*catalogue.models, *catalogue.names))
    if catalogue.kind == "bedrock":
        names |= dict.fromkeys(_import_bedrock().MODELS)
    models = [f"{catalogue.provider}/{listed}" for listed in names]
    shown = ", ".join(models[-MAX_LISTED:])
    advice = f"use {shown}" if models else f"add it under providers.{catalogue.provider}.names"
    return ModelNotFoundError(
        f"Provider '{catalogue.provider}' has no model '{name}'; {advice}.", model=name
    )


def _import_bedrock() -> Any:
    from cllm.wire.bedrock import models as bedrock_models  # noqa: PLC0415 - few names need it

    return bedrock_models


def is_model_file(model: str) -> bool:
    """Whether a model is the path of a file that the local provider would load."""
    is_path = model.startswith("local/") and "/" in model.removeprefix("local/")
    return is_path or model.endswith(MODEL_FILE)

"""Which providers there are, and which of them serves a model. A table; connects to nobody."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from cllm.core.errors import ModelNotFoundError
from cllm.providers.third_party import is_offered

LOCAL = "local"
LITELLM = "litellm"
CLOSE_ENOUGH = 0.8


class ProviderRow(msgspec.Struct, frozen=True, kw_only=True):
    """A server: where it is, which variable holds its key, and which protocol it speaks.

    A server without a `key` asks for none; one of this machine's own usually does not.
    """

    base_url: str
    key: str | None = None
    kind: str = "openai"


ROWS: dict[str, ProviderRow] = {
    "anthropic": ProviderRow(
        base_url="https://api.anthropic.com", key="ANTHROPIC_API_KEY", kind="anthropic"
    ),
    "bedrock": ProviderRow(base_url="", kind="bedrock"),
    "cerebras": ProviderRow(base_url="https://api.cerebras.ai/v1", key="CEREBRAS_API_KEY"),
    "deepseek": ProviderRow(base_url="https://api.deepseek.com/v1", key="DEEPSEEK_API_KEY"),
    "fireworks": ProviderRow(
        base_url="https://api.fireworks.ai/inference/v1", key="FIREWORKS_API_KEY"
    ),
    "groq": ProviderRow(base_url="https://api.groq.com/openai/v1", key="GROQ_API_KEY"),
    LITELLM: ProviderRow(base_url="", kind="litellm"),
    "llama-server": ProviderRow(base_url="http://127.0.0.1:8080/v1"),
    "lmstudio": ProviderRow(base_url="http://127.0.0.1:1234/v1"),
    "mistral": ProviderRow(base_url="https://api.mistral.ai/v1", key="MISTRAL_API_KEY"),
    "moonshot": ProviderRow(base_url="https://api.moonshot.ai/v1", key="MOONSHOT_API_KEY"),
    "nvidia": ProviderRow(base_url="https://integrate.api.nvidia.com/v1", key="NVIDIA_API_KEY"),
    "ollama": ProviderRow(base_url="http://127.0.0.1:11434/v1"),
    "openai": ProviderRow(base_url="https://api.openai.com/v1", key="OPENAI_API_KEY"),
    "openrouter": ProviderRow(base_url="https://openrouter.ai/api/v1", key="OPENROUTER_API_KEY"),
    "perplexity": ProviderRow(base_url="https://api.perplexity.ai", key="PERPLEXITY_API_KEY"),
    "together": ProviderRow(base_url="https://api.together.xyz/v1", key="TOGETHER_API_KEY"),
    "vllm": ProviderRow(base_url="http://127.0.0.1:8000/v1"),
    "xai": ProviderRow(base_url="https://api.x.ai/v1", key="XAI_API_KEY"),
}
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
}


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model's provider and its name there."""

    provider: str
    name: str


def find_server(
    model: str,
    *,
    configured: Mapping[str, Sequence[str]],
    offered: Callable[[str], bool] = is_offered,
) -> ServedModel:
    """Who serves the model: its prefix, else a configured list of models, else a known name.

    `configured` are the providers of the settings with the models that they list. Whether a
    prefix is `offered` by another package is asked last, so that none can take a name over.
    """
    providers = {LOCAL, *ROWS, *configured}
    prefix, slash, _ = model.partition("/")
    if slash and prefix in providers:
        return _at(prefix, model)
    for provider, names in configured.items():
        if model in names:
            return ServedModel(provider=provider, name=model)
    if not slash:
        known = next((p for start, p in KNOWN_PREFIXES.items() if model.startswith(start)), None)
        if known is not None:
            return ServedModel(provider=known, name=model)
    elif prefix and offered(prefix):
        return _at(prefix, model)
    raise _not_found(model, providers, configured)


def _at(provider: str, model: str) -> ServedModel:
    name = model.removeprefix(f"{provider}/")
    if not name:
        raise ModelNotFoundError(
            f"'{model}' names a provider and no model; write {provider}/NAME.", model=model
        )
    return ServedModel(provider=provider, name=name)


def _not_found(
    model: str, providers: set[str], configured: Mapping[str, Sequence[str]]
) -> ModelNotFoundError:
    from difflib import get_close_matches  # noqa: PLC0415 - only to word an error

    listed = [f"{provider}/{name}" for provider, names in configured.items() for name in names]
    prefix, slash, name = model.partition("/")
    near = get_close_matches(prefix, sorted(providers), n=1, cutoff=CLOSE_ENOUGH) if slash else []
    close = [f"{provider}/{name}" for provider in near] or get_close_matches(model, listed, n=3)
    if close:
        advice = f"did you mean {' or '.join(close)}?"
    elif slash and prefix:
        advice = (
            f"there is no provider '{prefix}' here, but LiteLLM may have it: run "
            f"pip install 'cllm[litellm]' and name the model {LITELLM}/{model}."
        )
    else:
        advice = "name it as provider/model, such as openai/gpt-4o or local/smollm2-135m."
    return ModelNotFoundError(f"Unknown model '{model}': {advice}", model=model)

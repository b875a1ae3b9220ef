"""Which entry of genai-prices is meant by a provider of ours and its name of a model.

Tables and the functions that read them; genai-prices itself is not loaded. Where a name does not
say who is paid, there is no entry: servers of this machine, deployments with names of their own,
inference profiles that hide their model.
"""

import msgspec

from cllm.providers.registry import KNOWN_PREFIXES, LITELLM

LONGEST_NAME = 256

SAME_NAMES = (
    *("anthropic", "cerebras", "deepseek", "fireworks", "groq", "mistral", "openai"),
    *("openrouter", "perplexity", "together"),
)
PROVIDERS = {name: name for name in SAME_NAMES} | {
    "bedrock": "aws",
    "moonshot": "moonshotai",
    "xai": "x-ai",
}
LITELLM_PROVIDERS = {
    **PROVIDERS,
    "cohere": "cohere",
    "cohere_chat": "cohere",
    "fireworks_ai": "fireworks",
    "gemini": "google",
    "together_ai": "together",
}
"""LiteLLM's prefixes. `azure/` and `vertex_ai/` are not here: the name that follows is that of a
deployment, or its price depends on the region."""

_ARN_FIELDS = 5
_NAMED_BY_ARN = frozenset({"foundation-model", "inference-profile"})


class TableEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A provider and a model as genai-prices calls them."""

    provider: str
    model: str


def table_entry(provider: str, model: str) -> TableEntry | None:
    """The entry to look up; None if there is none. The table may not have it."""
    if len(model) > LONGEST_NAME:
        return None
    names = PROVIDERS
    if provider == LITELLM:
        names = LITELLM_PROVIDERS
        prefix, slash, rest = model.partition("/")
        if slash:
            provider, model = prefix, rest
        else:
            known = (name for start, name in KNOWN_PREFIXES.items() if model.startswith(start))
            provider = next(known, "")
    owner: str | None = names.get(provider)
    name: str | None = model
    if owner == "aws":
        if names is LITELLM_PROVIDERS and not model.startswith("arn:"):
            # A route or a region can precede the id: bedrock/converse/ID, bedrock/us-east-1/ID.
            model = model.rpartition("/")[2]
        name = _bedrock_name(model)
    return TableEntry(provider=owner, model=name) if owner and name else None


def _bedrock_name(model: str) -> str | None:
    """Bedrock's id; a short name without a region is the regional model, as it is when sent."""
    from cllm.wire.bedrock.models import UnknownModelError, bedrock_id  # noqa: PLC0415

    if model.startswith("arn:"):
        resource, _, name = model.split(":", _ARN_FIELDS)[-1].partition("/")
        return name if resource in _NAMED_BY_ARN else None
    try:
        return bedrock_id(model)
    except UnknownModelError:
        return None

"""What a provider calls a model that goes by another provider's name, and whether it has it at all.

The operator's own table comes first, then what is known between Anthropic and Bedrock. A table and
the functions that read it; asks nobody, and never puts one model in the place of another.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from cllm.core.errors import ModelNotFoundError
from cllm.providers.registry import KNOWN_PREFIXES

OWNERS = frozenset(KNOWN_PREFIXES.values())
MOST_NAMED = 20


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings say of a provider's models: those it lists, and other names for them.

    `elsewhere` says that it is asked at an address of the operator's, where nobody knows what there
    is.
    """

    provider: str
    kind: str
    models: Collection[str] = ()
    names: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    elsewhere: bool = False


def own_name(name: str, catalogue: Catalogue) -> str:
    """The provider's name for the model."""
    if name in catalogue.names:
        return catalogue.names[name]
    if catalogue.kind == "anthropic" and "anthropic." in name:
        return _bedrock().anthropic_name(name) or name
    return name


def has_model(name: str, catalogue: Catalogue) -> bool | None:
    """Whether the provider has the model; None if nobody here can tell."""
    if name in catalogue.names or name in catalogue.models:
        return True
    if catalogue.kind == "bedrock":
        return bool(_bedrock().is_known(name))
    if own_name(name, catalogue) != name:
        return True
    owner = owner_of(name)
    if owner is None:
        return None
    if owner == catalogue.provider:
        return True
    told = catalogue.provider in OWNERS and not catalogue.elsewhere
    return False if told else None


def owner_of(name: str) -> str | None:
    """Whose model it is, by the table of known names."""
    return next((p for start, p in KNOWN_PREFIXES.items() if name.startswith(start)), None)


def listed_names(catalogue: Catalogue) -> Iterable[str]:
    """The names by which the provider's models are known here."""
    known = dict.fromkeys((*catalogue.models, *catalogue.names))
    if catalogue.kind == "bedrock":
        known |= dict.fromkeys(_bedrock().MODELS)
    return known


def no_such_model(name: str, catalogue: Catalogue) -> ModelNotFoundError:
    """The error that says what there is instead."""
    known = [f"{catalogue.provider}/{listed}" for listed in listed_names(catalogue)]
    shown = ", ".join(known[-MOST_NAMED:])
    advice = f"there are {shown}" if known else f"map it under providers.{catalogue.provider}.names"
    return ModelNotFoundError(
        f"Provider '{catalogue.provider}' has no model '{name}'; {advice}.", model=name
    )


def _bedrock() -> Any:
    from cllm.wire.bedrock import models as bedrock_models  # noqa: PLC0415 - most names are nobody else's

    return bedrock_models

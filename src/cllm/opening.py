"""The settings of a provider become the provider: the only place that names concrete ones.

A provider is imported when it is opened, so that a command which asks nobody is quick. Opening
connects to nobody.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from cllm.core.errors import (
    MissingKeyError,
    ModelNotFoundError,
    SettingsError,
)
from cllm.core.extras import needs_extra
from cllm.core.ports import Provider
from cllm.core.secret import Secret
from cllm.providers.registry import (
    LOCAL,
    OPENAI,
    ROWS,
    Catalogue,
    ProviderRow,
    ServedModel,
    find_server,
    own_name,
    reasoning_rule,
)
from cllm.providers.third_party import ProviderAccess, is_offered, open_offered
from cllm.settings.cllmfile import VARIABLE
from cllm.settings.load import Place, ProviderSettings, Settings
from cllm.settings.trust import looks_secret
from cllm.wire.reasoning import NAMED_RULES

if TYPE_CHECKING:
    from cllm.providers.anthropic import AnthropicProvider
    from cllm.providers.bedrock import Account
    from cllm.providers.http import Http, Timeouts
    from cllm.providers.local.models import CachePaths, Report

# Who speaks a protocol with an address and a key; imported when it is asked for.
SPEAKERS = {
    "anthropic": "cllm.providers.anthropic:AnthropicProvider",
    "openai": "cllm.providers.openai:OpenAIProvider",
}
# What a protocol can be told beside that, and what it has to be.
SPEAKER_OPTIONS: dict[str, dict[str, tuple[Any, str]]] = {
    "anthropic": {"betas": (list[str], "a list of names")},
    "openai": {
        "api": (Literal["chat", "responses"], "`chat` or `responses`"),
        "profile": (str, "the name of a profile"),
        "reasoning_field": (
            Literal["as_sent", "none", "reasoning", "reasoning_content"],
            "`reasoning_content`, `reasoning`, `as_sent` or `none`",
        ),
    },
}
KINDS = (*SPEAKERS, "bedrock", "litellm")
OWN_OPTIONS = ("prices",)
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
SHORTEST_SECRET = 8


def model_cache(place: Place) -> "CachePaths":
    """Where local models are kept."""
    from cllm.providers.local.models import cache_paths  # noqa: PLC0415

    return cache_paths(place.environment, home=place.home)


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How a provider is reached: which kind it is, where, and by which rules it takes a history.

    One without an address is a process here, or is known to another package only.
    """

    kind: str
    address: str | None = None
    profile: str | None = None


class ProviderOpener:
    """Finds who serves a model and opens that provider, as the settings say.

    `model` is the one in force, to which settings at the top level belong. `asks_once` is for a
    command that takes one turn and ends.
    """

    def __init__(
        self, settings: Settings, *, model: str, report: "Report | None", asks_once: bool
    ) -> None:
        self._settings = settings
        self._model = model
        self._report = report
        self._asks_once = asks_once

    def find(self, model: str) -> ServedModel:
        """Who serves the model, and its name there."""
        configured = {name: row.models for name, row in self._settings.providers.items()}
        served = find_server(model, configured=configured)
        own = own_name(served.name, self._catalogue(served.provider))
        return served if own == served.name else ServedModel(provider=served.provider, name=own)

    def catalogue(self, name: str) -> Catalogue:
        """What the settings say of a provider's models."""
        return msgspec.structs.replace(self._catalogue(name), elsewhere=self.redirected(name))

    def _catalogue(self, name: str) -> Catalogue:
        given, row = self._settings.providers.get(name), ROWS.get(name)
        kind = LOCAL if name == LOCAL else "openai" if row is None else row.kind
        if given is None:
            return Catalogue(provider=name, kind=kind)
        kind = str(given.kind or kind)
        return Catalogue(provider=name, kind=kind, models=given.models, names=given.names)

    def takes_callers_key(self, name: str) -> bool:
        """Whether the provider can be asked with a key that a caller brings: one of Anthropic's."""
        return self._catalogue(name).kind == "anthropic"

    def local_context(self) -> int:
        """How many tokens the local model is opened for."""
        from cllm.providers.local.process import DEFAULT_CONTEXT  # noqa: PLC0415

        options = self._provider_settings(LOCAL).options
        return _whole_number(options, "context") or DEFAULT_CONTEXT

    def redirected(self, name: str) -> bool:
        """Whether the provider is asked at another address than its own, at prices nobody knows."""
        base = self._provider_settings(name).api_base
        row = ROWS.get(name)
        return base is not None and (row is None or base.rstrip("/") != row.base_url.rstrip("/"))

    def access(self, name: str) -> Access:
        """How a provider would be reached; an error of the settings as `open` would raise it."""
        given, row = self._provider_settings(name), ROWS.get(name)
        kind = LOCAL if name == LOCAL else self._kind(name, given, row)
        profile = _text(given.options, "profile") if kind == "openai" else None
        address = given.api_base
        if kind in SPEAKERS:
            address = _base_url(name, given, row)
        elif kind == "bedrock":
            address = self._account(given).base_url
        return Access(kind=kind, address=address, profile=profile)

    def has_key(self, name: str) -> bool:
        """Whether a key is configured; MissingKeyError if the provider cannot do without."""
        given = self._provider_settings(name)
        return self._key(name, given, ROWS.get(name)) is not None

    def open_without_key(self, name: str) -> "AnthropicProvider":
        """A new provider that is asked with its callers' keys, and has none of its own."""
        from cllm.providers.anthropic import AnthropicProvider  # noqa: PLC0415

        given = self._provider_settings(name)
        return AnthropicProvider(
            name=name,
            base_url=_base_url(name, given, ROWS.get(name)),
            api_key=None,
            http=self._open_http(),
            headers=_revealed(given),
            timeouts=_timeouts(given),
            **_speaker_options("anthropic", name, given),
        )

    def open(self, served: ServedModel) -> Provider:
        """A new provider for the model; whoever asks for it closes it."""
        name = served.provider
        given = self._provider_settings(name)
        if name == LOCAL:
            return self._open_local(served.name, given)
        row = ROWS.get(name)
        kind = self._kind(name, given, row)
        openers: dict[str, Callable[[str, ProviderSettings], Provider]] = {
            "bedrock": self._open_bedrock,
            "litellm": self._open_litellm,
        }
        if kind in openers:
            return openers[kind](name, given)
        if kind not in SPEAKERS:
            return open_offered(kind, name=name, access=self._access(name, given))
        return self._open_speaker(kind, name, given, row)

    def _kind(self, name: str, given: ProviderSettings, row: ProviderRow | None) -> str:
        """A built-in kind, or the name under which another package offers the provider."""
        if given.kind is None:
            if row is not None:
                return row.kind
            return name if given.api_base is None and is_offered(name) else "openai"
        kind = str(given.kind)
        if kind in KINDS or (kind not in {LOCAL, *ROWS} and is_offered(kind)):
            return kind
        raise SettingsError(
            f"`type` of providers.{name} must be one of {', '.join(KINDS)}, or the name of a "
            "provider that an installed package offers."
        )

    def _open_speaker(
        self, kind: str, name: str, given: ProviderSettings, row: ProviderRow | None
    ) -> Provider:
        module, _, speaker = SPEAKERS[kind].partition(":")
        base_url = _base_url(name, given, row)
        options = _speaker_options(kind, name, given)
        if kind == OPENAI:
            chosen = options.pop("reasoning_field", None)
            options["reasoning"] = (
                reasoning_rule(name, base_url) if chosen is None else NAMED_RULES[chosen]
            )
        provider: Provider = getattr(import_module(module), speaker)(
            name=name,
            base_url=base_url,
            api_key=self._key(name, given, row),
            http=self._open_http(),
            headers=_revealed(given),
            timeouts=_timeouts(given),
            **options,
        )
        return provider

    def _open_local(self, model: str, given: ProviderSettings) -> Provider:
        from cllm.providers.local.models import resolve, say_nothing  # noqa: PLC0415
        from cllm.providers.local.provider import LocalProvider  # noqa: PLC0415

        place = self._settings.place
        paths = model_cache(place)
        return LocalProvider(
            model=resolve(model, paths, cwd=place.directory, home=place.home),
            paths=paths,
            environ=place.environment,
            report=self._report or say_nothing,
            make_http=self._open_http,
            threads=_whole_number(given.options, "threads"),
            context=self.local_context(),
        )

    def _open_bedrock(self, name: str, given: ProviderSettings) -> Provider:
        account = self._account(given)
        from cllm.providers.bedrock import BedrockProvider  # noqa: PLC0415

        return BedrockProvider(
            name=name,
            account=account,
            http=self._open_http(),
            headers=_revealed(given),
            timeouts=_timeouts(given),
        )

    def _account(self, given: ProviderSettings) -> "Account":
        with needs_extra("bedrock", feature="Bedrock"):
            from cllm.providers.bedrock import (  # noqa: PLC0415
                BEARER_VARIABLE,
                DEFAULT_REGION,
                Account,
            )
        environment = self._settings.place.environment
        regions = (given.options.get("region"), *map(environment.get, REGION_VARIABLES))
        return Account(
            region=next((str(region) for region in regions if region), DEFAULT_REGION),
            profile=_text(given.options, "profile"),
            endpoint_url=_text(given.options, "endpoint_url") or given.api_base,
            bearer=given.api_key.reveal() if given.api_key else environment.get(BEARER_VARIABLE),
        )

    def _open_litellm(self, name: str, given: ProviderSettings) -> Provider:
        from cllm.providers.litellm import LitellmProvider  # noqa: PLC0415

        environment = self._settings.place.environment
        return LitellmProvider(
            name=name,
            api_base=None if given.api_base is None else _base_url(name, given, None),
            api_key=self._key(name, given, None),
            headers=_revealed(given),
            timeouts=_timeouts(given),
            options=_others_options(given),
            secrets=[
                value
                for variable, value in environment.items()
                if looks_secret(variable) and len(value) >= SHORTEST_SECRET
            ],
        )

    def _access(self, name: str, given: ProviderSettings) -> ProviderAccess:
        key = self._key(name, given, None)
        return ProviderAccess(
            api_base=None if given.api_base is None else _base_url(name, given, None),
            api_key=None if key is None else Secret(key),
            headers=given.headers,
            timeouts=_timeouts(given),
            models=given.models,
            options=_others_options(given),
            environment=self._settings.place.environment,
        )

    def _open_http(self) -> "Http":
        """The transport that fits: one that loads quickly, or one that lasts."""
        if self._asks_once:
            from cllm.providers.http_once import OnceHttp  # noqa: PLC0415

            return OnceHttp()
        from cllm.providers.http_pool import PooledHttp  # noqa: PLC0415

        return PooledHttp()

    def _provider_settings(self, name: str) -> ProviderSettings:
        """The provider's own settings, over those at the top level that are meant for it."""
        found = ProviderSettings()
        for top in self._settings.top_providers:
            if self._serves(name, top.model or self._model):
                found = _over(top.settings, found)
        return _over(self._settings.providers.get(name, ProviderSettings()), found)

    def _serves(self, name: str, model: str) -> bool:
        try:
            return self.find(model).provider == name
        except ModelNotFoundError:
            return False

    def _key(self, name: str, given: ProviderSettings, row: ProviderRow | None) -> str | None:
        variable = None if row is None else row.key
        environment = self._settings.place.environment
        key = given.api_key.reveal() if given.api_key else environment.get(variable or "", "")
        key = key.strip()
        unset = VARIABLE.fullmatch(key)
        if unset is not None:
            raise MissingKeyError(provider=name, variable=unset[1])
        if not key and variable is not None and given.api_base is None:
            raise MissingKeyError(provider=name, variable=variable)
        return key or None


def _over(upper: ProviderSettings, lower: ProviderSettings) -> ProviderSettings:
    """One provider's settings over others of the same."""
    return ProviderSettings(
        kind=upper.kind or lower.kind,
        api_base=upper.api_base or lower.api_base,
        api_key=upper.api_key or lower.api_key,
        headers={**lower.headers, **upper.headers},
        timeout=lower.timeout if upper.timeout is None else upper.timeout,
        models=upper.models or lower.models,
        names={**lower.names, **upper.names},
        options={**lower.options, **upper.options},
    )


def _base_url(name: str, given: ProviderSettings, row: ProviderRow | None) -> str:
    url = given.api_base or (row.base_url if row else None)
    if url is None:
        raise SettingsError(f"providers.{name} needs an `api_base`.")
    if not url.startswith(("http://", "https://")):
        raise SettingsError(f"`api_base` of provider '{name}' must start with http:// or https://.")
    return url


def _speaker_options(kind: str, name: str, given: ProviderSettings) -> dict[str, Any]:
    chosen = {}
    for option, (form, described) in SPEAKER_OPTIONS[kind].items():
        if given.options.get(option) is None:
            continue
        try:
            chosen[option] = msgspec.convert(given.options[option], form)
        except msgspec.ValidationError as error:
            raise SettingsError(f"`{option}` of providers.{name} must be {described}.") from error
    return chosen


def _others_options(given: ProviderSettings) -> dict[str, Any]:
    """What the settings say to code that is not ours, without what they say to us."""
    return {name: value for name, value in given.options.items() if name not in OWN_OPTIONS}


def _revealed(given: ProviderSettings) -> dict[str, str]:
    return {name: value.reveal() for name, value in given.headers.items()}


def _text(options: dict[str, Any], name: str) -> str | None:
    value = options.get(name)
    return None if value is None else str(value)


def _timeouts(given: ProviderSettings) -> "Timeouts":
    from cllm.providers.http import Timeouts  # noqa: PLC0415

    if given.timeout is None:
        return Timeouts()
    if isinstance(given.timeout, dict):
        return Timeouts(**given.timeout)
    return Timeouts(first_byte=given.timeout, idle=given.timeout)


def _whole_number(options: dict[str, object], name: str) -> int | None:
    value = options.get(name)
    if value is None or (isinstance(value, int) and value > 0):
        return value
    raise SettingsError(f"`{name}` of providers.local must be a whole number above 0.")

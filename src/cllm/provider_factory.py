"""Builds providers from their settings; the only module that names the concrete classes.

A provider is imported when it is opened, for a quick start. Opening makes no connection.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from cllm.core.errors import MissingKeyError, ModelNotFoundError, SettingsError
from cllm.core.extras import require_extra
from cllm.core.ports import Provider
from cllm.core.secret import Secret
from cllm.providers.registry import (
    BUILTIN_PROVIDERS,
    LOCAL,
    OPENAI,
    Catalogue,
    ResolvedModel,
    find_reasoning_rule,
    map_model_name,
    resolve_model,
)
from cllm.providers.third_party import (
    ProviderAccess,
    is_third_party_provider,
    open_third_party_provider,
)
from cllm.settings.cllmfile import VARIABLE
from cllm.settings.load import Environment, ProviderSettings, Settings
from cllm.settings.trust import is_secret_name
from cllm.wire.reasoning import NAMED_RULES

if TYPE_CHECKING:
    from cllm.providers.anthropic import AnthropicProvider
    from cllm.providers.bedrock import AwsAccount
    from cllm.providers.http.transport import HttpTransport, Timeouts
    from cllm.providers.local.models import CachePaths, Report

# The class for each protocol that needs an address and a key.
PROTOCOL_CLASSES = {
    "anthropic": "cllm.providers.anthropic:AnthropicProvider",
    "openai": "cllm.providers.openai:OpenAIProvider",
}
# The further options of a protocol: type, and description for error messages.
PROTOCOL_OPTIONS: dict[str, dict[str, tuple[Any, str]]] = {
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
KINDS = (*PROTOCOL_CLASSES, "bedrock", "litellm")
COMMON_OPTIONS = ("prices",)
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
MIN_SECRET_LENGTH = 8


def find_model_cache(env: Environment) -> "CachePaths":
    from cllm.providers.local.models import cache_paths

    return cache_paths(env.environment, home=env.home)


class ProviderEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    address: str | None = None
    profile: str | None = None


class ProviderFactory:
    """Resolves a model to its provider and opens that provider.

    Settings at the top level apply to the provider of `model`. `single_turn`: the process takes one
    turn and ends.
    """

    def __init__(
        self, settings: Settings, *, model: str, report: "Report | None", single_turn: bool
    ) -> None:
        self._settings = settings
        self._model = model
        self._report = report
        self._single_turn = single_turn

    def resolve(self, model: str) -> ResolvedModel:
        """The model's provider, and its name there."""
        configured = {name: row.models for name, row in self._settings.providers.items()}
        served = resolve_model(model, configured=configured)
        own = map_model_name(served.name, self._catalogue(served.provider))
        return served if own == served.name else ResolvedModel(provider=served.provider, name=own)

    def catalogue(self, name: str) -> Catalogue:
        return msgspec.structs.replace(
            self._catalogue(name), has_custom_address=self.redirected(name)
        )

    def _catalogue(self, name: str) -> Catalogue:
        given, row = self._settings.providers.get(name), BUILTIN_PROVIDERS.get(name)
        kind = LOCAL if name == LOCAL else "openai" if row is None else row.kind
        if given is None:
            return Catalogue(provider=name, kind=kind)
        kind = str(given.kind or kind)
        return Catalogue(provider=name, kind=kind, models=given.models, names=given.names)

    def accepts_caller_key(self, name: str) -> bool:
        """Only Anthropic's protocol takes a caller's own key."""
        return self._catalogue(name).kind == "anthropic"

    def local_context_size(self) -> int:
        """In tokens."""
        from cllm.providers.local.process import DEFAULT_CONTEXT

        options = self._provider_settings(LOCAL).options
        return _whole_number(options, "context") or DEFAULT_CONTEXT

    def redirected(self, name: str) -> bool:
        """Whether the address is not the built-in one; prices are then unknown."""
        base = self._provider_settings(name).api_base
        row = BUILTIN_PROVIDERS.get(name)
        return base is not None and (row is None or base.rstrip("/") != row.base_url.rstrip("/"))

    def access(self, name: str) -> ProviderEndpoint:
        """How `open` would reach a provider; raises the same SettingsError."""
        given = self._provider_settings(name)
        kind = LOCAL if name == LOCAL else _kind(name, given)
        address = given.api_base
        if kind in PROTOCOL_CLASSES:
            address = _base_url(name, given)
        elif kind == "bedrock":
            address = self._account(given).base_url
        profile = _text(given.options, "profile") if kind == "openai" else None
        return ProviderEndpoint(kind=kind, address=address, profile=profile)

    def has_key(self, name: str) -> bool:
        """Whether a key is configured; MissingKeyError if the provider needs one."""
        return self._key(name, self._provider_settings(name), built_in=True) is not None

    def open_without_key(self, name: str) -> "AnthropicProvider":
        """Open a provider that sends its callers' keys."""
        given = self._provider_settings(name)
        provider: AnthropicProvider = self._open_speaker("anthropic", name, given, api_key=None)
        return provider

    def open(self, served: ResolvedModel) -> Provider:
        """Open a new provider. The caller closes it."""
        name = served.provider
        given = self._provider_settings(name)
        if name == LOCAL:
            return self._open_local(served.name, given)
        kind = _kind(name, given)
        if kind == "bedrock":
            account = self._account(given)
            from cllm.providers.bedrock import BedrockProvider

            return BedrockProvider(
                name=name,
                account=account,
                http=self._open_http(),
                headers=_reveal_headers(given),
                timeouts=_timeouts(given),
            )
        if kind in PROTOCOL_CLASSES:
            key = self._key(name, given, built_in=True)
            provider: Provider = self._open_speaker(kind, name, given, api_key=key)
            return provider
        key = self._key(name, given, built_in=False)
        base = None if given.api_base is None else _base_url(name, given)
        options = {
            option: it for option, it in given.options.items() if option not in COMMON_OPTIONS
        }
        environment = self._settings.env.environment
        if kind == "litellm":
            from cllm.providers.litellm import LitellmProvider

            return LitellmProvider(
                name=name,
                api_base=base,
                api_key=key,
                headers=_reveal_headers(given),
                timeouts=_timeouts(given),
                options=options,
                secrets=[
                    value
                    for variable, value in environment.items()
                    if is_secret_name(variable) and len(value) >= MIN_SECRET_LENGTH
                ],
            )
        access = ProviderAccess(
            api_base=base,
            api_key=None if key is None else Secret(key),
            headers=given.headers,
            timeouts=_timeouts(given),
            models=given.models,
            options=options,
            environment=environment,
        )
        return open_third_party_provider(kind, name=name, access=access)

    def _open_speaker(
        self, kind: str, name: str, given: ProviderSettings, *, api_key: str | None
    ) -> Any:
        base_url = _base_url(name, given)
        options = _speaker_options(kind, name, given)
        if kind == OPENAI:
            chosen = options.pop("reasoning_field", None)
            options["reasoning"] = (
                find_reasoning_rule(name, base_url) if chosen is None else NAMED_RULES[chosen]
            )
        module, _, speaker = PROTOCOL_CLASSES[kind].partition(":")
        return getattr(import_module(module), speaker)(
            name=name,
            base_url=base_url,
            api_key=api_key,
            http=self._open_http(),
            headers=_reveal_headers(given),
            timeouts=_timeouts(given),
            **options,
        )

    def _open_local(self, model: str, given: ProviderSettings) -> Provider:
        from cllm.providers.local.models import ignore_event, resolve_model_file
        from cllm.providers.local.provider import LocalProvider

        env = self._settings.env
        paths = find_model_cache(env)
        return LocalProvider(
            model=resolve_model_file(model, paths, cwd=env.directory, home=env.home),
            paths=paths,
            environ=env.environment,
            report=self._report or ignore_event,
            make_http=self._open_http,
            threads=_whole_number(given.options, "threads"),
            context=self.local_context_size(),
        )

    def _account(self, given: ProviderSettings) -> "AwsAccount":
        with require_extra("bedrock", feature="Bedrock"):
            from cllm.providers.bedrock import (
                BEARER_VARIABLE,
                DEFAULT_REGION,
                AwsAccount,
            )
        environment = self._settings.env.environment
        regions = (given.options.get("region"), *map(environment.get, REGION_VARIABLES))
        return AwsAccount(
            region=next((str(region) for region in regions if region), DEFAULT_REGION),
            profile=_text(given.options, "profile"),
            endpoint_url=_text(given.options, "endpoint_url") or given.api_base,
            bearer=given.api_key.reveal() if given.api_key else environment.get(BEARER_VARIABLE),
        )

    def _open_http(self) -> "HttpTransport":
        if self._single_turn:
            from cllm.providers.http.stdlib_transport import StdlibTransport

            return StdlibTransport()
        from cllm.providers.http.aiohttp_transport import AiohttpTransport

        return AiohttpTransport()

    def _provider_settings(self, name: str) -> ProviderSettings:
        """The provider's settings over the top-level ones that apply to it."""
        found = ProviderSettings()
        for top in self._settings.top_providers:
            if self._serves(name, top.model or self._model):
                found = _merge(top.settings, found)
        return _merge(self._settings.providers.get(name, ProviderSettings()), found)

    def _serves(self, name: str, model: str) -> bool:
        try:
            return self.resolve(model).provider == name
        except ModelNotFoundError:
            return False

    def _key(self, name: str, given: ProviderSettings, *, built_in: bool) -> str | None:
        """The key. A `built_in` provider has a variable for it, and may need it."""
        row = BUILTIN_PROVIDERS.get(name) if built_in else None
        variable = None if row is None else row.key
        environment = self._settings.env.environment
        key = given.api_key.reveal() if given.api_key else environment.get(variable or "", "")
        key = key.strip()
        unset = VARIABLE.fullmatch(key)
        if unset is not None:
            raise MissingKeyError(provider=name, variable=unset[1])
        if not key and variable is not None and given.api_base is None:
            raise MissingKeyError(provider=name, variable=variable)
        return key or None


def _merge(upper: ProviderSettings, lower: ProviderSettings) -> ProviderSettings:
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


def _kind(name: str, given: ProviderSettings) -> str:
    """A built-in kind, or the name under which another package offers the provider."""
    if given.kind is None:
        if name in BUILTIN_PROVIDERS:
            return BUILTIN_PROVIDERS[name].kind
        return name if given.api_base is None and is_third_party_provider(name) else "openai"
    kind = str(given.kind)
    if kind in KINDS or (kind not in {LOCAL, *BUILTIN_PROVIDERS} and is_third_party_provider(kind)):
        return kind
    raise SettingsError(
        f"`type` of providers.{name} must be one of {', '.join(KINDS)}, or the name of a "
        "provider that an installed package offers."
    )


def _base_url(name: str, given: ProviderSettings) -> str:
    url = given.api_base or (
        BUILTIN_PROVIDERS[name].base_url if name in BUILTIN_PROVIDERS else None
    )
    if url is None:
        raise SettingsError(f"providers.{name} needs an `api_base`.")
    if not url.startswith(("http://", "https://")):
        raise SettingsError(f"`api_base` of provider '{name}' must start with http:// or https://.")
    return url


def _speaker_options(kind: str, name: str, given: ProviderSettings) -> dict[str, Any]:
    chosen = {}
    for option, (form, described) in PROTOCOL_OPTIONS[kind].items():
        if given.options.get(option) is None:
            continue
        try:
            chosen[option] = msgspec.convert(given.options[option], form)
        except msgspec.ValidationError as error:
            raise SettingsError(f"`{option}` of providers.{name} must be {described}.") from error
    return chosen


def _reveal_headers(given: ProviderSettings) -> dict[str, str]:
    return {name: value.reveal() for name, value in given.headers.items()}


def _text(options: dict[str, Any], name: str) -> str | None:
    value = options.get(name)
    return None if value is None else str(value)


def _timeouts(given: ProviderSettings) -> "Timeouts":
    from cllm.providers.http.transport import Timeouts

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

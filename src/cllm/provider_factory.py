"""Builds providers from their settings; the only module that names the concrete classes.

A provider is imported when it is opened, for a fast start. Opening makes no connection.
"""

from collections.abc import Callable
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
    find_server,
    map_model_name,
    resolve_model,
)
from cllm.providers.third_party import (
    ProviderAccess,
    is_offered,
    open_offered,
)
from cllm.settings.cllmfile import VARIABLE
from cllm.settings.load import Environment, ProviderSettings, Settings, user_folder
from cllm.settings.trust import is_secret_name
from cllm.wire.media import NAMED_RULES as MEDIA_RULES
from cllm.wire.reasoning import NAMED_RULES

if TYPE_CHECKING:
    from cllm.providers.anthropic import AnthropicProvider
    from cllm.providers.bedrock import AwsAccount
    from cllm.providers.http.provider import HttpProvider, ProviderRequest
    from cllm.providers.http.transport import HttpTransport, Timeouts
    from cllm.providers.local.models import CachePaths, Report

# Protocol → the class of its provider, for protocols that need an address and a key.
PROTOCOL_CLASSES = {
    "anthropic": "cllm.providers.anthropic:AnthropicProvider",
    "openai": "cllm.providers.openai:OpenAIProvider",
}
# The options of a protocol: type, and description for error messages.
PROTOCOL_OPTIONS: dict[str, dict[str, tuple[Any, str]]] = {
    "anthropic": {"betas": (list[str], "a list of names")},
    "openai": {
        "api": (Literal["chat", "responses"], "`chat` or `responses`"),
        "attachments": (
            Literal["all", "images", "none", "openai"],
            "`all`, `images`, `none` or `openai`",
        ),
        "profile": (str, "one of {profiles}"),
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
BEDROCK = "bedrock"
OLLAMA = "ollama"
SETTINGS_KEY = "api_key"
"""The place of a key that the Cllmfile or the command line sets."""


def find_model_cache(environment: Environment) -> "CachePaths":
    from cllm.providers.local.models import cache_paths

    return cache_paths(environment.environment, home=environment.home)


class ProviderEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    address: str | None = None
    profile: str | None = None


class ProviderFactory:
    """Resolves a model to its provider and opens that provider.

    Top-level settings apply to the provider of `model()`, which is called only for settings
    without a model. `single_turn`: the process runs one turn and ends.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        model: Callable[[], str],
        report: "Report | None",
        single_turn: bool,
    ) -> None:
        self._settings = settings
        self._model = model
        self._report = report
        self._single_turn = single_turn

    def resolve(self, model: str) -> ResolvedModel:
        configured = {name: row.models for name, row in self._settings.providers.items()}
        resolved = resolve_model(model, configured=configured)
        name = map_model_name(resolved.name, self._catalogue(resolved.provider))
        return ResolvedModel(provider=resolved.provider, name=name)

    def catalogue(self, name: str) -> Catalogue:
        return msgspec.structs.replace(
            self._catalogue(name), has_custom_address=self.has_custom_address(name)
        )

    def _catalogue(self, name: str) -> Catalogue:
        settings, row = self._settings.providers.get(name), BUILTIN_PROVIDERS.get(name)
        kind = LOCAL if name == LOCAL else "openai" if row is None else row.kind
        if settings is None:
            return Catalogue(provider=name, kind=kind)
        kind = str(settings.kind or kind)
        return Catalogue(provider=name, kind=kind, models=settings.models, names=settings.names)

    def accepts_caller_key(self, name: str) -> bool:
        """Only Anthropic's protocol does."""
        return self._catalogue(name).kind == "anthropic"

    def local_context_size(self) -> int:
        """In tokens."""
        from cllm.providers.local.process import DEFAULT_CONTEXT

        options = self._provider_settings(LOCAL).options
        return _get_positive_integer(options, "context") or DEFAULT_CONTEXT

    def has_custom_address(self, name: str) -> bool:
        """Whether the operator set another address; its prices are unknown."""
        base = self._provider_settings(name).api_base
        row = BUILTIN_PROVIDERS.get(name)
        return base is not None and (row is None or base.rstrip("/") != row.base_url.rstrip("/"))

    def get_endpoint(self, name: str) -> ProviderEndpoint:
        """Return the endpoint that `open` would use; raises the same SettingsError."""
        settings = self._provider_settings(name)
        kind = LOCAL if name == LOCAL else _find_kind(name, settings)
        address = settings.api_base
        if kind in PROTOCOL_CLASSES:
            address = _find_base_url(name, settings)
        elif kind == "bedrock":
            address = self._build_account(settings).base_url
        profile = _get_text(settings.options, "profile") if kind == "openai" else None
        return ProviderEndpoint(kind=kind, address=address, profile=profile)

    def has_key(self, name: str) -> bool:
        """Whether a key is configured; MissingKeyError if the provider needs one."""
        settings = self._provider_settings(name)
        built_in = _find_kind(name, settings) in PROTOCOL_CLASSES
        return self._find_key(name, settings, built_in=built_in) is not None

    def open_without_key(self, name: str) -> "AnthropicProvider":
        """Open a provider that sends the keys of its callers."""
        settings = self._provider_settings(name)
        provider: AnthropicProvider = self._open_protocol("anthropic", name, settings, api_key=None)
        return provider

    async def build_model_list_request(self, name: str) -> "ProviderRequest | None":
        """Return the request for the provider's list of models; None if it has no list.

        Raises MissingKeyError and SettingsError as `open`.
        """
        settings = self._provider_settings(name)
        kind = LOCAL if name == LOCAL else _find_kind(name, settings)
        if kind not in PROTOCOL_CLASSES:
            return None
        key = self._find_key(name, settings, built_in=True)
        provider: HttpProvider = self._open_protocol(kind, name, settings, api_key=key)
        try:
            return await provider.build_model_list_request()
        finally:
            await provider.close()

    def open(self, model: ResolvedModel) -> Provider:
        """Open a new provider. The caller closes it."""
        name = model.provider
        settings = self._provider_settings(name)
        if name == LOCAL:
            return self._open_local(model.name, settings)
        kind = _find_kind(name, settings)
        if kind == "bedrock":
            return self._open_bedrock(name, settings)
        if kind in PROTOCOL_CLASSES:
            key = self._find_key(name, settings, built_in=True)
            provider: Provider = self._open_protocol(kind, name, settings, api_key=key)
            return provider
        access = self._build_access(name, settings)
        if kind == "litellm":
            return self._open_litellm(name, settings, access)
        return open_offered(kind, name=name, access=access)

    def _open_bedrock(self, name: str, settings: ProviderSettings) -> Provider:
        account = self._build_account(settings)
        from cllm.providers.bedrock import BedrockProvider

        return BedrockProvider(
            name=name,
            account=account,
            http=self._open_http(),
            headers=_reveal_headers(settings),
            timeouts=_build_timeouts(settings),
        )

    def _build_access(self, name: str, settings: ProviderSettings) -> ProviderAccess:
        """Return what a provider whose protocol is not built in gets from the settings."""
        key = self._find_key(name, settings, built_in=False)
        return ProviderAccess(
            api_base=None if settings.api_base is None else _find_base_url(name, settings),
            api_key=None if key is None else Secret(key),
            headers=settings.headers,
            timeouts=_build_timeouts(settings),
            models=settings.models,
            options={
                option: value
                for option, value in settings.options.items()
                if option not in COMMON_OPTIONS
            },
            environment=self._settings.env.environment,
        )

    def _open_litellm(
        self, name: str, settings: ProviderSettings, access: ProviderAccess
    ) -> Provider:
        from cllm.providers.litellm import LitellmProvider

        return LitellmProvider(
            name=name,
            api_base=access.api_base,
            api_key=None if access.api_key is None else access.api_key.reveal(),
            headers=_reveal_headers(settings),
            timeouts=access.timeouts,
            options=access.options,
            secrets=[
                value
                for variable, value in access.environment.items()
                if is_secret_name(variable) and len(value) >= MIN_SECRET_LENGTH
            ],
        )

    def _open_protocol(
        self, kind: str, name: str, settings: ProviderSettings, *, api_key: str | None
    ) -> Any:
        base_url = _find_base_url(name, settings)
        options = _convert_options(kind, name, settings)
        if kind == OPENAI:
            server = find_server(name, base_url)
            rule, media = options.pop("reasoning_field", None), options.pop("attachments", None)
            options["reasoning"] = server.reasoning if rule is None else NAMED_RULES[rule]
            options["media"] = server.media if media is None else MEDIA_RULES[media]
        module, _, class_name = PROTOCOL_CLASSES[kind].partition(":")
        return getattr(import_module(module), class_name)(
            name=name,
            base_url=base_url,
            api_key=api_key,
            http=self._open_http(),
            headers=_reveal_headers(settings),
            timeouts=_build_timeouts(settings),
            **options,
        )

    def _open_local(self, model: str, settings: ProviderSettings) -> Provider:
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
            threads=_get_positive_integer(settings.options, "threads"),
            context=self.local_context_size(),
        )

    def _build_account(self, settings: ProviderSettings) -> "AwsAccount":
        with require_extra("bedrock", feature="Bedrock"):
            from cllm.providers.bedrock import (
                BEARER_VARIABLE,
                DEFAULT_REGION,
                AwsAccount,
            )
        environment = self._settings.env.environment
        bearer = self._look_up_key(BEDROCK, settings, BEARER_VARIABLE, is_needed=False)
        regions = (settings.options.get("region"), *map(environment.get, REGION_VARIABLES))
        return AwsAccount(
            region=next((str(region) for region in regions if region), DEFAULT_REGION),
            profile=_get_text(settings.options, "profile"),
            endpoint_url=_get_text(settings.options, "endpoint_url") or settings.api_base,
            bearer=None if bearer is None else bearer[1],
        )

    def _open_http(self) -> "HttpTransport":
        if self._single_turn:
            from cllm.providers.http.stdlib_transport import StdlibTransport

            return StdlibTransport()
        from cllm.providers.http.aiohttp_transport import AiohttpTransport

        return AiohttpTransport()

    def _provider_settings(self, name: str) -> ProviderSettings:
        """Return the provider's settings over the top-level ones that apply to it."""
        settings = ProviderSettings()
        for top in self._settings.top_providers:
            if self._is_provider_of(name, top.model or self._model()):
                settings = _merge(top.settings, settings)
        settings = _merge(self._settings.providers.get(name, ProviderSettings()), settings)
        environment = self._settings.env.environment
        if name == OLLAMA and settings.api_base is None and environment.get("OLLAMA_HOST"):
            from cllm.providers.ollama import find_ollama_url

            address = f"{find_ollama_url(environment)}/v1"
            return msgspec.structs.replace(settings, api_base=address)
        return settings

    def _is_provider_of(self, name: str, model: str) -> bool:
        try:
            return self.resolve(model).provider == name
        except ModelNotFoundError:
            return False

    def _find_key(self, name: str, settings: ProviderSettings, *, built_in: bool) -> str | None:
        """Return the key; a `built_in` provider may need one, from its environment variable."""
        row = BUILTIN_PROVIDERS.get(name) if built_in else None
        variable = None if row is None else row.key
        needs_key = variable is not None and settings.api_base is None
        found = self._look_up_key(name, settings, variable, is_needed=needs_key)
        if found is None and variable is not None and needs_key:
            raise MissingKeyError(provider=name, variable=variable)
        return None if found is None else found[1]

    def find_key_source(self, name: str) -> str | None:
        """Return where the key of a provider is: SETTINGS_KEY, a variable or a `SavedKey.place`."""
        row = BUILTIN_PROVIDERS.get(name)
        variable = None if row is None else row.key
        settings = self._provider_settings(name)
        found = self._look_up_key(name, settings, variable, is_needed=variable is not None)
        return None if found is None else found[0]

    def _look_up_key(
        self, name: str, settings: ProviderSettings, variable: str | None, *, is_needed: bool
    ) -> tuple[str, str] | None:
        """Return the place of the key, and the key."""
        if settings.api_key and (key := settings.api_key.reveal().strip()):
            unset = VARIABLE.fullmatch(key)
            if unset is not None:
                raise MissingKeyError(provider=name, variable=unset[1])
            return SETTINGS_KEY, key
        env = self._settings.env
        if variable is not None and (key := env.environment.get(variable, "").strip()):
            return variable, key
        from cllm.settings.saved_keys import SavedKeys

        saved = SavedKeys(user_folder(env)).find(name, is_needed=is_needed)
        return None if saved is None else (saved.place, saved.key)


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


def _find_kind(name: str, settings: ProviderSettings) -> str:
    """Return a built-in kind, or the entry point of another package."""
    if settings.kind is None:
        if name in BUILTIN_PROVIDERS:
            return BUILTIN_PROVIDERS[name].kind
        return name if settings.api_base is None and is_offered(name) else "openai"
    kind = str(settings.kind)
    if kind in KINDS or (kind not in {LOCAL, *BUILTIN_PROVIDERS} and is_offered(kind)):
        return kind
    raise SettingsError(
        f"`type` of providers.{name} must be one of {', '.join(KINDS)}, or the name of a "
        "provider that an installed package offers."
    )


def _find_base_url(name: str, settings: ProviderSettings) -> str:
    url = settings.api_base or (
        BUILTIN_PROVIDERS[name].base_url if name in BUILTIN_PROVIDERS else None
    )
    if url is None:
        raise SettingsError(f"providers.{name} needs an `api_base`.")
    if not url.startswith(("http://", "https://")):
        raise SettingsError(f"`api_base` of provider '{name}' must start with http:// or https://.")
    return url


def _convert_options(kind: str, name: str, settings: ProviderSettings) -> dict[str, Any]:
    options = {}
    for option, (option_type, description) in PROTOCOL_OPTIONS[kind].items():
        if settings.options.get(option) is None:
            continue
        try:
            options[option] = msgspec.convert(settings.options[option], option_type)
        except msgspec.ValidationError as error:
            from cllm.history.rules import PROFILES

            expected = description.format(profiles=", ".join(sorted(PROFILES)))
            raise SettingsError(f"`{option}` of providers.{name} must be {expected}.") from error
    return options


def _reveal_headers(settings: ProviderSettings) -> dict[str, str]:
    return {name: value.reveal() for name, value in settings.headers.items()}


def _get_text(options: dict[str, Any], name: str) -> str | None:
    value = options.get(name)
    return None if value is None else str(value)


def _build_timeouts(settings: ProviderSettings) -> "Timeouts":
    from cllm.providers.http.transport import Timeouts

    if settings.timeout is None:
        return Timeouts()
    if isinstance(settings.timeout, dict):
        return Timeouts(**settings.timeout)
    return Timeouts(first_byte=settings.timeout, idle=settings.timeout)


def _get_positive_integer(options: dict[str, object], name: str) -> int | None:
    value = options.get(name)
    if value is None or (isinstance(value, int) and value > 0):
        return value
    raise SettingsError(f"`{name}` of providers.local must be a whole number above 0.")

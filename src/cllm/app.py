"""Settings become an engine: the only place that names concrete classes.

Imports a store or a provider when it is needed, so that a command which needs neither is quick.
"""

import uuid
from collections.abc import Coroutine
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from cllm.core.errors import (
    MissingExtraError,
    MissingKeyError,
    ModelNotFoundError,
    SettingsError,
    UsageError,
)
from cllm.core.ports import Provider, Store
from cllm.providers.registry import LOCAL, ROWS, ProviderRow, find_server
from cllm.settings.cllmfile import VARIABLE
from cllm.settings.load import ProviderSettings, Settings, user_folder
from cllm.settings.trust import is_model_file
from cllm.stores.registry import never_waits, open_store

if TYPE_CHECKING:
    from cllm.engine.turn import Engine, Route
    from cllm.providers.http import Http, Timeouts
    from cllm.providers.local.models import CachePaths
    from cllm.providers.local.report import Report

T = TypeVar("T")

# Who speaks a protocol with an address and a key; imported when it is asked for.
SPEAKERS = {
    "anthropic": "cllm.providers.anthropic:AnthropicProvider",
    "openai": "cllm.providers.openai:OpenAIProvider",
}
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")

DEFAULT_MODEL = "local/smollm2-135m"


def now() -> datetime:
    return datetime.now(UTC)


def new_id() -> str:
    return str(uuid.uuid4())


def new_conversation_id(at: datetime, suffix: str) -> str:
    """An id for a conversation that was given none: sorts by time, and can be typed."""
    return f"c-{at:%Y%m%d-%H%M%S}-{suffix[:4]}"


class App:
    """What one surface runs on: a store, and the providers it has asked so far.

    `asks_once` is for a command that takes one turn and ends.
    """

    def __init__(
        self, settings: Settings, *, report: "Report | None" = None, asks_once: bool = False
    ) -> None:
        self.settings = settings
        self._asks_once = asks_once
        self.store: Store = open_store(settings.store, clock=now)
        self._report = report
        self._providers: dict[tuple[str, str], Provider] = {}

    @property
    def model(self) -> str:
        """The model for a turn that has no conversation yet."""
        return self.settings.model or DEFAULT_MODEL

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run an operation that reads the store, without an event loop if it never waits."""
        from cllm.engine import sync  # noqa: PLC0415

        return (
            sync.run_without_waiting(work) if never_waits(self.settings.store) else sync.run(work)
        )

    def engine(self) -> "Engine":
        from cllm.engine.retry import RetryRules  # noqa: PLC0415
        from cllm.engine.turn import Engine  # noqa: PLC0415

        return Engine(
            store=self.store,
            find_route=self.find_route,
            clock=now,
            new_id=new_id,
            retry=RetryRules(retries=self.settings.retries),
        )

    def find_route(self, model: str) -> "Route":
        """The provider that serves the model; the same one when asked again."""
        from cllm.engine.turn import Route  # noqa: PLC0415

        self._refuse_model_of_others(model)
        configured = {name: row.models for name, row in self.settings.providers.items()}
        served = find_server(model, configured=configured)
        key = (served.provider, served.name if served.provider == LOCAL else "")
        if key not in self._providers:
            self._providers[key] = self._open_provider(served.provider, served.name)
        return Route(provider=self._providers[key], model=served.name)

    def _refuse_model_of_others(self, model: str) -> None:
        """A conversation in a project's folder can be another's, and so can its model file."""
        place = self.settings.place
        project = (place.directory / ".cllm").resolve()
        kept_there = self.settings.store.startswith(f"json:{place.directory / '.cllm'}")
        if model == self.settings.model or not is_model_file(model) or not kept_there:
            return
        if project != user_folder(place).resolve():
            raise UsageError(
                f"The conversation wants the model file '{model}', which could be somebody else's; "
                f"if you trust it, name it yourself: -m {model}"
            )

    def cache_key(self, conversation: str) -> str:
        """The name under which providers keep what they have computed of a conversation."""
        return f"{self.settings.store}#{conversation}"

    def forget(self, conversation: str) -> None:
        """Delete what the local model has kept of a conversation."""
        from cllm.providers.local.slots import SlotFiles  # noqa: PLC0415

        SlotFiles(folder=self.cache_paths.slots).forget(self.cache_key(conversation))

    @property
    def cache_paths(self) -> "CachePaths":
        from cllm.providers.local.models import cache_paths  # noqa: PLC0415

        return cache_paths(self.settings.place.environment, home=self.settings.place.home)

    async def close(self) -> None:
        for provider in self._providers.values():
            await provider.close()
        await self.store.close()

    def _open_provider(self, name: str, model: str) -> Provider:
        if name == LOCAL:
            return self._open_local(model)
        given = self._provider_settings(name)
        row = ROWS.get(name)
        kind = given.kind or (row.kind if row else "openai")
        if kind == "bedrock":
            return self._open_bedrock(name, given)
        if kind not in SPEAKERS:
            known = ", ".join((*SPEAKERS, "bedrock"))
            raise SettingsError(f"`type` of providers.{name} must be one of {known}.")
        module, _, speaker = SPEAKERS[kind].partition(":")
        provider: Provider = getattr(import_module(module), speaker)(
            name=name,
            base_url=_base_url(name, given, row),
            api_key=self._key(name, given, row),
            http=self._open_http(),
            headers=_revealed(given),
            timeouts=_timeouts(given),
        )
        return provider

    def _open_local(self, model: str) -> Provider:
        from cllm.providers.local.models import resolve  # noqa: PLC0415
        from cllm.providers.local.process import DEFAULT_CONTEXT  # noqa: PLC0415
        from cllm.providers.local.provider import LocalProvider  # noqa: PLC0415
        from cllm.providers.local.report import say_nothing  # noqa: PLC0415

        place = self.settings.place
        options = self._provider_settings(LOCAL).options
        return LocalProvider(
            model=resolve(model, self.cache_paths, cwd=place.directory, home=place.home),
            paths=self.cache_paths,
            environ=place.environment,
            report=self._report or say_nothing,
            make_http=self._open_http,
            threads=_whole_number(options, "threads"),
            context=_whole_number(options, "context") or DEFAULT_CONTEXT,
        )

    def _open_bedrock(self, name: str, given: ProviderSettings) -> Provider:
        try:
            from cllm.providers.bedrock import (  # noqa: PLC0415
                BEARER_VARIABLE,
                DEFAULT_REGION,
                Account,
                BedrockProvider,
            )
        except ModuleNotFoundError as error:
            raise MissingExtraError(feature="Bedrock", extra="bedrock") from error
        environment = self.settings.place.environment
        regions = (given.options.get("region"), *map(environment.get, REGION_VARIABLES))
        key = given.api_key.reveal() if given.api_key else environment.get(BEARER_VARIABLE)
        return BedrockProvider(
            name=name,
            account=Account(
                region=next((str(region) for region in regions if region), DEFAULT_REGION),
                profile=_text(given.options, "profile"),
                endpoint_url=_text(given.options, "endpoint_url") or given.api_base,
                bearer=key,
            ),
            http=self._open_http(),
            headers=_revealed(given),
            timeouts=_timeouts(given),
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
        for top in self.settings.top_providers:
            if self._serves(name, top.model or self.model):
                found = _over(top.settings, found)
        return _over(self.settings.providers.get(name, ProviderSettings()), found)

    def _serves(self, name: str, model: str) -> bool:
        configured = {key: row.models for key, row in self.settings.providers.items()}
        try:
            return find_server(model, configured=configured).provider == name
        except ModelNotFoundError:
            return False

    def _key(self, name: str, given: ProviderSettings, row: ProviderRow | None) -> str | None:
        variable = None if row is None else row.key
        environment = self.settings.place.environment
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
        options={**lower.options, **upper.options},
    )


def _base_url(name: str, given: ProviderSettings, row: ProviderRow | None) -> str:
    url = given.api_base or (row.base_url if row else None)
    if url is None:
        raise SettingsError(f"providers.{name} needs an `api_base`.")
    if not url.startswith(("http://", "https://")):
        raise SettingsError(f"`api_base` of provider '{name}' must start with http:// or https://.")
    return url


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

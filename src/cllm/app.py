"""Builds the store and the engine from the settings; `provider_factory` builds the providers."""

import re
import sys
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from cllm.core.conversation import FILES_PREFIX, OWN_SOURCES
from cllm.core.errors import CllmError, UsageError
from cllm.core.notice import Notice
from cllm.core.ports import Lease, NewConversation, Provider, Store
from cllm.core.reply import Usage
from cllm.core.secret import CallersKey
from cllm.files import CacheFolder, find_cache_folder
from cllm.provider_factory import ProviderFactory, find_model_cache
from cllm.providers.registry import BUILTIN_PROVIDERS, LOCAL, is_model_file
from cllm.settings.load import (
    MEMORY,
    Environment,
    Settings,
    default_stores,
    is_same_store,
    other_store,
    user_folder,
)
from cllm.settings.trust import is_secret_name
from cllm.stores.registry import (
    PATH_SCHEMES,
    is_synchronous,
    open_other_store,
    open_store,
    redact_password,
    store_location,
)

if TYPE_CHECKING:
    from cllm.commands.command_line import CommandEnvironment
    from cllm.commands.tool import CommandSettings, CommandTool, Confirm
    from cllm.commands.tool import Report as Tell
    from cllm.default_model import ModelChoice
    from cllm.engine.prompt_history import ModelContext
    from cllm.engine.request import ModelRoute, Price
    from cllm.engine.turn import Engine
    from cllm.history.context import CommandOutcome, ContextCommand
    from cllm.prices.book import PriceBook
    from cllm.providers.anthropic import AnthropicProvider
    from cllm.providers.local.models import CachePaths, Report
    from cllm.providers.registry import Catalogue
    from cllm.window.strategies import Strategy

T = TypeVar("T")

# Set in the environment of commands that cllm runs: a nested cllm runs no context commands.
IN_CONTEXT = "CLLM_IN_CONTEXT"
DEFAULT_MODEL = "local/smollm2-135m"
NO_TEXT = "The model's reply contains no text; try again or rephrase the prompt."
TOOL_NOT_RUN = "The model called a tool that cllm cannot run here; nothing was run."
DEFAULT_MODEL_LABEL = f"{DEFAULT_MODEL}, a very small model: its replies are often wrong."
# Models and providers whose route, window and catalogue are cached; clients choose their names.
MAX_CACHED = 1000
# Bytes of the record of the last conversation in a place.
MAX_RECORD = 10_000
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def now() -> datetime:
    return datetime.now(UTC)


def new_id() -> str:
    return str(uuid.uuid4())


def new_conversation_id(at: datetime, suffix: str) -> str:
    """Return an ID that sorts by time and is easy to type."""
    return f"c-{at:%Y%m%d-%H%M%S}-{suffix[:4]}"


def build_new_conversation(
    ref: str, *, model: str | None = None, source: str | None = None
) -> NewConversation:
    """Use `ref` as ID if it is a UUID, else as name."""
    ref = ref.removeprefix(FILES_PREFIX)
    is_id = UUID.fullmatch(ref) is not None
    return NewConversation(
        id=ref if is_id else new_id(),
        name=None if is_id else ref,
        model=model,
        source=source,
    )


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    import asyncio  # a command that never waits does not import it

    return asyncio.run(coroutine)


def run_without_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise RuntimeError("this coroutine waits for something; use run_coroutine()")


def open_configured_store(url: str, settings: Settings) -> Store:
    """Open a store that has the user's cache folder."""
    return open_store(url, clock=now, cache=find_cache(settings.env))


def find_cache(env: Environment) -> Path:
    """Return the user's cache folder."""
    return find_cache_folder(env.environment, home=env.home)


class LastUse(msgspec.Struct, frozen=True, kw_only=True):
    """The last conversation that the shell or chat used in a place, which is a store.

    `is_saved`: whether the last question was saved there; otherwise it was not saved at all.
    """

    store: str
    conversation: str
    is_saved: bool = True


def log_warning(notice: Notice) -> None:
    import logging

    from cllm.logs import log

    log("store", logging.WARNING, notice.message, code=notice.code)


class App:
    """A store, and the providers that were opened.

    New conversations are stored in `own_store`; `store` also has those of the other default store.
    `find_other` returns the URL of the other one.
    `single_turn`: the process makes one call and exits. `warn` gets problems of a store.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        find_other: Callable[[Settings], str | None] = other_store,
        report: "Report | None" = None,
        single_turn: bool = False,
        warn: Callable[[Notice], None] = log_warning,
    ) -> None:
        self.settings = settings
        other = find_other(settings)
        self.store_urls = (settings.store,) if other is None else (settings.store, other)
        self.own_store: Store = open_configured_store(settings.store, settings)
        self.store: Store = self.own_store if other is None else self._combine(other, warn)
        self._factory = ProviderFactory(
            settings, model=lambda: self.model, report=report, single_turn=single_turn
        )
        self._providers: dict[tuple[str, str], Provider] = {}
        self._keyless: dict[str, AnthropicProvider] = {}
        self.find_route = lru_cache(MAX_CACHED)(self._find_route)
        self.window_for = lru_cache(MAX_CACHED)(self._find_window)
        self._read_catalogue = lru_cache(MAX_CACHED)(self._factory.catalogue)

    @property
    def model(self) -> str:
        return self.settings.model or self.model_choice.model

    @cached_property
    def model_choice(self) -> "ModelChoice":
        """The model if none is configured."""
        from cllm.default_model import choose_model

        return choose_model(self.settings)

    def check_chosen_model(self, model: str) -> None:
        """Raise MissingExtraError if no model is configured and the local one cannot run."""
        if self.settings.model is None and model == self.model:
            from cllm.default_model import check_choice

            check_choice(self.model_choice)

    def _combine(self, other: str, warn: Callable[[Notice], None]) -> Store:
        from cllm.stores.combined import CombinedStore

        return CombinedStore(
            self.own_store,
            partial(open_other_store, other, clock=now, cache=find_cache(self.settings.env)),
            locations=(store_location(self.settings.store), store_location(other)),
            warn=warn,
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a read operation, without an event loop if the store never waits."""
        never_waits = all(map(is_synchronous, self.store_urls))
        return run_without_loop(work) if never_waits else run_coroutine(work)

    async def count_other_stores(self) -> dict[str, int]:
        """Return the numbers of conversations in the other default stores."""
        return {
            url: count
            for url in default_stores(self.settings.env)
            if not any(is_same_store(url, used) for used in self.store_urls)
            if (count := await _count_conversations(url))
        }

    def engine(
        self, store: Store | None = None, *, callers_key: CallersKey | None = None
    ) -> "Engine":
        """With a caller's key, its provider gets no other key."""
        from cllm.engine.retry import RetryRules
        from cllm.engine.turn import Engine

        return Engine(
            store=self.store if store is None else store,
            find_route=(
                self.find_route
                if callers_key is None
                else partial(self.find_route_with_key, key=callers_key)
            ),
            clock=now,
            new_id=new_id,
            price=self._find_price,
            context_window=lambda route: self._find_context_window(
                route.provider.name, route.model
            ),
            run_commands=self.run_commands,
            retry=RetryRules(retries=self.settings.retries),
        )

    def _find_price(self, route: "ModelRoute") -> "Price":
        book = self.prices

        def price(usage: Usage) -> float | None:
            cost = book.price(route.provider.name, route.model, usage, now())
            return None if cost is None else float(cost)

        return price

    def _find_context_window(self, provider: str, model: str) -> int | None:
        if provider == LOCAL:
            return self._factory.local_context_size()
        if self._factory.has_custom_address(provider):
            return None
        return self.prices.context_window(provider, model)

    def model_context(self, model: str) -> "ModelContext":
        from cllm.engine.prompt_history import ModelContext

        resolved = self._factory.resolve(model)
        return ModelContext(
            model=model,
            provider=resolved.provider,
            context_window=partial(self._find_context_window, resolved.provider, resolved.name),
            now=now(),
        )

    @property
    def can_skip_preload(self) -> bool:
        """Whether a turn needs no summary before it starts."""
        return self.settings.window.strategy != "summarise"

    def _find_window(self, model: str) -> "Strategy":
        from cllm.window.strategies import (
            ByTokens,
            ByTurns,
            Summarise,
            prices_for,
        )

        window = self.settings.window
        if window.strategy == "turns":
            return ByTurns(max_turns=window.max_turns)
        resolved = self._factory.resolve(model)
        prices = prices_for(resolved.provider, resolved.name)
        tokens = ByTokens(max_tokens=window.max_tokens, prices=prices)
        if window.strategy == "summarise":
            return Summarise(tokens=tokens, summary_tokens=window.summary_tokens)
        return tokens

    @cached_property
    def prices(self) -> "PriceBook":
        from cllm.prices.book import PriceBook

        rows = self.settings.providers.items()
        prices = {name: row.options["prices"] for name, row in rows if "prices" in row.options}
        redirected_providers = tuple(filter(self._factory.has_custom_address, BUILTIN_PROVIDERS))
        return PriceBook(
            self.cache_paths.root / "prices",
            configured=prices,
            redirected_providers=redirected_providers,
        )

    async def run_commands(
        self, commands: "Sequence[ContextCommand]"
    ) -> "Sequence[CommandOutcome]":
        from cllm.commands.run import run_commands

        env = self._command_environment(self.settings.env.environment)
        return await run_commands(self.settings.variables.fill_commands(commands), env)

    def _command_environment(self, environment: Mapping[str, str]) -> "CommandEnvironment":
        from cllm.commands.command_line import CommandEnvironment

        directory = self.settings.env.directory
        return CommandEnvironment(directory=directory, environment={**environment, IN_CONTEXT: "1"})

    def command_tool(
        self, settings: "CommandSettings", *, confirm: "Confirm | None", report: "Tell"
    ) -> "CommandTool":
        """Return the model's tool for commands, which inherit no secret variable."""
        from cllm.commands.run import run_plan
        from cllm.commands.tool import CommandTool

        variables = self.settings.env.environment.items()
        visible = {name: value for name, value in variables if not is_secret_name(name)}
        return CommandTool(
            settings,
            env=self._command_environment(visible),
            run=run_plan,
            confirm=confirm,
            report=report,
            secrets=self.settings.secrets(),
        )

    def find_route_with_key(self, model: str, key: CallersKey) -> "ModelRoute":
        """Return the route with the caller's key, if it is for the model's provider."""
        from cllm.engine.request import ModelRoute

        resolved = self._factory.resolve(model)
        if resolved.provider != key.provider:
            return self.find_route(model)
        if resolved.provider not in self._keyless:
            self._keyless[resolved.provider] = self._factory.open_without_key(resolved.provider)
        provider = self._keyless[resolved.provider].with_key(key)
        return ModelRoute(provider=provider, model=resolved.name)

    def provider_of(self, model: str) -> str:
        return self._factory.resolve(model).provider

    def accepts_caller_key(self, model: str) -> bool:
        return self._factory.accepts_caller_key(self.provider_of(model))

    def key_for(self, model: str, key: CallersKey) -> CallersKey | None:
        """Return the caller's key for the model's provider; None if that accepts no such key."""
        if not self.accepts_caller_key(model):
            return None
        return replace(key, provider=self.provider_of(model))

    def catalogue(self, provider: str) -> "Catalogue":
        """For the local provider, includes the models on disk."""
        catalogue = self._read_catalogue(provider)
        if provider != LOCAL:
            return catalogue
        from cllm.providers.local.models import list_models

        downloaded = (model.name for model in list_models(self.cache_paths))
        return replace(catalogue, models=(*catalogue.models, *downloaded))

    def _find_route(self, model: str) -> "ModelRoute":
        from cllm.engine.request import ModelRoute

        self.check_chosen_model(model)
        self._check_model_file(model)
        resolved = self._factory.resolve(model)
        key = (
            resolved.provider,
            resolved.name if resolved.provider == LOCAL else "",
        )
        if key not in self._providers:
            self._providers[key] = self._factory.open(resolved)
        return ModelRoute(provider=self._providers[key], model=resolved.name)

    def _check_model_file(self, model: str) -> None:
        """Refuse a model file that a conversation in the project's folder names."""
        env = self.settings.env
        project = (env.directory / ".cllm").resolve()
        is_project_store = any(
            url.partition(":")[2].startswith(str(env.directory / ".cllm"))
            for url in self.store_urls
        )
        trusted = (self.settings.model, *self.settings.aliases.values())
        if model in trusted or not is_model_file(model) or not is_project_store:
            return
        if project != user_folder(env).resolve():
            raise UsageError(
                f"The conversation names the model file '{model}', which is not trusted; if you "
                f"trust it, select it yourself: -m {model}"
            )

    def cache_key(self, conversation: str, *, store: str | None = None) -> str:
        return f"{store or self.settings.store}#{conversation}"

    def forget(self, conversation: str, *, store: str | None = None) -> None:
        """Delete the local model's saved state."""
        from cllm.providers.local.slots import SlotFiles

        slots = SlotFiles(folder=self.cache_paths.slots)
        for url in self.store_urls if store is None else (store,):
            slots.delete_conversation(self.cache_key(conversation, store=url))

    async def delete_conversation(self, ref: str) -> None:
        """Delete a conversation, and the local model's state of it under its ID and its name."""
        summary = await self.store.summary(ref)
        await self.store.delete(ref)
        for known in {ref, summary.id, summary.ref}:
            self.forget(known)

    def read_last_use(self) -> LastUse | None:
        data = self._places.read(self._place)
        try:
            return None if data is None else msgspec.json.decode(data, type=LastUse)
        except msgspec.MsgspecError:
            return None

    def record_use(self, lease: Lease | None) -> None:
        """Record the conversation of a question; None: the question is not saved.

        A conversation that was recorded from a client is never the last one of the shell.
        """
        if self._place.startswith(MEMORY) or IN_CONTEXT in self.settings.env.environment:
            return
        last = self.read_last_use()
        if lease is None:
            use = None if last is None else replace(last, is_saved=False)
        elif lease.conversation.source not in OWN_SOURCES or lease.conversation.is_side:
            return
        else:
            store = redact_password(self._place)
            use = LastUse(store=store, conversation=lease.conversation.id)
        if use is not None and use != last:
            self._places.write(self._place, msgspec.json.encode(use))

    def list_used_stores(self) -> list[str]:
        """Return the stores that the shell or chat used, without passwords."""
        stores: list[str] = []
        for data in self._places.read_all():
            with suppress(msgspec.MsgspecError):
                stores.append(msgspec.json.decode(data, type=LastUse).store)
        return stores

    @property
    def _place(self) -> str:
        """The URL of the own store with an absolute path."""
        scheme, _, path = self.settings.store.partition(":")
        is_path = scheme in PATH_SCHEMES
        return f"{scheme}:{self.settings.env.directory / path}" if is_path else self.settings.store

    @property
    def _places(self) -> CacheFolder:
        folder = find_cache(self.settings.env) / "places"
        return CacheFolder(folder=folder, max_files=MAX_CACHED, max_bytes=MAX_RECORD)

    @property
    def cache_paths(self) -> "CachePaths":
        return find_model_cache(self.settings.env)

    async def close(self) -> None:
        for provider in (*self._providers.values(), *self._keyless.values()):
            await provider.close()
        await self.store.close()


async def _count_conversations(url: str) -> int:
    """0 if the store cannot be read."""
    store = open_store(url, clock=now)
    try:
        return len((await store.list_conversations(limit=sys.maxsize)).items)
    except CllmError:
        return 0
    finally:
        await store.close()

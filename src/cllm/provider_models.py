"""Reads the model lists of providers, in parallel; docs/decisions/0028.

A list is cached for a day in the user's cache folder, without the address and the key. A provider
that fails is a problem to report, never an error.
"""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from http import HTTPStatus
from pathlib import Path

import msgspec

from cllm.core.errors import CllmError, MissingKeyError
from cllm.provider_factory import ProviderFactory
from cllm.providers.cached_models import CachedModels
from cllm.providers.http.provider import ProviderRequest
from cllm.providers.http.stdlib_transport import StdlibTransport
from cllm.providers.http.transport import Timeouts
from cllm.wire.errors import MalformedError
from cllm.wire.remote_models import RemoteModel, decode_remote_models

SECONDS = 5.0
MAX_RESPONSE_BYTES = 4 * 1024 * 1024
MAX_MODELS = 2000
KEY_STATUSES = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class ProviderModels(msgspec.Struct, frozen=True, kw_only=True):
    """`models` is None if the provider has no list or was not called; `problem`: why it failed."""

    models: tuple[RemoteModel, ...] | None = None
    problem: str | None = None


class ModelListReader:
    """`is_refresh`: ignore cached lists. `seconds`: the time limit of each provider."""

    def __init__(
        self,
        factory: ProviderFactory,
        cache: Path,
        *,
        now: datetime,
        is_refresh: bool = False,
        seconds: float = SECONDS,
    ) -> None:
        self._factory = factory
        self._cache = CachedModels(cache)
        self._now = now
        self._is_refresh = is_refresh
        self._seconds = seconds

    def read(self, providers: Iterable[str]) -> dict[str, ProviderModels]:
        names = list(dict.fromkeys(providers))
        return dict(zip(names, asyncio.run(self._read_all(names)), strict=True))

    async def _read_all(self, names: list[str]) -> list[ProviderModels]:
        return await asyncio.gather(*map(self._read_one, names))

    async def _read_one(self, name: str) -> ProviderModels:
        try:
            models = await self._read_models(name)
        except MissingKeyError:
            models = None
        except TimeoutError:
            problem = f"Provider '{name}' did not send its list of models in {self._seconds:g} s."
            return ProviderModels(problem=problem)
        except CllmError as error:
            return ProviderModels(problem=str(error))
        if models is None or 0 < len(models) <= MAX_MODELS:
            return ProviderModels(models=models)
        if not models:
            return ProviderModels(models=models, problem=f"Provider '{name}' lists no models.")
        problem = f"Provider '{name}' has {len(models):,} models; {MAX_MODELS:,} are listed."
        return ProviderModels(models=models[:MAX_MODELS], problem=problem)

    async def _read_models(self, name: str) -> tuple[RemoteModel, ...] | None:
        request = await self._factory.build_model_list_request(name)
        if request is None:
            return None
        url = request.url
        models = None if self._is_refresh else self._cache.read(name, url, now=self._now)
        if models is None:
            async with asyncio.timeout(self._seconds):
                models = await self._fetch(name, request)
            self._cache.save(name, url, models, now=self._now)
        return models

    async def _fetch(self, name: str, request: ProviderRequest) -> tuple[RemoteModel, ...]:
        timeouts = Timeouts(connect=self._seconds, first_byte=self._seconds, idle=self._seconds)
        response = await StdlibTransport().get(
            request.url, headers=request.headers, provider=name, timeouts=timeouts
        )
        try:
            if response.status != HTTPStatus.OK:
                advice = "its API key" if response.status in KEY_STATUSES else "api_base"
                raise CllmError(
                    f"Provider '{name}' returned HTTP {response.status} instead of its list of "
                    f"models; check {advice}."
                )
            return decode_remote_models(await response.read(max_bytes=MAX_RESPONSE_BYTES))
        except MalformedError as error:
            problem = f"Provider '{name}' sent no list of models; check api_base."
            raise CllmError(problem) from error
        finally:
            await response.close()

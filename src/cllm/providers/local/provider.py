"""The provider of local models."""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import Future
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

import msgspec

from cllm.core.errors import MissingExtraError
from cllm.core.notice import Notice
from cllm.core.ports import TokenCount
from cllm.core.prompt import Prompt
from cllm.core.reply import Noticed, ReplyEvent, ReplyFinished
from cllm.providers.local import process
from cllm.providers.local.models import (
    CachePaths,
    ModelFile,
    Report,
    check_is_gguf,
    has_chat_template,
    ignore_event,
    is_runtime_installed,
)
from cllm.providers.local.process import DEFAULT_CONTEXT, ModelProcessSettings
from cllm.providers.local.slots import SlotFiles

if TYPE_CHECKING:
    from cllm.providers.http.transport import HttpTransport
    from cllm.providers.local.client import LlamaServerClient

MAX_REPLY_TOKENS = 512
VARIANT_TEMPERATURE = 0.8
NO_TEMPLATE = Notice(
    code="chat_template_missing",
    path="model",
    message="The model file has no chat template, so the prompt is in ChatML, which the model may "
    "not understand; use a GGUF file of the model that contains its template.",
)

T = TypeVar("T")
MakeHttp = Callable[[], "HttpTransport"]


class LocalProvider:
    """Downloads the model and starts the child process when they are first needed."""

    name = "local"

    def __init__(
        self,
        *,
        model: ModelFile,
        paths: CachePaths,
        environ: Mapping[str, str],
        report: Report = ignore_event,
        threads: int | None = None,
        context: int = DEFAULT_CONTEXT,
        slots: SlotFiles | None = None,
        make_http: MakeHttp | None = None,
    ) -> None:
        self._model = model
        self._paths = paths
        self._environ = environ
        self._report = report
        self._threads = threads or _count_processors()
        self._context = context
        self._slots = slots or SlotFiles(folder=paths.slots)
        self._make_http = make_http or _make_pool
        self._child: LlamaServerClient | None = None
        self._start_lock = asyncio.Lock()
        self._slot_lock = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.process.pid

    @property
    def can_use_tools(self) -> bool:
        """Our own templates, which are for models that are too small, show no tools."""
        return self._model.template is None

    async def prepare(self) -> None:
        """Download a missing model. The child starts with the first prompt: the turn is saved."""
        async with self._start_lock:
            if self._child is None:
                await self._prepare_file()

    async def ask(self, prompt: Prompt) -> AsyncGenerator[ReplyEvent, None]:
        """Run one prompt at a time: the child has one slot."""
        # A model that cannot be loaded has no notices.
        await self._connect()
        prompt, notices = self._adapt(prompt)
        if await asyncio.to_thread(self._lacks_template):
            notices += (NO_TEMPLATE,)
        for notice in notices:
            yield Noticed(notice=notice)
        finished: ReplyEvent | None = None
        async with self._slot_lock:
            child = await self._restore(prompt.cache_key)
            async with aclosing(child.ask(vary_reply(limit_reply(prompt)))) as events:
                async for event in events:
                    if isinstance(event, ReplyFinished):
                        finished = event
                    else:
                        yield event
            await self._save(child, prompt.cache_key)
        if finished is not None:
            yield finished

    async def count_tokens(self, prompt: Prompt) -> TokenCount:
        prompt, notices = self._adapt(prompt)
        child = await self._connect()
        tokens = await child.count(limit_reply(prompt))
        return TokenCount(tokens=tokens, notices=notices)

    async def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.close()

    def _adapt(self, prompt: Prompt) -> tuple[Prompt, tuple[Notice, ...]]:
        from cllm.providers.local.client import adapt_prompt  # noqa: PLC0415 - see `_start`

        return adapt_prompt(prompt, provider=self.name, sees_tools=self.can_use_tools)

    def _lacks_template(self) -> bool:
        return self._model.template is None and not has_chat_template(self._model.path)

    async def _connect(self) -> "LlamaServerClient":
        async with self._start_lock:
            if self._child is not None and not self._child.process.is_running:
                await self.close()
            if self._child is None:
                self._child = await self._start()
            return self._child

    async def _prepare_file(self) -> None:
        if not is_runtime_installed():
            raise MissingExtraError(feature="The local model", extra="local")
        await self._download_if_missing()
        check_is_gguf(self._model.path)

    async def _start(self) -> "LlamaServerClient":
        await self._prepare_file()
        with contextlib.suppress(OSError):
            self._slots.create_folder()
        settings = ModelProcessSettings(
            name=self._model.name,
            model=self._model.path.absolute(),
            slots=self._slots.folder.absolute(),
            template=self._model.template,
            context=self._context,
            threads=self._threads,
        )
        child = process.launch(settings, self._environ)
        # This import takes almost as long as the child takes to load its model.
        from cllm.providers.local.client import LlamaServerClient  # noqa: PLC0415

        await child.wait_until_ready()
        return LlamaServerClient(
            child,
            name=self.name,
            identity=self._model.identity(),
            http=self._make_http(),
            defaults=self._model.parameters,
        )

    async def _download_if_missing(self) -> None:
        known = self._model.known
        if known is None or self._model.is_complete:
            return
        from cllm.providers.local import fetch  # noqa: PLC0415 - rarely needed

        fetcher = fetch.Fetcher(paths=self._paths, environ=self._environ, report=self._report)
        await run_in_thread(lambda: fetch.fetch_known_model(known, fetcher), stop=fetcher.stop)

    async def _restore(self, cache_key: str | None) -> "LlamaServerClient":
        """Return the child, with the conversation's slot file loaded if one exists."""
        child = await self._connect()
        if cache_key is None or child.slot_key == cache_key:
            return child
        saved = await asyncio.to_thread(self._slots.find, cache_key, child.identity)
        if saved is None or await child.run_slot_action("restore", saved.name):
            return child
        self._slots.delete(saved)
        return await self._connect()

    async def _save(self, child: "LlamaServerClient", cache_key: str | None) -> None:
        child.slot_key = cache_key
        if cache_key is None:
            return
        name = self._slots.new_name()
        if await child.run_slot_action("save", name):
            await asyncio.to_thread(self._slots.commit, name, cache_key, child.identity)
        else:
            self._slots.delete(self._slots.folder / name)


def _make_pool() -> "HttpTransport":
    from cllm.providers.http.aiohttp_transport import AiohttpTransport  # noqa: PLC0415

    return AiohttpTransport()


def limit_reply(prompt: Prompt) -> Prompt:
    """Unless the caller did."""
    if "max_completion_tokens" in prompt.parameters:
        return prompt
    parameters = {"max_tokens": MAX_REPLY_TOKENS, **prompt.parameters}
    return msgspec.structs.replace(prompt, parameters=parameters)


def vary_reply(prompt: Prompt) -> Prompt:
    """Set a temperature for a variant, unless the caller did: the default repeats the reply."""
    if not prompt.is_variant:
        return prompt
    parameters = {"temperature": VARIANT_TEMPERATURE, **prompt.parameters}
    return msgspec.structs.replace(prompt, parameters=parameters)


def _count_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


async def run_in_thread(work: Callable[[], T], *, stop: threading.Event) -> T:
    """A daemon thread does not delay the exit."""
    result: Future[T] = Future()
    result.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the task raises it
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return await asyncio.wrap_future(result)
    except asyncio.CancelledError:
        stop.set()
        raise

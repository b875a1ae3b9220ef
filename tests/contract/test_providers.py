"""Every provider passes the same tests, against the fake service, a script, or the real model."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fake_provider import WAIT, FakeProvider
from tests.scripted_provider import ScriptedProvider, ScriptEntry, text_reply_events

from cllm.core.errors import BrokenStreamError, UpstreamError
from cllm.core.ports import Provider
from cllm.core.reply import TextDelta
from cllm.providers.anthropic import AnthropicProvider
from cllm.providers.bedrock import AwsAccount, BedrockProvider
from cllm.providers.http.aiohttp_transport import AiohttpTransport
from cllm.providers.http.stdlib_transport import StdlibTransport
from cllm.providers.local.models import DEFAULT_MODEL, KNOWN_MODELS, CachePaths, ModelFile
from cllm.providers.local.provider import LocalProvider
from cllm.providers.openai import OpenAIProvider
from cllm.testing.provider_contract import ProviderContract, ProviderHarness, ScriptedContract

Transport = type[AiohttpTransport] | type[StdlibTransport]


@pytest.fixture
def server() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        # A server that is stopped before its loop runs for good would be waited for in vain.
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), provider._loop).result(WAIT)
        yield provider


@pytest.fixture(params=[AiohttpTransport, StdlibTransport])
def transport(request: pytest.FixtureRequest) -> Transport:
    kind: Transport = request.param
    return kind


class HttpHarness:
    """The fake service; subclasses open the provider."""

    model = "gpt-test"

    def __init__(self, server: FakeProvider, transport: Transport) -> None:
        self.server = server
        self.transport = transport

    async def open(self) -> Provider:
        return OpenAIProvider(
            name="test", base_url=self.server.url, api_key="sk-1", http=self.transport()
        )

    def say(self, *pieces: str) -> None:
        self.server.queue_reply(*pieces)

    def refuse(self) -> None:
        self.server.queue_error(500)

    def break_off(self, *pieces: str) -> None:
        self.server.queue_reply(*pieces, "never said", stop_after=len(pieces))

    async def left(self) -> None:
        await asyncio.to_thread(self.server.requests[-1].wait_disconnected)


class AnthropicHarness(HttpHarness):
    model = "claude-3-7-sonnet-20250219"

    async def open(self) -> Provider:
        return AnthropicProvider(
            name="test", base_url=self.server.root, api_key="sk-1", http=self.transport()
        )


class BedrockHarness(HttpHarness):
    model = "claude-3-7-sonnet-20250219"

    async def open(self) -> Provider:
        account = AwsAccount(endpoint_url=self.server.root, bearer="bedrock-1")
        return BedrockProvider(name="test", account=account, http=self.transport())


class ScriptHarness:
    """Scripts instead of a service."""

    model = "scripted"

    def __init__(self) -> None:
        self._lines: list[ScriptEntry] = []

    async def open(self) -> Provider:
        return ScriptedProvider(self._script())

    def _script(self) -> Iterator[ScriptEntry]:
        while True:
            yield self._lines.pop(0) if self._lines else "Hello to you."

    def say(self, *pieces: str) -> None:
        finished = text_reply_events("".join(pieces))[-1]
        self._lines.append([*(TextDelta(text=piece) for piece in pieces), finished])

    def refuse(self) -> None:
        self._lines.append(UpstreamError("No.", provider="scripted"))

    def break_off(self, *pieces: str) -> None:
        error = BrokenStreamError("It broke off.", provider="scripted")
        self._lines.append([*(TextDelta(text=piece) for piece in pieces), error])

    async def left(self) -> None:
        """A script does not detect a disconnect."""


class LocalHarness:
    """The real model in a real child, with one thread."""

    model = DEFAULT_MODEL

    def __init__(self, path: Path, root: Path) -> None:
        self._path = path
        self._paths = CachePaths(root=root)

    async def open(self) -> Provider:
        model = ModelFile(name=DEFAULT_MODEL, path=self._path, known=KNOWN_MODELS[DEFAULT_MODEL])
        return LocalProvider(model=model, paths=self._paths, environ=dict(os.environ), threads=1)


class TestOpenAIProvider(ScriptedContract):
    @pytest.fixture
    def harness(self, server: FakeProvider, transport: Transport) -> ProviderHarness:
        return HttpHarness(server, transport)


class TestAnthropicProvider(ScriptedContract):
    @pytest.fixture
    def harness(self, server: FakeProvider, transport: Transport) -> ProviderHarness:
        return AnthropicHarness(server, transport)


class TestBedrockProvider(ScriptedContract):
    @pytest.fixture
    def harness(self, server: FakeProvider, transport: Transport) -> ProviderHarness:
        return BedrockHarness(server, transport)


class TestScriptedProvider(ScriptedContract):
    @pytest.fixture
    def harness(self) -> ProviderHarness:
        return ScriptHarness()


class TestLocalProvider(ProviderContract):
    @pytest.fixture
    def harness(self, local_model: Path, tmp_path: Path) -> ProviderHarness:
        return LocalHarness(local_model, tmp_path)

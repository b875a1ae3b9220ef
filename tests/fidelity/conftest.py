"""A client's request: decoded, sent by a real provider class to a fake server, and answered.

Every body that the fake server receives is checked with the types of the provider's SDK.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.fake_provider import FakeProvider, Request, Step
from tests.integration.wire.test_anthropic_sdk import check_history
from tests.integration.wire.test_anthropic_sdk import validate as validate_by_sdk
from tests.integration.wire.test_bedrock_botocore import validate as validate_by_botocore
from tests.integration.wire.test_openai_sdk import accepted, assert_paired

from cllm.core.errors import ProviderError
from cllm.core.notice import Notice
from cllm.core.prompt import Prompt
from cllm.core.reply import Noticed, ReplyEvent
from cllm.providers.anthropic import AnthropicProvider
from cllm.providers.bedrock import AwsAccount, BedrockProvider
from cllm.providers.http.aiohttp_transport import AiohttpTransport
from cllm.providers.http.provider import HttpProvider
from cllm.providers.http.transport import HttpTransport, Timeouts
from cllm.providers.openai import OpenAIProvider
from cllm.providers.registry import BUILTIN_PROVIDERS
from cllm.wire.anthropic import request as anthropic_request
from cllm.wire.openai import request as openai_request

Kind = Literal["openai", "anthropic", "bedrock"]
Client = Literal["openai", "anthropic"]
MODELS: dict[Kind, str] = {
    "openai": "gpt-5.2",
    "anthropic": "claude-sonnet-4-5",
    "bedrock": "claude-3-7-sonnet-20250219",
}
SAMPLING = ("temperature", "top_p", "top_k")
"""Fields that the API accepts for some models, and the newest SDK types do not have."""
BEDROCK_ID = "us.anthropic.claude-3-7-sonnet-20250219-v1:0"


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """The request to the provider, and the events of the answer."""

    sent: Any
    request: Request
    events: list[ReplyEvent]
    notices: list[Notice]

    def has_notice(self, *words: str) -> bool:
        """Whether a notice's code, path or text has all these words."""
        return any(
            all(word in f"{n.code} {n.path} {n.message}".lower() for word in words)
            for n in self.notices
        )


Ask = Callable[..., Awaitable[Exchange]]
Make = Callable[..., HttpProvider]
BreakOff = Callable[..., Awaitable[tuple[list[ReplyEvent], ProviderError]]]


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials of the tests, without those of the user who runs them."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        yield provider


def make_provider(
    kind: Kind, root: str, http: HttpTransport, timeouts: Timeouts | None = None
) -> HttpProvider:
    """A provider of that protocol at that address."""
    if kind == "bedrock":
        account = AwsAccount(region="us-east-1", endpoint_url=root, bearer="bearer-of-tests")
        return BedrockProvider(name="test", account=account, http=http, timeouts=timeouts)
    options: dict[str, Any] = {
        "name": "test",
        "base_url": f"{root}/v1",
        "api_key": "key-of-tests",
        "http": http,
        "timeouts": timeouts,
    }
    if kind == "anthropic":
        return AnthropicProvider(**options)
    return OpenAIProvider(**options, reasoning=BUILTIN_PROVIDERS["openai"].reasoning)


@pytest.fixture
async def make(server: FakeProvider) -> AsyncIterator[Make]:
    """Creates providers for the fake server, and closes them."""
    providers: list[HttpProvider] = []

    def make(
        kind: Kind,
        transport: Callable[[], HttpTransport] = AiohttpTransport,
        *,
        root: str | None = None,
        timeouts: Timeouts | None = None,
    ) -> HttpProvider:
        providers.append(make_provider(kind, root or server.root, transport(), timeouts))
        return providers[-1]

    yield make
    for provider in providers:
        await provider.close()


def prompt_of(body: dict[str, Any], client: Client, model: str, *, stream: bool) -> Prompt:
    """The prompt of a client's request, with a default model and messages."""
    defaults = {
        "model": model,
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": stream,
    }
    if client == "anthropic":
        defaults["max_tokens"] = 4096
        return anthropic_request.decode_request(json.dumps(defaults | body).encode())
    return openai_request.decode_request(json.dumps(defaults | body).encode())


@pytest.fixture
def prompt() -> Callable[[Kind], Prompt]:
    """A plain question for a provider."""
    return lambda kind: prompt_of({}, "openai", MODELS[kind], stream=True)


@pytest.fixture
def ask(server: FakeProvider, make: Make) -> Ask:
    """Asks a provider what a client asks: `ask("bedrock", {"messages": …}, client="anthropic")`."""

    async def ask(
        kind: Kind,
        body: dict[str, Any] | None = None,
        *,
        client: Client = "openai",
        model: str | None = None,
        answer: tuple[Step, ...] | None = None,
        stream: bool = True,
    ) -> Exchange:
        if answer is not None:
            server.queue_steps(*answer)
        prompt = prompt_of(body or {}, client, model or MODELS[kind], stream=stream)
        events = [event async for event in make(kind).ask(prompt)]
        request = server.requests[-1]
        _judge(kind, request, model)
        replies: list[ReplyEvent] = [e for e in events if not isinstance(e, Noticed)]
        notices = [event.notice for event in events if isinstance(event, Noticed)]
        return Exchange(sent=request.json, request=request, events=replies, notices=notices)

    return ask


@pytest.fixture
def break_off(make: Make) -> BreakOff:
    """Asks what will not be answered: what was said before the error, and the error."""

    async def break_off(
        kind: Kind, body: dict[str, Any] | None = None, *, client: Client = "openai", **how: Any
    ) -> tuple[list[ReplyEvent], ProviderError]:
        stream = how.pop("stream", True)
        prompt = prompt_of(body or {}, client, MODELS[kind], stream=stream)
        events: list[ReplyEvent] = []
        try:
            async for event in make(kind, **how).ask(prompt):
                events.append(event)  # noqa: PERF401 - what came before the error counts
        except ProviderError as error:
            return events, error
        pytest.fail(f"an answer where there should be none: {events}")

    return break_off


def _judge(kind: Kind, request: Request, model: str | None) -> None:
    """The types of the provider's own SDK find nothing to refuse in what it was sent."""
    if kind == "bedrock":
        validate_by_botocore(request.body, model or BEDROCK_ID)
    elif kind == "anthropic":
        typed = {name: request.json[name] for name in request.json if name not in SAMPLING}
        assert validate_by_sdk(typed) == typed
        check_history(request.json["messages"])
    else:
        accepted(request.body)
        assert_paired(request.json["messages"])

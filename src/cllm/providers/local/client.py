"""Requests to a running child process; removes from a prompt what its model cannot read."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

import msgspec

from cllm.core.errors import (
    BrokenStreamError,
    InvalidRequestError,
    ProviderError,
    StrictError,
    UnreachableError,
    UnsendableError,
)
from cllm.core.notice import Notice
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent
from cllm.providers.http.transport import HttpTransport, Timeouts
from cllm.providers.local.process import ModelProcess
from cllm.providers.openai import OpenAIProvider
from cllm.wire.convert import build_outgoing_message
from cllm.wire.errors import NotExpressibleError
from cllm.wire.media import TEXT_ONLY, fit_media
from cllm.wire.reasoning import TAKES_REASONING_CONTENT

SLOT_SECONDS = 60
PROMPT_SECONDS = 3600
# The server closes a connection after a stream; the pool would reuse it for the next request.
ONE_REQUEST = {"Connection": "close"}
TOOL_FIELDS = frozenset(
    ("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "toolConfig")
)
LOCAL_MEDIA = msgspec.structs.replace(TEXT_ONLY, provider="The local model")
TOOLS_LEFT_OUT = Notice(
    code="tools_left_out",
    path="tools",
    message="The local model is too small to use tools; they are not sent.",
)


def adapt_prompt(
    prompt: Prompt, *, provider: str, sees_tools: bool
) -> tuple[Prompt, tuple[Notice, ...]]:
    """Remove tools that the template cannot show; UnsendableError for anything but text."""
    messages = [
        build_outgoing_message(message, "openai", prompt_index=index)
        for index, message in enumerate(prompt.messages)
    ]
    try:
        fit_media(messages, LOCAL_MEDIA)
    except NotExpressibleError as error:
        raise UnsendableError(str(error.__cause__), provider=provider) from error
    parameters = prompt.parameters
    if sees_tools or TOOL_FIELDS.isdisjoint(parameters):
        return prompt, ()
    config = parameters.get("toolConfig")
    bedrock_tools = config.get("tools") if isinstance(config, dict) else None
    has_tools = bedrock_tools or parameters.get("tools") or parameters.get("functions")
    notices = (TOOLS_LEFT_OUT,) if has_tools else ()
    if prompt.strict and notices:
        raise StrictError(provider=provider, notices=notices)
    rest = {name: value for name, value in parameters.items() if name not in TOOL_FIELDS}
    return msgspec.structs.replace(prompt, parameters=rest), notices


class LlamaServerClient:
    """A running child; `slot_key`: the cache key of the conversation in its slot."""

    def __init__(
        self,
        child: ModelProcess,
        *,
        name: str,
        identity: str,
        http: HttpTransport,
        defaults: Mapping[str, Any],
    ) -> None:
        self.process = child
        self.identity = identity
        self.slot_key: str | None = None
        self._http = http
        self._provider = OpenAIProvider(
            name=name,
            base_url=f"{child.address}/v1",
            api_key=child.key,
            http=self._http,
            headers=ONE_REQUEST,
            defaults=defaults,
            reasoning=TAKES_REASONING_CONTENT,
            media=LOCAL_MEDIA,
            timeouts=Timeouts(first_byte=PROMPT_SECONDS, idle=PROMPT_SECONDS),
        )

    async def ask(self, prompt: Prompt) -> AsyncGenerator[ReplyEvent]:
        self.slot_key = None
        try:
            async with aclosing(self._provider.ask(prompt)) as events:
                async for event in events:
                    yield event
        except (BrokenStreamError, UnreachableError) as error:
            if not await self.process.has_ended():
                raise
            raise BrokenStreamError(
                "The local model's process ended before its reply was complete, perhaps out of "
                "memory; try again.",
                provider=self._provider.name,
            ) from error

    async def count(self, prompt: Prompt) -> int:
        templated = await self._call("apply-template", self._provider.encode_body(prompt))
        text = {"content": templated["prompt"], "add_special": True, "parse_special": True}
        tokenized = await self._call("tokenize", msgspec.json.encode(text))
        return len(tokenized["tokens"])

    async def _call(self, path: str, body: bytes) -> Any:
        status, answer = await self._post(path, body)
        if status != HTTPStatus.OK:
            raise InvalidRequestError(
                f"The local model cannot read this prompt (HTTP {status}); use another model.",
                provider=self._provider.name,
                status=status,
            )
        return msgspec.json.decode(answer)

    async def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        response = await self._http.post(
            f"{self.process.address}/{path}",
            headers={
                "Authorization": f"Bearer {self.process.key}",
                "Content-Type": "application/json",
                **ONE_REQUEST,
            },
            body=body,
            provider=self._provider.name,
            timeouts=Timeouts(first_byte=SLOT_SECONDS),
        )
        return response.status, await response.read()

    async def run_slot_action(self, action: str, file_name: str) -> bool:
        """`save` or `restore`; False on failure."""
        body = msgspec.json.encode({"filename": file_name})
        try:
            status, _ = await self._post(f"slots/0?action={action}", body)
        except ProviderError:
            # The action can kill the child: detect that now, not at the next request.
            await self.process.has_ended()
            return False
        return status == HTTPStatus.OK

    async def close(self) -> None:
        await self._http.close()
        await asyncio.to_thread(self.process.stop)

"""The ways to ask a running child: for a reply, and to save or restore its slot."""

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
    UnreachableError,
)
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent
from cllm.providers.http import Http, Timeouts
from cllm.providers.local.process import Child
from cllm.providers.openai import OpenAIProvider
from cllm.wire.reasoning import TAKES_REASONING_CONTENT

SLOT_SECONDS = 60
READING_SECONDS = 3600

# The server ends a connection after a stream while the pool still holds it for the next request.
ONE_REQUEST = {"Connection": "close"}


class Connection:
    """A running child and the ways to ask it something."""

    def __init__(
        self, child: Child, *, name: str, identity: str, http: Http, defaults: Mapping[str, Any]
    ) -> None:
        self.process = child
        self.identity = identity
        self.holds: str | None = None
        self._http = http
        self._slot_timeouts = Timeouts(first_byte=SLOT_SECONDS)
        self._provider = OpenAIProvider(
            name=name,
            base_url=f"{child.address}/v1",
            api_key=child.key,
            http=self._http,
            headers=ONE_REQUEST,
            defaults=defaults,
            reads_text_only=True,
            reasoning=TAKES_REASONING_CONTENT,
            timeouts=Timeouts(first_byte=READING_SECONDS, idle=READING_SECONDS),
        )

    async def ask(self, prompt: Prompt) -> AsyncGenerator[ReplyEvent]:
        self.holds = None
        try:
            async with aclosing(self._provider.ask(prompt)) as events:
                async for event in events:
                    yield event
        except (BrokenStreamError, UnreachableError) as error:
            if not await self.process.has_ended():
                raise
            raise BrokenStreamError(
                "The local model's process ended before its answer did, perhaps for want of "
                "memory; ask again.",
                provider=self._provider.name,
            ) from error

    async def count(self, prompt: Prompt) -> int:
        """How many tokens the prompt is, as the model would read it."""
        said = await self._posted("apply-template", self._provider.body_of(prompt))
        asked = {"content": said["prompt"], "add_special": True, "parse_special": True}
        found = await self._posted("tokenize", msgspec.json.encode(asked))
        return len(found["tokens"])

    async def _posted(self, path: str, body: bytes) -> Any:
        answer = await self._http.post(
            f"{self.process.address}/{path}",
            headers=self._headers,
            body=body,
            provider=self._provider.name,
            timeouts=self._slot_timeouts,
        )
        told = await answer.read()
        if answer.status != HTTPStatus.OK:
            raise InvalidRequestError(
                f"The local model cannot read this ({answer.status}); ask another model.",
                provider=self._provider.name,
                status=answer.status,
            )
        return msgspec.json.decode(told)

    @property
    def _headers(self) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.process.key}",
            "Content-Type": "application/json",
            **ONE_REQUEST,
        }

    async def slot(self, action: str, file_name: str) -> bool:
        """Save or restore the slot; whether that went well."""
        try:
            answer = await self._http.post(
                f"{self.process.address}/slots/0?action={action}",
                headers=self._headers,
                body=msgspec.json.encode({"filename": file_name}),
                provider=self._provider.name,
                timeouts=self._slot_timeouts,
            )
            await answer.read()
        except ProviderError:
            # A child that died of it is noticed now, and not by the next request.
            await self.process.has_ended()
            return False
        return answer.status == HTTPStatus.OK

    async def close(self) -> None:
        await self._http.close()
        await asyncio.to_thread(self.process.end)

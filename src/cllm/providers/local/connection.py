"""The ways to ask a running child: for a reply, and to save or restore its slot."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http import HTTPStatus

import msgspec

from cllm.core.errors import BrokenStreamError, ProviderError, UnreachableError
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent
from cllm.providers.http import Http, Timeouts
from cllm.providers.local.process import Child
from cllm.providers.openai import OpenAIProvider

SLOT_SECONDS = 60
READING_SECONDS = 3600

# The server ends a connection after a stream while the pool still holds it for the next request.
ONE_REQUEST = {"Connection": "close"}


class Connection:
    """A running child and the ways to ask it something."""

    def __init__(self, child: Child, *, name: str, identity: str, http: Http) -> None:
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

    async def slot(self, action: str, file_name: str) -> bool:
        """Save or restore the slot; whether that went well."""
        try:
            answer = await self._http.post(
                f"{self.process.address}/slots/0?action={action}",
                headers={
                    "Authorization": f"Bearer {self.process.key}",
                    "Content-Type": "application/json",
                    **ONE_REQUEST,
                },
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

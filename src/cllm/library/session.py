"""Answers, complete or streamed, and the session of the process that produces them."""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from cllm.app import App
from cllm.core.message import Message
from cllm.core.notice import Notice
from cllm.core.ports import Store
from cllm.core.reply import Noticed, StopReason, TextDelta, Usage
from cllm.engine.request import (
    TurnEnded,
    TurnInput,
    TurnRequest,
    TurnStarted,
    TurnStorage,
    TurnTarget,
)
from cllm.history.context import ContextCommand
from cllm.history.system_prompt import GivenPrompt
from cllm.library.loop import CALLER, CallerId, OncePerProcess, background, close_generator
from cllm.settings.load import CommandLine, Environment, load_settings


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A reply; `cost` is in US dollars, None if unknown."""

    text: str
    message: Message
    stop_reason: StopReason
    model: str
    usage: Usage | None = None
    cost: float | None = None
    conversation: str | None = None
    notices: tuple[Notice, ...] = ()

    @classmethod
    def of(cls, ended: TurnEnded, *, conversation: str | None, notices: tuple[Notice, ...]) -> Self:
        return cls(
            text=ended.reply.message.text,
            message=ended.reply.message,
            stop_reason=ended.reply.stop_reason,
            model=ended.model,
            usage=ended.reply.usage if ended.turn is None else ended.turn.usage,
            cost=ended.cost,
            conversation=conversation,
            notices=notices,
        )

    def __str__(self) -> str:
        return self.text


# The text of a reply as it arrives, then the reply.
Pieces = AsyncGenerator[str | Answer, None]


async def read_answer(pieces: Pieces) -> Answer:
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, Answer):
                return piece
    raise AssertionError("a turn ends with an answer or an error")


class TextStream:
    """Yields the text of an answer, then sets `answer`. `close` saves the text so far."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = background().iterate(pieces)
        self.answer: Answer | None = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        for piece in self._pieces:
            if isinstance(piece, str):
                return piece
            self.answer = piece
        raise StopIteration

    def close(self) -> None:
        self._pieces.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AsyncTextStream:
    """`TextStream` for asynchronous code: `async for`, `aclose`, `async with`."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = background().iterate_async(pieces)
        self.answer: Answer | None = None

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        async for piece in self._pieces:
            if isinstance(piece, str):
                return piece
            self.answer = piece
        raise StopAsyncIteration

    async def aclose(self) -> None:
        await self._pieces.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class Session:
    def __init__(self) -> None:
        environment = Environment(
            home=Path.home(), directory=Path.cwd(), environment=dict(os.environ)
        )
        self.app = App(load_settings(environment, CommandLine()))
        self._has_reported_choice = False
        self._streams: dict[tuple[int, str], tuple[CallerId, Pieces]] = {}
        background().on_stop(self.app.close)

    def build_request(
        self,
        messages: tuple[Message, ...],
        *,
        model: str | None,
        system: GivenPrompt,
        context: tuple[ContextCommand, ...] = (),
        parameters: dict[str, Any],
        stream: bool,
        storage: TurnStorage,
    ) -> TurnRequest:
        settings = self.app.settings
        named = None if model is None else settings.expand_alias(model)
        return TurnRequest(
            input=TurnInput(messages=messages, system=system, context=context),
            target=TurnTarget(
                model=named or self.app.model,
                switches_model=named is not None,
                fallbacks=settings.fallbacks,
                parameters={**settings.parameters, **parameters},
                stream=stream,
                strict=settings.strict,
            ),
            storage=storage,
        )

    def pieces(self, request: TurnRequest, *, store: Store | None = None) -> Pieces:
        store = self.app.store if store is None else store
        pieces = self._run_turn(request, store)
        ref = request.storage.ref
        return pieces if ref is None else self._track(pieces, store, ref)

    async def _track(self, pieces: Pieces, store: Store, ref: str) -> Pieces:
        """Record the reader of these pieces until they end."""
        await self.close_open_stream(store, ref)
        key = (id(store), ref)
        entry = (CALLER.get(), pieces)
        self._streams[key] = entry
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece
        finally:
            if self._streams.get(key) is entry:
                del self._streams[key]

    async def _run_turn(self, request: TurnRequest, store: Store) -> Pieces:
        notices: list[Notice] = []
        conversation: str | None = None
        async with aclosing(self.app.engine(store).run_turn(request)) as events:
            async for event in events:
                match event:
                    case TextDelta():
                        yield event.text
                    case TurnStarted():
                        conversation = event.conversation
                        notices += (*self._report_choice(event.model), *event.prompt.notices)
                    case Noticed():
                        notices.append(event.notice)
                    case TurnEnded():
                        yield Answer.of(event, conversation=conversation, notices=tuple(notices))
                        return
                    case _:
                        pass

    def _report_choice(self, model: str) -> Iterator[Notice]:
        """Yield a notice for the first turn with a model that cllm chose."""
        app = self.app
        if self._has_reported_choice or app.settings.model is not None or model != app.model:
            return
        self._has_reported_choice = True
        advice = "pass model=, set CLLM_MODEL, or run: cllm models default NAME"
        message = f"{app.model_choice.summary} To change this, {advice}."
        yield Notice(code="model_chosen", path="model", message=message)

    async def close_open_stream(self, store: Store, ref: str) -> None:
        """Close a stream of this conversation that the caller left open, and would wait for."""
        reader, pieces = self._streams.get((id(store), ref), (None, None))
        if pieces is not None and reader == CALLER.get():
            await close_generator(pieces)


# The background loop closes the app, so there is nothing to close here.
session = OncePerProcess(Session, lambda _: None)

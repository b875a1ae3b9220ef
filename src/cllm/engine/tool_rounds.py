"""Tool rounds: cllm runs the tools that the model calls, and calls the model again."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Protocol

import msgspec

from cllm.core.message import Message, ToolCall
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent, ReplyFinished
from cllm.wire.convert import parts_of

CallPrompt = Callable[[Prompt], AsyncGenerator[ReplyEvent, None]]
LIMIT_REACHED = "Not run: the limit of calls in this turn is reached. Answer with what is known."


class ToolBox(Protocol):
    """Tools that cllm runs for the model; `definitions` are in OpenAI's format."""

    definitions: list[dict[str, Any]]
    max_calls: int

    async def use(self, call: ToolCall) -> str:
        """Run a tool; a refusal and a failure are results too."""
        ...


class ToolRoundEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The model called tools, and is called again with their results."""

    reply: ReplyFinished
    results: tuple[Message, ...]

    @property
    def messages(self) -> tuple[Message, ...]:
        return (self.reply.message, *self.results)


async def call_with_tools(
    call_model: CallPrompt, prompt: Prompt, tools: ToolBox
) -> AsyncGenerator[ReplyEvent | ToolRoundEnded, None]:
    """Yield the events of all rounds."""
    uses = 0
    while True:
        calls: list[ToolCall] = []
        offers_tools = uses < tools.max_calls
        async with aclosing(
            call_model(add_tools(prompt, tools) if offers_tools else prompt)
        ) as events:
            async for event in events:
                if offers_tools and isinstance(event, ReplyFinished):
                    reply = event
                    parts = parts_of(event.message)
                    calls = [part for part in parts if isinstance(part, ToolCall)]
                    if calls:
                        continue
                yield event
        if not calls:
            return
        results = [await _run_tool(call, tools, uses + n) for n, call in enumerate(calls)]
        uses += len(calls)
        ended = ToolRoundEnded(reply=reply, results=tuple(results))
        yield ended
        prompt = prompt.going_on(ended.messages)


def add_tools(prompt: Prompt, tools: ToolBox) -> Prompt:
    own = prompt.parameters.get("tools")
    definitions = [*(own if isinstance(own, list) else []), *tools.definitions]
    return msgspec.structs.replace(prompt, parameters={**prompt.parameters, "tools": definitions})


async def _run_tool(call: ToolCall, tools: ToolBox, number: int) -> Message:
    text = LIMIT_REACHED if number >= tools.max_calls else await tools.use(call)
    fields = {"role": "tool", "tool_call_id": call.id, "content": text}
    return Message(role="tool", raw=msgspec.json.encode(fields))

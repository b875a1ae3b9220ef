"""Scenarios of pydantic-ai in its default settings: `pydantic_ai_sdk.py SCENARIO MODEL`.

Prints what it returns as JSON.
"""

import asyncio
import json
import sys
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelHTTPError, ThinkingPart

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6364"
    "60f85f0f0002870180eb47ba920000000049454e44ae426082"
)
PDF = b"%PDF-1.4\n%%EOF\n"


class Capital(BaseModel):
    city: str
    inhabitants: int


def weather(city: str) -> str:
    """The weather in a city."""
    return f"Rain in {city}."


def make_agent(model: str, **fields: Any) -> Agent:
    return Agent(f"openai:{model}", instructions="Be brief.", **fields)


async def text(model: str) -> Any:
    return (await make_agent(model).run("Hello.")).output


async def stream(model: str) -> Any:
    async with make_agent(model).run_stream("Hello.") as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
        return {"pieces": pieces, "output": await result.get_output()}


async def tools(model: str) -> Any:
    agent = make_agent(model, tools=[weather])
    first = await agent.run("How is the weather?")
    second = await agent.run("Thanks.", message_history=first.all_messages())
    return [first.output, second.output]


async def streamed_tools(model: str) -> Any:
    """`run_stream` would take the text before the calls as the output."""

    async def read(_context: Any, events: Any) -> None:
        async for _ in events:
            pass

    agent = make_agent(model, tools=[weather])
    first = await agent.run("How is the weather?", event_stream_handler=read)
    messages = first.all_messages()
    second = await agent.run("Thanks.", message_history=messages, event_stream_handler=read)
    return [first.output, second.output]


async def structured(model: str) -> Any:
    result = await make_agent(model, output_type=Capital).run("The capital of France?")
    return result.output.model_dump()


async def previous_response(model: str) -> Any:
    settings = {"openai_previous_response_id": "auto"}
    agent = make_agent(model, tools=[weather], model_settings=settings)
    first = await agent.run("How is the weather?")
    second = await agent.run("Thanks.", message_history=first.all_messages())
    return [first.output, second.output]


async def reasoning(model: str) -> Any:
    settings = {"openai_reasoning_effort": "low", "openai_reasoning_summary": "auto"}
    agent = make_agent(model, tools=[weather], model_settings=settings)
    result = await agent.run("How is the weather?")
    thoughts = [
        part.content
        for message in result.all_messages()
        for part in message.parts
        if isinstance(part, ThinkingPart)
    ]
    return [thoughts, result.output]


async def media(model: str) -> Any:
    image = BinaryContent(data=PIXEL, media_type="image/png")
    file = BinaryContent(data=PDF, media_type="application/pdf", identifier="a")
    return (await make_agent(model).run(["What is this?", image, file])).output


async def error(model: str) -> Any:
    try:
        await make_agent(model).run("Hello.")
    except ModelHTTPError as raised:
        return [type(raised).__name__, raised.status_code, raised.body["code"]]
    return None


async def cancel(model: str) -> Any:
    async with make_agent(model).run_stream("Count.") as result:
        async for _ in result.stream_text(delta=True, debounce_by=None):
            await result.cancel()
            break
    return "cancelled"


if __name__ == "__main__":
    print(json.dumps(asyncio.run(globals()[sys.argv[1]](sys.argv[2]))))  # noqa: T201

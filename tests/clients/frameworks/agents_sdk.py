"""Scenarios of the OpenAI Agents SDK in its default settings: `agents_sdk.py SCENARIO MODEL`.

Prints what the SDK returns as JSON.
"""

import asyncio
import json
import sys
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIConversationsSession,
    Runner,
    SQLiteSession,
    function_tool,
)
from openai import APIStatusError, AsyncOpenAI
from openai.types.shared import Reasoning
from pydantic import BaseModel

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "YPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
PDF = "data:application/pdf;base64,JVBERi0xLjQKJSVFT0YK"


class Capital(BaseModel):
    city: str
    inhabitants: int


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"Rain in {city}."


def make_agent(model: str, **fields: Any) -> Agent:
    return Agent(name="Helper", instructions="Be brief.", model=model, **fields)


async def text(model: str) -> Any:
    return (await Runner.run(make_agent(model), "Hello.")).final_output


async def stream(model: str) -> Any:
    result = Runner.run_streamed(make_agent(model), "Hello.")
    pieces = [
        event.data.delta
        async for event in result.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    return {"pieces": pieces, "output": result.final_output}


async def tools(model: str) -> Any:
    """Two rounds of calls, the first one with two calls; then a turn by `to_input_list`."""
    agent = make_agent(model, tools=[weather])
    first = await Runner.run(agent, "How is the weather?")
    following = [*first.to_input_list(), {"role": "user", "content": "Thanks."}]
    second = await Runner.run(agent, following)
    return [first.final_output, second.final_output]


async def streamed_tools(model: str) -> Any:
    agent = make_agent(model, tools=[weather])
    result = Runner.run_streamed(agent, "How is the weather?")
    names = [event.name async for event in result.stream_events() if hasattr(event, "name")]
    following = [*result.to_input_list(), {"role": "user", "content": "Thanks."}]
    second = Runner.run_streamed(agent, following)
    async for _ in second.stream_events():
        pass
    return [names, result.final_output, second.final_output]


async def structured(model: str) -> Any:
    result = await Runner.run(make_agent(model, output_type=Capital), "The capital of France?")
    return result.final_output.model_dump()


async def previous_response(model: str) -> Any:
    agent = make_agent(model, tools=[weather])
    first = await Runner.run(agent, "How is the weather?")
    second = await Runner.run(agent, "Thanks.", previous_response_id=first.last_response_id)
    return [first.final_output, second.final_output]


async def auto_previous_response(model: str) -> Any:
    agent = make_agent(model, tools=[weather])
    first = await Runner.run(agent, "How is the weather?", auto_previous_response_id=True)
    second = await Runner.run(
        agent,
        "Thanks.",
        previous_response_id=first.last_response_id,
        auto_previous_response_id=True,
    )
    return [first.final_output, second.final_output]


async def conversations_session(model: str) -> Any:
    agent, session = make_agent(model, tools=[weather]), OpenAIConversationsSession()
    first = await Runner.run(agent, "How is the weather?", session=session)
    second = await Runner.run(agent, "Thanks.", session=session)
    items = await session.get_items()
    kinds = [item.get("type") for item in items]
    return [first.final_output, second.final_output, kinds]


async def conversation_id(model: str) -> Any:
    conversation = await AsyncOpenAI().conversations.create()
    agent = make_agent(model, tools=[weather])
    first = await Runner.run(agent, "How is the weather?", conversation_id=conversation.id)
    second = await Runner.run(agent, "Thanks.", conversation_id=conversation.id)
    return [first.final_output, second.final_output]


async def sqlite_session(model: str) -> Any:
    agent, session = make_agent(model, tools=[weather]), SQLiteSession("one")
    first = await Runner.run(agent, "How is the weather?", session=session)
    second = await Runner.run(agent, "Thanks.", session=session)
    return [first.final_output, second.final_output]


async def handoff(model: str) -> Any:
    other = Agent(name="Meteorologist", instructions="Know all.", model=model)
    result = await Runner.run(make_agent(model, handoffs=[other]), "How is the weather?")
    return [result.last_agent.name, result.final_output]


async def reasoning(model: str) -> Any:
    settings = ModelSettings(reasoning=Reasoning(effort="low", summary="auto"))
    agent = make_agent(model, model_settings=settings, tools=[weather])
    result = await Runner.run(agent, "How is the weather?")
    thoughts = [
        summary.text
        for item in result.new_items
        if item.type == "reasoning_item"
        for summary in item.raw_item.summary
    ]
    return [thoughts, result.final_output]


async def media(model: str) -> Any:
    content = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": PIXEL, "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
    ]
    result = await Runner.run(make_agent(model), [{"role": "user", "content": content}])
    return result.final_output


async def error(model: str) -> Any:
    try:
        await Runner.run(make_agent(model), "Hello.")
    except APIStatusError as raised:
        return [type(raised).__name__, raised.status_code, raised.code]
    return None


async def cancel(model: str) -> Any:
    result = Runner.run_streamed(make_agent(model), "Count.")
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            result.cancel()
    return "cancelled"


if __name__ == "__main__":
    print(json.dumps(asyncio.run(globals()[sys.argv[1]](sys.argv[2]))))  # noqa: T201

"""The tool `llm`: the same bytes with and without `cllm serve`."""

import json
from pathlib import Path

import pytest
import yaml
from tests.clients.programs import LLM
from tests.clients.routes import Comparison, Route
from tests.fake_provider import Request, ToolCall

pytestmark = pytest.mark.clients

WEATHER = """
def weather(city: str) -> str:
    "The weather in a city."
    return "Rain in " + city
"""


def is_side(_: Request) -> bool:
    return False


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    return Comparison(folder=tmp_path, is_side=is_side)


def configure(route: Route) -> dict[str, str]:
    """Write the entry of the model; return the environment."""
    model = {
        "model_id": "served",
        "model_name": "gpt-test",
        "api_base": f"{route.address}/v1",
        "supports_tools": True,
    }
    text = yaml.safe_dump([model])
    (route.home / "extra-openai-models.yaml").write_text(text, encoding="utf-8")
    return {"LLM_USER_PATH": str(route.home)}


def test_a_tool_loop_and_a_continued_conversation(comparison: Comparison):
    def scenario(route: Route) -> list[str]:
        environment = configure(route)
        call = ToolCall(id="call_01", name="weather", arguments=json.dumps({"city": "Oslo"}))
        route.provider.queue_reply(tool_calls=(call,), finish="tool_calls")
        route.provider.queue_reply("It rains ", "in Oslo.")
        route.provider.queue_reply("Take ", "an umbrella.")
        first = (LLM, "-m", "served", "--functions", WEATHER, "How is the weather in Oslo?")
        second = (LLM, "-c", "What do I need?")
        return [route.run(*command, env=environment) for command in (first, second)]

    served = comparison.run(scenario, last_reply="Take an umbrella.")

    assert list(served.output) == ["It rains in Oslo.\n", "Take an umbrella.\n"]
    assert len(served.requests) == 3


def test_ctrl_c_ends_the_stream(comparison: Comparison):
    def scenario(route: Route) -> list[str]:
        environment = configure(route)
        route.provider.queue_reply("Good ", "morning.")
        gate = route.provider.queue_held_reply("One ", "two ", "three.", at=2)
        route.provider.queue_reply("Later.")
        first = route.run(LLM, "-m", "served", "Hello", env=environment)
        with route.start(LLM, "-c", "Count to three.", env=environment) as program:
            stream = route.wait_for_stream(gate)
            program.wait_for_output("One two")
            program.interrupt()
            stream.wait_disconnected()
            program.finish()
        return [first, program.out, route.run(LLM, "-c", "And now?", env=environment)]

    served = comparison.run(scenario, last_reply="Later.")

    assert served.output[-1] == "Later.\n"

import pytest

from cllm.core.message import Dialect
from cllm.core.options import ForeignTool


@pytest.mark.parametrize(
    ("dialect", "api"), [("responses", "OpenAI's Responses API"), ("anthropic", "anthropic")]
)
def test_a_tool_names_the_api_that_has_it(dialect: Dialect, api: str) -> None:
    assert ForeignTool(dialect=dialect, name="web_search", raw={}).api == api

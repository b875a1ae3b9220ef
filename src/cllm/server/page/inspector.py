"""The inspector column: what the model saw in one turn."""

from markupsafe import Markup

from cllm.server.page.layout import EMPTY
from cllm.server.state import ApiRequest


async def render_inspector(_request: ApiRequest) -> Markup:
    return EMPTY

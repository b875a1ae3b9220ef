"""The usage view: costs and tokens by day and model."""

from markupsafe import Markup

from cllm.server.page.layout import EMPTY
from cllm.server.state import ApiRequest


async def render_usage(_request: ApiRequest) -> Markup:
    return EMPTY

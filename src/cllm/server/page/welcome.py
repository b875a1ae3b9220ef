"""The main column without a conversation."""

from markupsafe import Markup

from cllm.server.page.layout import render
from cllm.server.state import ApiRequest


async def render_welcome(_request: ApiRequest) -> Markup:
    return render("welcome.html")

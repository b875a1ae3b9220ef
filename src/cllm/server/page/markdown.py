"""Markdown of a message as HTML. Raw HTML in the text is shown as text."""

from functools import cache

from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.responses import Response

from cllm.server.http.limits import read_body
from cllm.server.page.layout import html_response
from cllm.server.state import ApiRequest


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def render_markdown(text: str) -> Markup:
    return Markup(_parser().render(text))  # noqa: S704 - the parser escapes text and raw HTML


async def render_block(request: ApiRequest) -> Response:
    """POST /render: the body is Markdown in UTF-8."""
    body = await read_body(request, request.server.body_quota)
    return html_response(render_markdown(body.decode("utf-8", "replace")))

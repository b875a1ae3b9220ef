"""The list column: search field, filters and rows."""

from markupsafe import Markup

from cllm.server.api.conversation_lists import list_page
from cllm.server.http.parameters import ListQuery
from cllm.server.page.layout import render
from cllm.server.state import ApiRequest


async def render_list(request: ApiRequest) -> Markup:
    return render("list.html", rows=await render_rows(request))


async def render_rows(request: ApiRequest) -> Markup:
    """Return one page of rows, and the link to the next page."""
    page, _ = await list_page(request, ListQuery(limit=100))
    return render("rows.html", items=page.items)

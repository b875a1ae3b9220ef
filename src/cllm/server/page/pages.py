"""The endpoints of the web page. Each returns HTML: the whole page, or with `part` one column.

Without scripts a person can read, search and page; the modules in `static` request parts.
"""

from markupsafe import Markup
from starlette.responses import Response

from cllm.server.page.composer import render_composer
from cllm.server.page.conversation import render_conversation
from cllm.server.page.conversation_list import render_list, render_row, render_rows
from cllm.server.page.inspector import render_inspector
from cllm.server.page.layout import html_response, render, render_page
from cllm.server.page.selection import read_selection
from cllm.server.page.texts import TEXTS
from cllm.server.page.usage import render_usage
from cllm.server.state import ApiRequest


async def show_list(request: ApiRequest) -> Response:
    """GET /."""
    selection = read_selection(request)
    title = selection.q or TEXTS["conversations"]
    match request.query_params.get("part"):
        case "rows":
            return html_response(await render_rows(request, selection))
        case "list":
            return html_response(await render_list(request, selection))
        case "main":
            return html_response(await _render_start(request), title=title)
    return html_response(
        render_page(
            title=title,
            view="list",
            list_column=await render_list(request, selection),
            main=await _render_start(request),
            list_url=selection.url(),
        )
    )


async def _render_start(request: ApiRequest) -> Markup:
    return render("welcome.html") + await render_composer(request)


async def show_search(request: ApiRequest) -> Response:
    """GET /search: the list column has the results."""
    return await show_list(request)


async def show_usage(request: ApiRequest) -> Response:
    """GET /usage."""
    main = await render_usage(request)
    if request.query_params.get("part") == "main":
        return html_response(main, title=TEXTS["usage"])
    return html_response(
        render_page(
            title=TEXTS["usage"], view="usage", list_column=await render_list(request), main=main
        )
    )


async def show_conversation(request: ApiRequest) -> Response:
    """GET /c/{conversation_id}."""
    match request.query_params.get("part"):
        case "row":
            return html_response(await render_row(request, read_selection(request)))
        case "inspector":
            return html_response(await render_inspector(request))
    title, turns = await render_conversation(request)
    main = turns + await render_composer(request)
    if request.query_params.get("part") == "main":
        return html_response(main, title=title)
    return html_response(
        render_page(
            title=title,
            view="conversation",
            list_column=await render_list(request),
            main=main,
            inspector=await render_inspector(request),
        )
    )


async def show_turn(request: ApiRequest) -> Response:
    """GET /c/{conversation_id}/t/{turn_id}: the conversation at one turn."""
    return await show_conversation(request)

"""The HTML document of the page: columns, head, security headers."""

from functools import cache
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from cllm.server.page.texts import TEXTS

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
EMPTY = Markup()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cllm.server.page"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.globals["texts"] = TEXTS
    return environment


def render(template: str, **values: Any) -> Markup:
    """Render a template of the page; text values are escaped."""
    return Markup(_environment().get_template(template).render(**values))  # noqa: S704 - autoescaped


def render_page(
    *,
    title: str,
    view: str,
    list_column: Markup,
    main: Markup,
    inspector: Markup = EMPTY,
) -> Markup:
    """Return the document. `view` is `list`, `conversation` or `usage`; phones show one column."""
    return render(
        "layout.html",
        title=title,
        view=view,
        list_column=list_column,
        main=main,
        inspector=inspector,
    )


def html_response(body: Markup, status: int = 200, *, title: str | None = None) -> Response:
    """Return HTML with the security headers. `title` is that of the document, for a part."""
    headers = HEADERS if title is None else {**HEADERS, "X-Page-Title": quote(title[:200])}
    return HTMLResponse(body, status, headers=headers)

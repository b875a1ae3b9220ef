"""The HTML document of the page: columns, head, security headers."""

from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from cllm.server.page.texts import TEXTS

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "trusted-types cllm; require-trusted-types-for 'script'"
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
BASE_STYLES = "page.css"


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
    environment.globals["stylesheets"] = _list_stylesheets()
    return environment


def _list_stylesheets() -> list[str]:
    """Return the names of the style sheets; the base, which others override, is the first."""
    folder = resources.files("cllm.server.page").joinpath("static")
    names = [entry.name for entry in folder.iterdir() if entry.name.endswith(".css")]
    return sorted(names, key=lambda name: (name != BASE_STYLES, name))


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
    list_url: str = "/",
) -> Markup:
    """Return the document. `view` is `list`, `conversation` or `usage`; phones show one column.

    `list_url` is the URL of which the list column is a part.
    """
    return render(
        "layout.html",
        title=title,
        view=view,
        list_column=list_column,
        main=main,
        inspector=inspector,
        list_url=list_url,
    )


def html_response(body: Markup, *, title: str | None = None) -> Response:
    """Return HTML with the security headers. `title` is that of the document, for a part."""
    headers = HEADERS if title is None else {**HEADERS, "X-Page-Title": quote(title[:200])}
    return HTMLResponse(body, headers=headers)

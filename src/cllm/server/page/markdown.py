"""Markdown of a message as HTML, with few tags and attributes.

Raw HTML in the text is shown as text. Links lead to `http`, `https` and `mailto` addresses only,
and no image is loaded from another host. The time is linear in the size of the text.
"""

import re
from collections.abc import Callable, MutableMapping, Sequence
from functools import cache, partial
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup
from starlette.responses import Response

from cllm.server.api.views import run_in_thread_if_large
from cllm.server.http.limits import read_body
from cllm.server.page.code import render_code, show_controls
from cllm.server.page.layout import html_response
from cllm.server.state import ApiRequest

MAX_MARKDOWN = 50_000
"""The characters of a text that is rendered as Markdown, in 0.2 s, a hostile one in up to 3 s.

Longer text is plain.
"""
MAX_NESTING = 19
"""The parser leaves out what is nested more deeply, so such a text is plain."""

MAX_IMAGE = 1_500_000
"""The characters of the URL of an image."""
LINK = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
DATA_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*", re.IGNORECASE)
LINK_ATTRIBUTES = 'rel="noopener noreferrer nofollow" target="_blank"'
BARE_LINK = re.compile(r"https?://[^\s<>\"'`\\^{|}]+")
TRAILING = ".,:;!?*_~"
HEADING_SHIFT = 2
"""A heading in a message is below the title of the page and the name of the speaker."""
_DIRECTED = "p h1 h2 h3 h4 h5 h6 blockquote ul ol li td th"
DIRECTED = frozenset(_DIRECTED.split())
ALIGNMENTS = {"text-align:center": "center", "text-align:right": "right"}

Options = OptionsDict
Environment = MutableMapping[str, Any]


class MessageMarkdown(MarkdownIt):
    """CommonMark with tables and strikethrough."""

    def validateLink(self, url: str) -> bool:  # noqa: N802 - the name in markdown-it
        return is_link(url) or is_data_image(url)


def is_link(url: str) -> bool:
    return LINK.match(url) is not None


def is_data_image(url: str) -> bool:
    return len(url) <= MAX_IMAGE and DATA_IMAGE.fullmatch(url) is not None


def render_markdown(text: str, *, has_breaks: bool = False) -> Markup:
    """Return HTML; of a long or deeply nested text, plain text.

    `has_breaks`: line breaks in a paragraph are shown, and do not join its lines.
    """
    if len(text) > MAX_MARKDOWN:
        return render_plain(text)
    parser, environment = _parser(has_breaks=has_breaks), dict[str, Any]()
    tokens = parser.parse(text, environment)
    if any(token.level >= MAX_NESTING for token in tokens):
        return render_plain(text)
    html = parser.renderer.render(tokens, parser.options, environment)
    return Markup(html)  # noqa: S704 - the renderer escapes text and raw HTML


def render_plain(text: str) -> Markup:
    html = show_controls(escape(text, quote=False))
    return Markup(f'<div class="plain" dir="auto">{html}</div>')  # noqa: S704 - escaped


async def render_block(request: ApiRequest) -> Response:
    """POST /render: the body is Markdown in UTF-8."""
    body = await read_body(request, request.server.body_quota)
    text = body.decode("utf-8", "replace")
    work = partial(render_markdown, text)
    return html_response(await run_in_thread_if_large(work, size=len(text) * LOAD_FACTOR))


@cache
def _parser(*, has_breaks: bool) -> MessageMarkdown:
    parser = MessageMarkdown("commonmark", {"html": False, "breaks": has_breaks})
    parser.enable(["table", "strikethrough"])
    parser.core.ruler.push("bare_links", _link_addresses)
    parser.core.ruler.push("attributes", _set_attributes)
    for name, rule in RULES.items():
        parser.add_render_rule(name, rule)
    return parser


def _set_attributes(state: StateCore) -> None:
    """Set the direction, replace the style of cells by a class, and lower headings."""
    for token in state.tokens:
        if token.type.startswith("heading"):
            token.tag = f"h{min(int(token.tag[1]) + HEADING_SHIFT, 6)}"
        if token.nesting != 1 or token.tag not in DIRECTED:
            continue
        style = token.attrs.pop("style", None)
        if style in ALIGNMENTS:
            token.attrSet("class", ALIGNMENTS[style])
        token.attrSet("dir", "auto")


def _link_addresses(state: StateCore) -> None:
    """Link `http` addresses in text, outside of links."""
    for token in state.tokens:
        if token.type == "inline" and token.children and "://" in token.content:
            token.children = _link_children(token.children)


def _link_children(children: Sequence[Token]) -> list[Token]:
    linked: list[Token] = []
    depth = 0
    for child in children:
        depth += child.nesting if child.type in {"link_open", "link_close"} else 0
        if child.type == "image" and depth > 0:
            child.type = "image_in_link"
        if child.type == "text" and depth == 0 and "://" in child.content:
            linked.extend(_split_text(child))
        else:
            linked.append(child)
    return linked


def _split_text(token: Token) -> list[Token]:
    pieces: list[Token] = []
    end = 0
    for match in BARE_LINK.finditer(token.content):
        url = _trim(match[0])
        pieces += [
            _text(token.content[end : match.start()]),
            Token("link_open", "a", 1, attrs={"href": url}),
            _text(url),
            Token("link_close", "a", -1),
        ]
        end = match.start() + len(url)
    return [*pieces, _text(token.content[end:])]


def _trim(url: str) -> str:
    """Remove punctuation after an address, and a bracket that it does not open."""
    url = url.rstrip(TRAILING)
    if url.endswith(")") and url.count(")") > url.count("("):
        url = url[:-1].rstrip(TRAILING)
    return url


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _render_fence(_renderer: RendererHTML, tokens: Sequence[Token], index: int, *_: object) -> str:
    token = tokens[index]
    language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
    return render_code(token.content, language)


def _render_inline_code(
    _renderer: RendererHTML, tokens: Sequence[Token], index: int, *_: object
) -> str:
    html = show_controls(escape(tokens[index].content, quote=False))
    return f'<code dir="auto">{html}</code>'


def _render_link(_renderer: RendererHTML, tokens: Sequence[Token], index: int, *_: object) -> str:
    href = str(tokens[index].attrGet("href") or "")
    return f'<a href="{escape(href)}" {LINK_ATTRIBUTES}>' if is_link(href) else "<a>"


def _render_image(
    renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    options: Options,
    environment: Environment,
) -> str:
    """Return an image that the text contains, or a link to another image."""
    token = tokens[index]
    url = str(token.attrGet("src") or "")
    alternative = renderer.renderInlineAsText(token.children or [], options, environment)
    return render_image(url, alternative)


def _render_image_in_link(
    renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    options: Options,
    environment: Environment,
) -> str:
    """Return the text of the image: links cannot be nested."""
    text = renderer.renderInlineAsText(tokens[index].children or [], options, environment)
    return escape(text)


def _start_table(*_: object) -> str:
    return '<div class="table" tabindex="0"><table>\n'


def _end_table(*_: object) -> str:
    return "</table></div>\n"


def render_image(url: str, alternative: str) -> Markup:
    """Return the image of a data URL, a link to another image, or the text."""
    label = escape(alternative)
    if is_data_image(url):
        html = f'<img src="{escape(url)}" alt="{label}" loading="lazy" decoding="async">'
    elif is_link(url):
        html = f'<a href="{escape(url)}" {LINK_ATTRIBUTES} class="image">{label or escape(url)}</a>'
    else:
        html = label
    return Markup(html)  # noqa: S704 - escaped


RULES: dict[str, Callable[..., str]] = {
    "code_block": _render_fence,
    "code_inline": _render_inline_code,
    "fence": _render_fence,
    "image": _render_image,
    "image_in_link": _render_image_in_link,
    "link_open": _render_link,
    "table_close": _end_table,
    "table_open": _start_table,
}
LOAD_FACTOR = 100
"""A character of Markdown takes as long as 100 bytes of JSON."""

"""Texts that try to run a script, load a resource or break a page, and a parser that finds it."""

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import NamedTuple

ALERT = "window.hacked=1"
OUTSIDE = "http://127.0.0.9:9/outside"
"""An address of loopback on which nothing listens: a request to another host."""
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

HOSTILE_TEXTS = (
    f"<script>{ALERT}</script>",
    f"<ScRiPt >{ALERT}</sCrIpT >",
    f"<script src={OUTSIDE}.js></script>",
    f"<img src=x onerror={ALERT}>",
    f"<img src={OUTSIDE}.png>",
    f"<svg onload={ALERT}><circle r=9></svg>",
    f"<svg><script>{ALERT}</script></svg>",
    f'<svg><animate onbegin="{ALERT}" attributeName=x dur=1s>',
    f'<math><mtext><style><img src=x onerror="{ALERT}"></style></mtext></math>',
    f'<math href="javascript:{ALERT}">x</math>',
    f"<body onload={ALERT}>",
    f"<details open ontoggle={ALERT}>x</details>",
    f"<input autofocus onfocus={ALERT}>",
    f"<video><source onerror={ALERT}></video>",
    f"<iframe src='javascript:{ALERT}'></iframe>",
    f'<iframe srcdoc="<script>{ALERT}</script>"></iframe>',
    f"<object data='data:text/html,<script>{ALERT}</script>'></object>",
    f"<embed src={OUTSIDE}>",
    f"<form action={OUTSIDE}><button>send</button></form>",
    f"<meta http-equiv=refresh content='0;url={OUTSIDE}'>",
    f"<base href={OUTSIDE}/>",
    f"<link rel=stylesheet href={OUTSIDE}.css>",
    f"<style>@import '{OUTSIDE}.css'; body {{ display: none }}</style>",
    '<div style="position:fixed;inset:0;background:red">x</div>',
    f"<template><script>{ALERT}</script></template>",
    "{{ 7 * 191 }}{% include 'key.html' %}{# x #}${7*191}",
    f'"><img src=x onerror={ALERT}>',
    f"'\"--></title></textarea></style></script><script>{ALERT}</script>",
    f"<!--><script>{ALERT}</script>-->",
    f"<![CDATA[<script>{ALERT}</script>]]>",
    f"[link](javascript:{ALERT})",
    f"[link](JaVaScRiPt:{ALERT})",
    f"[link](&#106;avascript:{ALERT})",
    f"[link](java&#10;script:{ALERT})",
    f"[link](\x01javascript:{ALERT})",
    f"[link](<javascript:{ALERT}>)",
    f"[link](vbscript:{ALERT})",
    "[link](data:text/html;base64,PHNjcmlwdD53aW5kb3cuaGFja2VkPTE8L3NjcmlwdD4= 'x')",
    f"[link](data:image/png;base64,{PIXEL})",
    f"<javascript:{ALERT}>",
    f"[link]\n\n[link]: javascript:{ALERT}",
    f'[link](http://127.0.0.9/"onmouseover="{ALERT}" "x\'><b onclick={ALERT}>")',
    f"![image]({OUTSIDE}.png)",
    f"![image](javascript:{ALERT})",
    "![image](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+)",
    f'![" onerror="{ALERT}](data:image/png;base64,{PIXEL} "\' onload={ALERT}")',
    f'```"><script>{ALERT}</script>\nfence',
    f"```python\n<script>{ALERT}</script> # unclosed",
    f"~~~~ html onclick={ALERT}\n<a href=javascript:{ALERT}>x</a>",
    "**unclosed [broken](( `code ~~ | a |\n|--\n> # - 1. <",
    "\u202egnp.exe\u2066 \u200fabc\u061c `rm \u202e-rf`",
    "اللغة العربية <b>مع</b> english 中文",
    "\ud7ff\ufffe\x00\x0b\x1b[31m\x7f\u2028\u2029",
    "<x" + " a" * 3_000 + ">",
    ">" * 20_000 + "[" * 5_000 + "*a_" * 2_000,
    "- " * 5_000 + "x",
    f"<script>{ALERT}</script>" + "A" * 1_048_576,
)

_TAGS = (
    "a article aside bdi blockquote br button code dd del details div dl dt em fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 header hr img input label legend li nav ol option output "
    "p pre s section select span strong summary svg table tbody td textarea th thead time tr ul "
    "circle g line path rect text title kbd progress"
)
TAGS = frozenset(_TAGS.split())
"""The tags of the page and of Markdown."""
VOID = frozenset(["br", "hr", "img", "input"])
_ATTRIBUTES = (
    "accept action aria-describedby aria-expanded aria-hidden aria-label aria-labelledby "
    "aria-current aria-pressed aria-live aria-haspopup aria-controls aria-keyshortcuts alt "
    "autocomplete class colspan datetime decoding dir disabled download enctype for height hidden "
    "href id lang loading maxlength method multiple name open placeholder rel role rows scope "
    "selected spellcheck src start tabindex target title type value width x x1 x2 y y1 y2 cx cy r "
    "rx d viewbox preserveaspectratio text-anchor enterkeyhint"
)
ATTRIBUTES = frozenset(_ATTRIBUTES.split())
LINKS = ("http://", "https://", "mailto:", "/", "#", "?")
DOWNLOAD = "data:application/octet-stream;base64,"
IMAGES = tuple(f"data:image/{kind};base64," for kind in ("png", "jpeg", "gif", "webp"))


class Element(NamedTuple):
    tag: str
    attributes: dict[str, str]


class PageParser(HTMLParser):
    """Collects the elements and the text of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.open: list[str] = []
        self.problems: list[str] = []
        self.pieces: list[str] = []
        self.feed(html)
        self.close()

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes no element")

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)

    def handle_comment(self, data: str) -> None:
        self.problems.append(f"a comment: {data[:50]}")

    def handle_decl(self, decl: str) -> None:
        self.problems.append(f"a declaration: {decl[:50]}")

    def unknown_decl(self, data: str) -> None:
        self.problems.append(f"a declaration: {data[:50]}")


def find_problems(html: str) -> list[str]:
    """Return what HTML of the page must not contain."""
    parser = PageParser(html)
    unclosed = [f"<{tag}> is open" for tag in parser.open]
    found = [problem for element in parser.elements for problem in _check_element(element)]
    return [*parser.problems, *unclosed, *found]


def _check_element(element: Element) -> Iterator[str]:
    tag, attributes = element
    if tag not in TAGS:
        yield f"<{tag}>"
    for name, value in attributes.items():
        if name not in ATTRIBUTES and not name.startswith("data-"):
            yield f"{name}={value[:50]!r} of <{tag}>"
        if name == "src" and not value.startswith(IMAGES):
            yield f"src={value[:50]!r}"
        if name in {"href", "action"} and not _is_allowed_link(value, attributes):
            yield f"{name}={value[:50]!r}"
    if attributes.get("target") == "_blank" and "noopener" not in attributes.get("rel", ""):
        yield f"<{tag}> without rel=noopener"


def _is_allowed_link(value: str, attributes: dict[str, str]) -> bool:
    is_download = "download" in attributes and value.startswith(DOWNLOAD)
    return is_download or (value.startswith(LINKS) and not value.startswith("//"))

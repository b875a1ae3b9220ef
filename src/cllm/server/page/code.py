"""A block of code as HTML: highlighted within bounds, with its language and a copy button."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from html import escape
from io import StringIO
from time import thread_time

from markupsafe import Markup
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Text, _TokenType

from cllm.server.page.texts import TEXTS

MAX_HIGHLIGHTED = 10_000
"""The characters of a highlighted block."""
MAX_SECONDS = 0.1
"""The CPU time of one block: the patterns of some lexers take quadratic time."""
MAX_LINE = 500
"""The characters of a line of a highlighted block."""
MAX_LABEL = 30
_LANGUAGES = (
    "bash c cpp csharp css diff docker go html ini java javascript json kotlin lua make php "
    "powershell python r ruby rust scala sql swift toml typescript xml yaml"
)
LANGUAGES = frozenset(_LANGUAGES.split())
ALIASES = {
    "c#": "csharp",
    "c++": "cpp",
    "cs": "csharp",
    "dockerfile": "docker",
    "golang": "go",
    "js": "javascript",
    "jsx": "javascript",
    "makefile": "make",
    "patch": "diff",
    "ps1": "powershell",
    "py": "python",
    "python3": "python",
    "rb": "ruby",
    "rs": "rust",
    "sh": "bash",
    "shell": "bash",
    "ts": "typescript",
    "tsx": "typescript",
    "yml": "yaml",
    "zsh": "bash",
}
BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that change the direction of text: code can hide behind them."""


def render_code(text: str, language: str = "") -> Markup:
    """Return the block. A long or unknown one is not highlighted."""
    label = escape(language[:MAX_LABEL])
    return Markup(  # noqa: S704 - all parts are escaped
        '<figure class="code">'
        f'<figcaption><bdi class="language">{label}</bdi>'
        f'<button type="button" class="copy" data-action="copy-code">{escape(TEXTS["copy_text"])}'
        "</button></figcaption>"
        f'<pre tabindex="0" dir="ltr"><code>{_highlight(text, language)}</code></pre></figure>'
    )


def show_controls(html: str) -> str:
    """Make the characters visible that change the direction of text."""
    return BIDI.sub(_show_control, html)


def _show_control(match: re.Match[str]) -> str:
    return f'<span class="control">U+{ord(match[0]):04X}</span>'


def _highlight(text: str, language: str) -> str:
    lexer = _find_lexer(language) if _is_short(text) else None
    if lexer is None:
        return show_controls(escape(text, quote=False))
    # The formatter writes the text as it is escaped above, in spans with short class names.
    return show_controls(_format(lexer, text))


def _is_short(text: str) -> bool:
    return len(text) <= MAX_HIGHLIGHTED and max(map(len, text.split("\n"))) <= MAX_LINE


def _find_lexer(language: str) -> Lexer | None:
    name = language.lower()
    name = ALIASES.get(name, name)
    return _load_lexer(name) if name in LANGUAGES else None


@cache
def _load_lexer(name: str) -> Lexer:
    return get_lexer_by_name(name, stripnl=False, ensurenl=False)


@cache
def _formatter() -> HtmlFormatter[str]:
    return HtmlFormatter(nowrap=True)


def _format(lexer: Lexer, text: str) -> str:
    out = StringIO()
    _formatter().format(_list_tokens(lexer, text), out)
    return out.getvalue()


def _list_tokens(
    lexer: Lexer, text: str, *, clock: Callable[[], float] = thread_time
) -> Iterator[tuple[_TokenType, str]]:
    """Yield tokens; after MAX_SECONDS the rest of the text as one."""
    end = clock() + MAX_SECONDS
    for position, kind, value in lexer.get_tokens_unprocessed(text):
        if clock() > end:
            yield Text, text[position:]
            return
        yield kind, value

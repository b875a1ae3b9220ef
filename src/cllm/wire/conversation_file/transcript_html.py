"""A transcript as one HTML page that loads nothing and runs nothing. Pure.

All that was said is text on the page, never markup of it.
"""

from collections.abc import Iterator
from html import escape
from typing import assert_never

from cllm.wire.conversation_file.transcript import Aside, Block, Prose, Speech, Transcript, Verbatim

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
body { margin: 2rem auto; max-width: 48rem; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif;
  color: #1a1a1a; background: #fff; }
h2 { font-size: 1rem; margin: 2rem 0 .25rem; border-bottom: 1px solid #ccc; }
p, pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .5rem 0; }
pre { background: #f3f3f3; padding: .75rem; }
blockquote { margin: .5rem 0; padding-left: 1rem; border-left: 3px solid #ccc; color: #555; }
.label { color: #555; font-size: .875rem; }
@media (prefers-color-scheme: dark) { body { color: #e8e8e8; background: #161616; }
  pre { background: #242424; } blockquote, .label { color: #aaa; } }
"""


END = "\n</body>\n</html>\n"
"""What a page ends with."""


def begin_html(transcript: Transcript) -> str:
    """The text of a page up to where more of what was said can follow."""
    title = escape(transcript.title)
    facts = [transcript.id, *([transcript.model] if transcript.model else [])]
    facts.append(f"{transcript.created_at:%Y-%m-%d %H:%M} UTC")
    said = "".join(map(add_html, transcript.speeches))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{title}</h1>\n<p class="label">{escape(" · ".join(facts))}</p>'
        f"{said}"
    )


def add_html(speech: Speech) -> str:
    """What follows for one message more."""
    return "".join(f"\n{line}" for line in _speech(speech))


def _speech(speech: Speech) -> Iterator[str]:
    number = "" if speech.number is None else f" {speech.number}"
    remark = "" if speech.remark is None else f" ({speech.remark})"
    yield f"<h2>{escape(speech.speaker)}{number}{escape(remark)}</h2>"
    yield from map(_block, speech.blocks)


def _block(block: Block) -> str:
    match block:
        case Prose(text):
            return f"<p>{escape(text)}</p>"
        case Aside(label, ""):
            return _label(label)
        case Aside(label, text):
            return f"{_label(label)}\n<blockquote><p>{escape(text)}</p></blockquote>"
        case Verbatim(label, text):
            return f"{_label(label)}\n<pre>{escape(text)}</pre>"
        case other:
            assert_never(other)


def _label(label: str) -> str:
    return f'<p class="label">{escape(label)}</p>'

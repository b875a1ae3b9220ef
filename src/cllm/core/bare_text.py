"""Telling a message that is a role and a text from all others, without decoding it.

Most messages of most conversations are like this, in OpenAI's words and in Anthropic's.
"""

_STARTS = (
    *(b'{"role":"user","content":"', b'{"role":"assistant","content":"'),
    *(b'{"role": "user", "content": "', b'{"role": "assistant", "content": "'),
)
_END = b'"}'
_QUOTES = 8


def is_bare_text(raw: bytes) -> bool:
    """Whether the message is a role and a text and nothing else, as far as its quotes say.

    Those eight that this takes are not in the text: there a quote has a backslash before it. With
    one more field there would be more than eight, also if a backslash ends the text.
    """
    if not raw.startswith(_STARTS) or not raw.endswith(_END):
        return False
    quotes = raw.count(b'"')
    return quotes == _QUOTES or quotes - raw.count(b'\\"') == _QUOTES

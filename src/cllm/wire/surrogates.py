"""Characters that a server cut in two: halves of a surrogate pair, escaped in two events.

Servers that count in UTF-16 cut a stream there, and no JSON reader takes half a character. Only
data that could not be read is looked at here, so that all other costs nothing.
"""

import re

FIRST = rb"\\u[dD][89aAbB][0-9a-fA-F]{2}"
SECOND = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
# Every escape is matched, so that a backslash which is escaped itself begins none. A quotation
# mark before a half opens its text, and one after it closes it.
_escapes = re.compile(
    rb"%b%b|(?P<last>%b)(?=\")|(?<=[^\\]\")(?P<first>%b)|(?P<alone>%b|%b)|\\."
    % (FIRST, SECOND, FIRST, SECOND, FIRST, SECOND)
)
NO_CHARACTER = rb"\ufffd"


class HalfCharacters:
    """Puts the halves of one stream together: the first waits for the event with the second.

    A half that stands alone is shown as no character; one whose other never comes is not shown.
    """

    def __init__(self) -> None:
        self._held = b""

    def mend(self, data: bytes) -> bytes | None:
        """The data with whole characters only; None if there was no half in it."""
        held, self._held = self._held, b""
        found = False

        def whole(match: re.Match[bytes]) -> bytes:
            nonlocal found
            kind = match.lastgroup
            if kind is None:
                return match[0]
            found = True
            if kind == "last":
                self._held = match[0]
                return b""
            return held + match[0] if kind == "first" and held else NO_CHARACTER

        mended = _escapes.sub(whole, data)
        if not found:
            self._held = held
            return None
        return mended

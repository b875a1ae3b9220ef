"""Lines as they come from a file, a pipe or a terminal that can do no more; and what a reader is.

A reader gives one message or command at a time. EOFError is the end, KeyboardInterrupt Ctrl-C.
"""

from typing import BinaryIO, Protocol, TextIO

PROMPT = "You: "
CONTINUED = "\\"


class Reader(Protocol):
    """`blocks` says that reading stops everything else on the event loop."""

    blocks: bool

    async def read(self) -> str: ...


class LineReader:
    """Reads lines; one that ends with a backslash goes on with the next.

    `asks` is where the person is asked for a line, if there is a person.
    """

    blocks = True

    def __init__(self, lines: BinaryIO | None, asks: TextIO | None = None) -> None:
        self._lines = lines
        self._asks = asks

    async def read(self) -> str:
        read: list[str] = []
        while True:
            line = self._line()
            if line is None and not read:
                raise EOFError
            if line is None or not line.endswith(CONTINUED):
                return "\n".join([*read, line or ""]).rstrip("\n")
            read.append(line.removesuffix(CONTINUED))

    def _line(self) -> str | None:
        """The next line; None at the end of the input."""
        if self._asks is not None:
            self._asks.write(PROMPT)
            self._asks.flush()
        data = b"" if self._lines is None else self._lines.readline()
        return data.decode("utf-8", "replace").rstrip("\r\n") if data else None

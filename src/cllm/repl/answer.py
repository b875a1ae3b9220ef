"""An answer as it is shown, and the plain way to show one: its text, as it comes."""

from typing import Protocol, TextIO


class Answer(Protocol):
    """An answer that is being shown."""

    @property
    def failure(self) -> OSError | None:
        """Why no more of it can be shown."""
        ...

    def write(self, text: str) -> None: ...

    def think(self, text: str) -> None:
        """A piece of the thinking, which is not part of the answer."""
        ...

    def refresh(self) -> None:
        """Show what has come, if that has waited."""
        ...

    def settle(self) -> None:
        """Show all of it for good; what comes next begins on a new line."""
        ...

    def end(self) -> None: ...


class PlainAnswer:
    """Prints the text as it comes, and ends it with exactly one line break."""

    def __init__(self, out: TextIO) -> None:
        self.failure: OSError | None = None
        self._out = out
        self._breaks = ""
        self._open = False

    def write(self, text: str) -> None:
        waiting = self._breaks + text
        said = waiting.rstrip("\n")
        self._breaks = waiting[len(said) :]
        if said:
            self._put(said)
            self._open = True

    def think(self, text: str) -> None:
        """Thinking is not printed: what is printed stays, and is taken for the answer."""

    def refresh(self) -> None:
        """There is nothing that waits."""

    def settle(self) -> None:
        if self._open:
            self._put("\n")
        self._open, self._breaks = False, ""

    def end(self) -> None:
        self.settle()

    def _put(self, text: str) -> None:
        if self.failure is not None:
            return
        try:
            self._out.write(text)
            self._out.flush()
        except OSError as error:
            self.failure = error

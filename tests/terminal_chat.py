"""A chat on a terminal, for tests that type into it and read its screen."""

import fcntl
import re
import struct
import termios
import threading

from tests.waits import wait_until

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()=>78][A-Z0-9]?")
CURSOR_REQUEST = "\x1b[6n"
ENTER = b"\r"
ALT_ENTER = b"\x1b\r"
CTRL_C = b"\x03"
CTRL_D = b"\x04"


class TerminalChat:
    """A chat on a terminal that answers cursor position requests like a real one."""

    def __init__(self, running) -> None:
        self.running = running
        self._seen = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._answer_cursor_requests, daemon=True)
        self._thread.start()

    def _answer_cursor_requests(self) -> None:
        answered = 0
        while not self._ended.wait(0.01):
            if self.running.out.count(CURSOR_REQUEST) > answered:
                answered += 1
                self.running.type(b"\x1b[2;1R")

    @property
    def screen(self) -> str:
        """The output since the last input, without escape sequences."""
        return ESCAPE.sub("", self.running.out[self._seen :])

    def wait_for(self, text: str) -> None:
        def is_shown() -> bool:
            has_ended = self.running.process.poll() is not None
            if has_ended:
                self.running.finish()  # reads the rest of the output
            assert not has_ended or text in self.screen, self.screen
            return text in self.screen

        assert wait_until(is_shown), f"{text!r} was not shown: {self.screen!r}"

    def wait_for_prompt(self) -> None:
        self.wait_for("You:")

    def type(self, *keys: bytes) -> None:
        self._seen = len(self.running.out)
        for key in keys:
            self.running.type(key)

    def say(self, text: str, answer: str) -> None:
        """Send a message, and wait for the answer and the next prompt."""
        self.type(text.encode(), ENTER)
        self.wait_for(answer)
        self.wait_for_prompt_after(answer)

    def wait_for_prompt_after(self, text: str) -> None:
        """Wait until the prompt and the status line are drawn below this text."""
        prompt = re.compile(r"You:.* · \d+ turn", re.DOTALL)
        is_drawn = wait_until(lambda: prompt.search(self.screen.rpartition(text)[2]))
        assert is_drawn, f"no prompt: {self.screen!r}"

    def resize(self, columns: int, lines: int) -> None:
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self.running._terminal, termios.TIOCSWINSZ, size)

    def finish(self):
        result = self.running.finish()
        self.close()
        assert "Traceback" not in result.out, result.report()
        return result

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

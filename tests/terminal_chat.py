"""A chat in a terminal of its own, as a test types into it and reads what it shows."""

import fcntl
import re
import struct
import termios
import threading

from tests.waits import wait_until

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()=>78][A-Z0-9]?")
ASKS_FOR_CURSOR = "\x1b[6n"
ENTER = b"\r"
ALT_ENTER = b"\x1b\r"
CTRL_C = b"\x03"
CTRL_D = b"\x04"


class TerminalChat:
    """A chat in a terminal, which answers where its cursor is like a real one."""

    def __init__(self, running) -> None:
        self.running = running
        self._seen = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._answer_questions, daemon=True)
        self._thread.start()

    def _answer_questions(self) -> None:
        answered = 0
        while not self._ended.wait(0.01):
            if self.running.out.count(ASKS_FOR_CURSOR) > answered:
                answered += 1
                self.running.type(b"\x1b[2;1R")

    @property
    def screen(self) -> str:
        """What was printed since the last time something was typed, without its colours."""
        return ESCAPE.sub("", self.running.out[self._seen :])

    def wait_for(self, text: str) -> None:
        def is_shown() -> bool:
            assert self.running.process.poll() is None or text in self.screen, self.screen
            return text in self.screen

        assert wait_until(is_shown), f"{text!r} was not shown: {self.screen!r}"

    def wait_for_prompt(self) -> None:
        self.wait_for("You:")

    def type(self, *keys: bytes) -> None:
        self._seen = len(self.running.out)
        for key in keys:
            self.running.type(key)

    def say(self, text: str, answer: str) -> None:
        """Say something at the prompt, and wait for the answer and the next prompt."""
        self.type(text.encode(), ENTER)
        self.wait_for(answer)
        self.wait_for_prompt_after(answer)

    def wait_for_prompt_after(self, text: str) -> None:
        """Wait until the prompt and the status line are drawn below this text."""
        prompt = re.compile(r"You:.* · \d+ turn", re.DOTALL)
        shown = wait_until(lambda: prompt.search(self.screen.rpartition(text)[2]))
        assert shown, f"no prompt: {self.screen!r}"

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

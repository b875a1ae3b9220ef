"""Where the command runs: home, current directory and environment, read once."""

import os
from pathlib import Path

from cllm.core.errors import UsageError
from cllm.settings.load import Place


def here() -> Place:
    """The place that this process was started in."""
    try:
        directory = Path.cwd()
    except OSError as error:
        raise UsageError("The current directory is gone; change to another one.") from error
    environment = {name: as_text(value) for name, value in os.environ.items()}
    return Place(home=_home(), directory=directory, environment=environment)


def _home() -> Path:
    """The person's own folder, also where HOME is empty."""
    if os.environ.get("HOME"):
        return Path.home()
    import pwd  # noqa: PLC0415 - rarely needed

    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError as error:
        raise UsageError("There is no home folder; set the variable HOME to one.") from error


def as_text(word: str) -> str:
    """A word of the command line or the environment as text, whatever bytes it came in."""
    return os.fsencode(word).decode("utf-8", "replace")

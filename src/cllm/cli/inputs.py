"""What a command gets from the process and its options: place, environment, system prompt."""

import os
from pathlib import Path

from cllm.assembly.system import GivenPrompt
from cllm.core.errors import UsageError
from cllm.files import NotOrdinaryError, TooLargeError, read_ordinary
from cllm.settings.load import Place

MAX_PROMPT = 16 * 1024 * 1024


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


def given_prompt(text: str | None, file: Path | None) -> GivenPrompt | None:
    """The prompt, or None if neither option was used."""
    if text is not None and file is not None:
        raise UsageError("Give either --system or --system-file, not both.")
    if text is not None:
        return GivenPrompt(text=text, source="--system", explicit=True)
    if file is None:
        return None
    try:
        content = read_ordinary(file, limit=MAX_PROMPT).decode()
    except NotOrdinaryError as error:
        raise UsageError(f"Cannot read --system-file {file}: not an ordinary file.") from error
    except TooLargeError as error:
        raise UsageError(f"Cannot read --system-file {file}: over {MAX_PROMPT} bytes.") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"Cannot read --system-file {file}: {reason}.") from error
    return GivenPrompt(text=content.strip("\n"), source="--system-file", explicit=True)

"""The system prompt that a person gives with a command: `--system` or `--system-file`."""

from pathlib import Path

from cllm.assembly.system import GivenPrompt
from cllm.core.errors import UsageError
from cllm.files import NotOrdinaryError, TooLargeError, read_ordinary

MAX_PROMPT = 16 * 1024 * 1024


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

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
    return Place(home=Path.home(), directory=directory, environment=dict(os.environ))

"""`cllm serve`: parses the options and starts `cllm.server`."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from cllm.cli import output
from cllm.cli.inputs import (
    WIDE_HELP,
    cllm_path_option,
    command_line,
    current_environment,
    trust_option,
)
from cllm.core.errors import UsageError
from cllm.core.extras import require_extra

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from cllm.settings.load import Settings

HELP = """Serve OpenAI's chat completions, with memory for those who ask for it.

Any OpenAI client works: point its base URL at http://127.0.0.1:3000/v1. A request with an empty
X-Conversation-ID header begins a conversation; the id in the answer continues it.

\b
Examples:
  cllm serve
  cllm serve --port 8080 --store sqlite:cats.db
  cllm serve --workers 2"""

MAX_PORT = 65_535
MAX_WORKERS = 64
OPTIONS_VARIABLE = "CLLM_SERVE_OPTIONS"
WORKER = "cllm.cli.serve:worker_app"
WEB_SERVER = "uvicorn"


@click.command(name="serve", help=HELP, context_settings=WIDE_HELP)
@click.option("--host", metavar="ADDRESS", help="Where to listen (127.0.0.1).")
@click.option("--port", type=click.IntRange(0, MAX_PORT), help="The port (3000).")
@click.option("--store", metavar="URL", help="Where conversations are kept: sqlite:PATH.")
@click.option("--workers", type=click.IntRange(1, MAX_WORKERS), help="How many processes (1).")
@cllm_path_option
@trust_option
def command(**options: Any) -> None:
    if options["host"] == "":
        raise UsageError("Give --host an address, such as 127.0.0.1.")
    settings = _load_settings(options)
    with require_extra("server", feature="`cllm serve`"):
        from cllm.server.http.uvicorn_server import listen
    os.environ[OPTIONS_VARIABLE] = msgspec.json.encode(options, enc_hook=str).decode()

    def say(address: str) -> None:
        output.note(f"Serving at {address} (stop with Ctrl-C).")

    listen(settings, prepare=partial(_configure_logging, settings), say=say, worker=WORKER)


def worker_app() -> "ASGIApp":
    """The application of a worker process, with the options of the first process."""
    from cllm.server.http.app import build_app
    from cllm.server.state import open_server_state

    output.prepare_streams()
    options = msgspec.json.decode(os.environ[OPTIONS_VARIABLE])
    path = options["cllm_path"]
    options["cllm_path"] = None if path is None else Path(path)
    settings = _load_settings(options)
    _configure_logging(settings)
    return build_app(open_server_state(settings))


def _load_settings(options: dict[str, Any]) -> "Settings":
    from cllm.cli.trust import load_trusted_settings

    names = ("host", "port", "store", "workers")
    server = {name: options[name] for name in names if options[name] is not None}
    return load_trusted_settings(
        current_environment(), command_line(options, {"server": server or None})
    )


def _configure_logging(settings: "Settings") -> None:
    """Log as JSON, at least a line per request."""
    from cllm.logs import configure, include_library

    configure(
        verbosity=max(settings.verbosity, 1),
        as_json=True,
        file=settings.log_file,
        secrets=settings.secrets(),
    )
    include_library(WEB_SERVER)

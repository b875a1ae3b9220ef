"""`cllm serve`: conversations over HTTP. Parses, and hands over to `cllm.server`."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from cllm.cli import printing
from cllm.cli.inputs import here
from cllm.core.errors import UsageError
from cllm.core.extras import needs_extra
from cllm.settings.layers import CommandLine

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

HIGHEST_PORT = 65_535
MOST_WORKERS = 64
OPTIONS_VARIABLE = "CLLM_SERVE_OPTIONS"
WORKER = "cllm.cli.serve:worker_app"
WEB_SERVER = "uvicorn"


@click.command(
    name="serve",
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--host", metavar="ADDRESS", help="Where to listen (127.0.0.1).")
@click.option("--port", type=click.IntRange(0, HIGHEST_PORT), help="The port (3000).")
@click.option("--store", metavar="URL", help="Where conversations are kept: sqlite:PATH.")
@click.option("--workers", type=click.IntRange(1, MOST_WORKERS), help="How many processes (1).")
@click.option(
    "--cllm-path",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="The folder to use in place of .cllm.",
)
@click.option("--trust", is_flag=True, help="Trust the Cllmfiles here, this time.")
def command(**options: Any) -> int:
    """Serve until asked to stop."""
    if options["host"] == "":
        raise UsageError("Give --host an address, such as 127.0.0.1.")
    settings = _settings(_command_line(options))
    listen = _listening()
    os.environ[OPTIONS_VARIABLE] = msgspec.json.encode(options, enc_hook=str).decode()
    listen(settings, prepare=partial(_log_as, settings), say=_say, worker=WORKER)
    return 0


def worker_app() -> "ASGIApp":
    """The application of one process of several, by the options that the first one was given."""
    from cllm.server.http.app import build  # noqa: PLC0415 - loads the web framework
    from cllm.server.serving import open_serving  # noqa: PLC0415

    printing.prepare_streams()
    options = msgspec.json.decode(os.environ[OPTIONS_VARIABLE])
    path = options["cllm_path"]
    options["cllm_path"] = None if path is None else Path(path)
    settings = _settings(_command_line(options))
    _log_as(settings)
    return build(open_serving(settings))


def _command_line(options: dict[str, Any]) -> CommandLine:
    """What the options say, as the layer over all files."""
    names = ("host", "port", "store", "workers")
    given = {name: options[name] for name in names if options.get(name) is not None}
    return CommandLine(
        values={"server": given} if given else {},
        cllm_path=options["cllm_path"],
        trust=options["trust"],
    )


def _settings(line: CommandLine) -> "Settings":
    from cllm.cli.trust import trusted_settings  # noqa: PLC0415 - reads files

    return trusted_settings(here(), line)


def _log_as(settings: "Settings") -> None:
    """A line of JSON for every request, and more of them if the settings want more."""
    from cllm.logs import LogSettings, configure, include  # noqa: PLC0415 - with the server

    configure(
        LogSettings(verbosity=max(settings.verbosity, 1), as_json=True, file=settings.log_file),
        secrets=settings.secrets(),
    )
    include(WEB_SERVER)


def _listening() -> Any:
    with needs_extra("server", feature="`cllm serve`"):
        from cllm.server.http.listener import listen  # noqa: PLC0415 - loads the web framework
    return listen


def _say(address: str) -> None:
    printing.note(f"Serving at {address} (stop with Ctrl-C).")

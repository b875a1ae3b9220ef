"""`cllm serve`: parses the options and starts `cllm.server`."""

import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from cllm.cli import output
from cllm.cli.inputs import (
    TEXT,
    WIDE_HELP,
    HelpCommand,
    OptionError,
    cllm_path_option,
    command_line,
    current_environment,
    trust_option,
)
from cllm.core.extras import require_extra

if TYPE_CHECKING:
    from cllm.settings.load import Settings
    from cllm.settings.sections import ServerSettings

HELP = """Start the OpenAI- and Anthropic-compatible HTTP server.

Any OpenAI or Anthropic client works: set its base URL to http://127.0.0.1:3000/v1 for OpenAI and
http://127.0.0.1:3000 for Anthropic. Send an empty X-Conversation-ID header to start a stored
conversation. The response returns its ID; send that ID to continue."""
EXAMPLES = (
    "cllm serve",
    "cllm serve --port 8080 --store sqlite:cats.db",
    "cllm serve --workers 2",
    "cllm serve --record auto",
)

UNENCRYPTED = (
    "Warning: API keys and messages travel unencrypted. Use --tls-cert and --tls-key, or listen on "
    "127.0.0.1 behind a proxy with TLS."
)
MAX_PORT = 65_535
MAX_WORKERS = 64
WEB_SERVER = "uvicorn"


@click.command(
    cls=HelpCommand, name="serve", help=HELP, examples=EXAMPLES, context_settings=WIDE_HELP
)
@click.option("--host", metavar="ADDRESS", help="Address to listen on (default 127.0.0.1).")
@click.option(
    "--port",
    type=click.IntRange(0, MAX_PORT),
    help="Port to listen on (default 3000; 0 for any free port).",
)
@click.option("--store", metavar="URL", type=TEXT, help="Store: sqlite:PATH or postgresql://…")
@click.option(
    "--workers",
    type=click.IntRange(1, MAX_WORKERS),
    help="Number of processes, 1 to 64 (default 1).",
)
@click.option(
    "--record",
    type=click.Choice(("auto", "off")),
    metavar="auto|off",
    help="auto: record clients that send their whole history, such as agents (default off).",
)
@click.option("--tls-cert", metavar="FILE", help="Certificate chain in PEM format; serve HTTPS.")
@click.option(
    "--tls-key", metavar="FILE", help="Private key in PEM format, if not in the certificate's file."
)
@cllm_path_option
@trust_option
def command(**options: Any) -> None:
    if options["host"] == "":
        raise OptionError("--host needs an address, such as 127.0.0.1.")
    settings = _load_settings(options)
    if options["tls_key"] is not None and settings.server.tls_cert is None:
        raise OptionError("--tls-key needs --tls-cert, the certificate of the key.")
    from cllm.settings.sections import describe_ignored_variables

    with require_extra("server", feature="`cllm serve`"):
        from cllm.server.http.uvicorn_server import listen
        from cllm.server.state import exposes_keys
    for text in describe_ignored_variables(os.environ):
        output.note(f"{text[0].upper()}{text[1:]}")

    def announce(address: str) -> None:
        output.note(f"Serving at {address} (stop with Ctrl-C).")
        for line in describe_clients(address, settings.server):
            output.note(line)
        if exposes_keys(settings.server):
            output.note(UNENCRYPTED)

    listen(settings, prepare=partial(_configure_logging, settings), on_listen=announce)


def describe_clients(address: str, server: "ServerSettings") -> Iterator[str]:
    """Yield how to connect clients to the server, with recording."""
    if server.record == "off":
        yield (
            "Recording is off: to save the conversations of coding agents and other clients, "
            "start with --record auto."
        )
        return
    yield "Recording every client. Connect one with:"
    yield f"  ANTHROPIC_BASE_URL={address}  (Claude Code, Anthropic SDKs)"
    yield f"  OPENAI_BASE_URL={address}/v1  (OpenAI SDKs, aider and most others)"
    yield f"  API key: {'one of server.keys' if server.keys else 'any text'}"


def _load_settings(options: dict[str, Any]) -> "Settings":
    from cllm.cli.trust import load_trusted_settings

    names = ("host", "port", "store", "workers", "record", "tls_cert", "tls_key")
    server = {name: options[name] for name in names if options[name] is not None}
    return load_trusted_settings(
        current_environment(), command_line(options, {"server": server or None})
    )


def _configure_logging(settings: "Settings") -> None:
    """Log as JSON, with at least one line per request."""
    from cllm.logs import configure, include_library

    configure(
        verbosity=max(settings.verbosity, 1),
        as_json=True,
        file=settings.log_file,
        secrets=settings.secrets(),
    )
    include_library(WEB_SERVER)

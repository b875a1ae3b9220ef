"""`cllm demo`: serves the web page with example conversations in a temporary store."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cllm.cli import output
from cllm.cli.inputs import HelpCommand, current_environment
from cllm.core.extras import require_extra
from cllm.terminal import TerminationSignal

if TYPE_CHECKING:
    from cllm.settings.load import Settings

HELP = """Open the web page with example conversations.

The conversations are in a temporary store, which is deleted at the end. Your own conversations are
neither shown nor changed. Reading needs no account and no key. Messages that you send go to your
default model, or to the local model if no key is set."""
EXAMPLES = ("cllm demo", "cllm demo --no-open --port 8080")
HOST = "127.0.0.1"
MAX_PORT = 65_535
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


@click.command(cls=HelpCommand, name="demo", help=HELP, examples=EXAMPLES)
@click.option(
    "--port",
    type=click.IntRange(0, MAX_PORT),
    default=0,
    help="Port to listen on (default: any free port).",
)
@click.option("--no-open", is_flag=True, help="Print the address without opening a browser.")
def command(*, port: int, no_open: bool) -> None:
    import os
    import tempfile

    _raise_on_termination()
    with require_extra("server", feature="`cllm demo`"):
        from cllm.server.http.uvicorn_server import listen
    with tempfile.TemporaryDirectory(prefix="cllm-demo-") as folder:
        settings = load_demo_settings(Path(folder), port)
        count = fill_store(settings)

        def announce(address: str) -> None:
            output.note(f"Serving {count} example conversations at {address} (stop with Ctrl-C).")
            if not no_open and has_browser(os.environ):
                open_browser(address)

        listen(settings, prepare=lambda: None, on_listen=announce)


def _raise_on_termination() -> None:
    """Make the signals that end the process remove the temporary store."""
    import signal

    def stop(_number: int, _frame: object) -> None:
        raise TerminationSignal

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


def load_demo_settings(folder: Path, port: int) -> "Settings":
    """Load the user's settings with a store in `folder`, and the defaults of the server.

    The Cllmfiles of the current directory are not read, so that none has to be trusted.
    """
    from msgspec.structs import replace

    from cllm.settings.load import CommandLine, database_store, load_settings, use_single_store
    from cllm.settings.sections import ServerSettings

    environment = replace(current_environment(), directory=folder)
    settings = load_settings(environment, CommandLine())
    server = ServerSettings(host=HOST, port=port)
    return replace(use_single_store(settings, database_store(folder)), server=server)


def fill_store(settings: "Settings") -> int:
    """Add the example conversations to the store and return their number."""
    from cllm.app import App, now, run_coroutine
    from cllm.cli.demo_conversations import build_demo_conversations

    app = App(settings)
    conversations = build_demo_conversations(now(), app.prices.price_turn)

    async def add_all() -> None:
        try:
            for conversation in conversations:
                await app.store.add(conversation, preserve_times=True)
        finally:
            await app.close()

    run_coroutine(add_all())
    return len(conversations)


def has_browser(environment: Mapping[str, str]) -> bool:
    """Whether a graphical browser can open: `webbrowser` would start a text browser here."""
    return sys.platform in ("darwin", "win32") or any(map(environment.get, DISPLAYS))


def open_browser(address: str) -> None:
    """Open the page in a thread: some browsers return only when they are closed."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

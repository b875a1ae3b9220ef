"""Generates the surface: everything that a user can notice, as one text file per subject."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.command import Cllm
from tests.home import Home
from tests.postgres import Server
from tests.surface_generator import (
    cli_scenarios,
    command_line,
    database,
    errors,
    http_files,
    http_scenarios,
    public_python,
    settings,
)
from tests.surface_generator.shapes import Shape
from tests.surface_generator.text import Normaliser, document, section

CHAT = ("chat", "summaries")
FREE_FORM_PATHS = (
    "metadata.cllm.extras[].raw",
    "metadata.cllm.variants[].inline[]",
    "metadata.cllm.turns[].inline[]",
)


def generate(folder: Path, postgres: Server) -> dict[str, str]:
    """Return the texts by file name. `folder` is an empty folder for temporary files."""
    files = {
        **command_line.surface(),
        **settings.surface(folder / "settings"),
        **public_python.surface(),
        **errors.surface(),
    }
    with ThreadPoolExecutor(2) as pool:
        served = pool.submit(http_scenarios.observe, _make_folder(folder / "http"))
        ran = pool.submit(cli_scenarios.observe, _make_folder(folder / "commands"))
        work = _make_folder(folder / "database")
        files |= database.surface(Cllm(Home(work)), work, postgres)
        files |= _format_observations(served.result(), ran.result(), folder)
    return files


def _make_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _format_observations(
    served: http_scenarios.Observed, ran: list[cli_scenarios.Observed], folder: Path
) -> dict[str, str]:
    normalise = Normaliser({"folder": folder})
    sent = [request for one in ran for request in one.sent]
    records = [record for one in ran for record in one.logs]
    stored = [*served.conversations, *(file for one in ran for file in one.conversations)]
    return {
        **http_files.surface(served, normalise),
        "commands.txt": _transcripts([one for one in ran if one.subject not in CHAT]),
        "chat.txt": _transcripts([one for one in ran if one.subject in CHAT]),
        "logs.txt": document(
            "Fields of log records by logger, level and message; the server's last.",
            *http_files.record_sections(records),
            *http_files.log_sections(served, normalise),
        ),
        "sent.txt": document(
            "Headers and fields of requests to providers, by path.",
            *http_files.sent_to_providers(sent, "from a command"),
            *http_files.sent_to_providers(served.sent, "from the server"),
        ),
        "conversation_file.txt": document(
            "Fields of conversation files.",
            section("file", Shape(stored, without=FREE_FORM_PATHS).lines()),
        ),
    }


def _transcripts(ran: list[cli_scenarios.Observed]) -> str:
    about = (
        "What commands print and how they end: `$` the command, `<` its input, `|` standard "
        "output, `!` standard error, `=` the exit code, `#` what else was looked at."
    )
    return document(about, *(section(f"## {one.subject}", one.transcript) for one in ran))

"""Every `--help`: its layout, and its examples, which are run in an empty home."""

import hashlib
import json
import re
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import click
import pytest
from tests.command import Cllm, Result
from tests.fake_provider import closed_port
from tests.import_sources import LLM_FOLDER, chatgpt_cats, write_zip

from cllm.cli.help import SECTIONS, command_examples
from cllm.cli.main import ASK, COMMANDS, root

MAX_LINES = 84
COLUMNS = 80
TINY_MODEL = b"GGUF" + bytes(1000)


def main_command(name: str) -> click.Command:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    return command


def all_commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with the words that name it; `cllm PROMPT` has none."""
    for name in COMMANDS:
        command = main_command(name)
        words = () if name == ASK else (name,)
        yield words, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for inner_name in command.list_commands(context):
                inner = command.get_command(context, inner_name)
                assert inner is not None
                yield (*words, inner_name), inner


COMMAND_LIST = list(all_commands())
EXAMPLES = sorted({line for _, command in COMMAND_LIST for line in command_examples(command)})


def is_server(line: str) -> bool:
    return line.split()[1] in ("demo", "serve")


by_words = pytest.mark.parametrize(
    ("words", "command"), COMMAND_LIST, ids=["-".join(words) or "cllm" for words, _ in COMMAND_LIST]
)


@by_words
def test_a_help_screen_has_a_sentence_options_and_examples(words, command, cllm):
    lines = cllm(*words, "--help", env={"COLUMNS": "80"}).succeeded().out.split("\n")

    assert lines[0].startswith(f"Usage: {' '.join(('cllm', *words))} ")
    assert re.fullmatch(r"  [A-Z].*\.", lines[2])
    assert all(len(line) <= COLUMNS for line in lines)
    examples = lines[lines.index("Examples:") + 1 :]
    assert examples[: len(command.examples)] == [f"  {line}" for line in command.examples]
    assert command.examples


def test_the_main_help_fits_on_two_screens_and_lists_every_command(cllm):
    lines = cllm("--help", env={"COLUMNS": "80"}).succeeded().out.rstrip("\n").split("\n")

    assert len(lines) <= MAX_LINES
    for name, (_, description) in COMMANDS.items():
        if name != ASK:
            assert any(line.startswith(f"  {name} ") and description in line for line in lines)


def test_the_main_help_names_every_option(cllm):
    text = cllm("--help", env={"COLUMNS": "80"}).succeeded().out
    command = main_command(ASK)
    flags = {flag for param in command.params for flag in param.opts if flag.startswith("--")}

    assert [flag for flag in sorted(flags) if not re.search(rf"{flag}\b(?!-)", text)] == []
    assert {flag for rows in SECTIONS.values() for flag in rows} == flags | {"-v", "--help"}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != ASK])
def test_a_command_s_help_starts_with_its_description_in_the_table(name):
    assert str(main_command(name).help).split("\n")[0] == COMMANDS[name][1]


@pytest.fixture
def world(home, settings, provider):
    """A home with a conversation, a database, files and settings that the examples need."""
    openai = {"api_base": provider.url, "api_key": "sk-test-0123456789abcdef"}
    settings(
        api_base=...,
        api_key=...,
        providers={"openai": openai},
        default_system_message="Be brief.",
        server={"port": 0},
        aliases={"fast": "openai/gpt-4o"},
    )
    home.write_old_conversation(
        "cats", ("user", "My cat is called Luna."), ("assistant", "A fine name.")
    )
    home.write_old_conversation("dogs", ("user", "My dog is called Rex."))
    (home.work / "questions.txt").write_text("One.\nTwo.\n", encoding="utf-8")
    (home.work / "report.txt").write_text("All is well.", encoding="utf-8")
    (home.work / "translate.yml").write_text("prompt: Translate.", encoding="utf-8")
    (home.work / "openai-key.txt").write_text("sk-test", encoding="utf-8")
    (home.path / ".config/fish/completions").mkdir(parents=True)
    models = home.cache / "cllm/models"
    models.mkdir(parents=True)
    return home


def prepare(example: str, world, request) -> None:
    words = example.split()
    if words[1] == "init":
        shutil.rmtree(world.path / ".cllm")
    elif words[1] == "trust":
        text = "context_commands: [{name: Day, command: date}]"
        (world.work / "Cllmfile.yml").write_text(text, encoding="utf-8")
    elif words[1] == "db":
        store = request.getfixturevalue("older_database")
        if words[2] == "adopt":
            store.forget_revision()
        elif words[2] != "upgrade":
            store.upgrade()
    elif words[1:3] == ["keys", "remove"]:
        keys = {words[3]: {"key": "sk-test"}}
        (world.path / ".cllm/keys.json").write_text(json.dumps(keys), encoding="utf-8")
    elif words[1] in ("backup", "restore", "verify") and words[2:]:
        cllm = request.getfixturevalue("cllm")
        saved = "saved.zip" if words[1] == "backup" else "cllm.zip"
        cllm("backup", saved).succeeded()
        cllm("restore", saved, "--store", "sqlite:cats.db").succeeded()
    elif words[1:3] == ["conversations", "import"]:
        write_zip(world.work / "chatgpt-export.zip", {"conversations.json": [chatgpt_cats()]})
        shutil.copy(LLM_FOLDER / "llm-new.db", world.work / "logs.db")
        shutil.copytree(world.conversations, world.work.parent / "other/.cllm/conversations")
    elif words[1:3] in (["models", "pull"], ["models", "remove"]):
        model = request.getfixturevalue("local_model")
        (world.cache / "cllm/models/smollm2-135m.gguf").symlink_to(model)


class OlderDatabase:
    """`cats.db` as an older deployment left it."""

    def __init__(self, path: Path, cllm) -> None:
        self._path = path
        self._cllm = cllm
        store = f"sqlite:{path}"
        cllm("db", "upgrade", "--store", store).succeeded()
        cllm("db", "downgrade", "0001", "--store", store).succeeded()

    def upgrade(self) -> None:
        self._cllm("db", "upgrade", "--store", f"sqlite:{self._path}").succeeded()

    def forget_revision(self) -> None:
        database = sqlite3.connect(self._path)
        database.execute("DROP TABLE cllm_revision")
        database.close()


@pytest.fixture
def older_database(home, cllm):
    return OlderDatabase(home.work / "cats.db", cllm)


@pytest.fixture
def run_line(world, cllm: Cllm, request):
    """Runs an example of the help."""

    def run(line: str, **variables: str) -> Result:
        prepare(line, world, request)
        return cllm.run_line(line, **variables)

    return run


@pytest.mark.parametrize(
    "line", [line for line in EXAMPLES if not is_server(line) and " hf:" not in line]
)
def test_an_example_runs(line, run_line):
    done = run_line(line)

    done.succeeded()
    assert "Traceback" not in done.err


@pytest.mark.parametrize("line", [line for line in EXAMPLES if " hf:" in line])
def test_an_example_with_a_file_of_hugging_face_runs(line, run_line, file_server):
    done = run_line(line, HF_ENDPOINT=file_server)

    done.succeeded()


@pytest.fixture
def file_server():
    """A hub on loopback with one repository, which has the same small file at every path."""
    lfs = {"oid": hashlib.sha256(TINY_MODEL).hexdigest()}
    pages = {
        "/api/models/OWNER/REPO": {"sha": "abc", "tags": ["license:mit"]},
        "/api/models/OWNER/REPO/tree/abc": [{"path": "model-Q4_K_M.gguf", "lfs": lfs}],
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path)
            data = TINY_MODEL if page is None else json.dumps(page).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_args) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("line", [line for line in EXAMPLES if is_server(line)])
def test_an_example_of_the_server_starts_and_stops(line, cllm):
    words = line.replace("--port 8080", f"--port {closed_port()}").split()
    running = cllm.start(*words[1:])
    running.wait_for_output("at http://127.0.0.1:", stream="err")
    running.signal(signal.SIGINT)

    assert running.finish().code in (0, 130)

"""Writes the fixtures `llm-*.db` with real versions of `llm`, against the fake provider.

    python -m tests.unit.transfer.importers.data.make_llm_logs OLD/bin/llm NEW/bin/llm

OLD is `llm` 0.31 and NEW a version since 0.32; install each into its own virtual environment. The
first file has conversations of OLD. The second one is a copy that NEW has upgraded and continued.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import yaml
from tests.fake_provider import FakeProvider, ToolCall

FOLDER = Path(__file__).parent
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d4944415478da63f8cfc0500f0004050101a2d05ea80000000049454e44ae426082"
)
WEATHER = """
def weather(city: str) -> str:
    "The weather in a city."
    return "Rain in " + city
"""


class Llm:
    def __init__(self, program: str, folder: Path, provider: FakeProvider) -> None:
        self._program = program
        self._folder = folder
        self._provider = provider
        entry = {
            "model_id": "served",
            "model_name": "gpt-test",
            "api_base": provider.url,
            "supports_schema": True,
            "supports_tools": True,
            "vision": True,
        }
        (folder / "extra-openai-models.yaml").write_text(yaml.safe_dump([entry]), encoding="utf-8")

    def run(self, *arguments: str, data: bytes = b"") -> None:
        environment = {
            "HOME": str(self._folder),
            "LANG": "C.UTF-8",
            "LLM_USER_PATH": str(self._folder),
            "PATH": os.environ["PATH"],
        }
        subprocess.run(
            [str(Path(self._program).resolve()), *arguments],
            check=True,
            cwd=self._folder,
            env=environment,
            input=data,
        )

    def ask(self, *arguments: str, reply: str, data: bytes = b"") -> None:
        self._provider.queue_reply(reply)
        self.run("-m", "served", *arguments, data=data)

    def ask_with_tool(self, prompt: str, *, call_id: str) -> None:
        call = ToolCall(id=call_id, name="weather", arguments='{"city": "Oslo"}')
        self._provider.queue_reply("I will look.", tool_calls=(call,), finish="tool_calls")
        self._provider.queue_reply("It rains in Oslo.")
        self.run("-m", "served", "--functions", WEATHER, prompt)

    def ask_about_files(self) -> None:
        (self._folder / "notes.txt").write_text("The cat is called Luna.", encoding="utf-8")
        self.ask(
            "What is this?",
            *("-a", "-", "-f", "notes.txt", "-s", "You are a vet."),
            reply="A pixel.",
            data=PIXEL,
        )


def save(folder: Path, name: str) -> None:
    target = FOLDER / name
    target.unlink(missing_ok=True)
    with closing(sqlite3.connect(folder / "logs.db")) as database, database:
        database.execute("VACUUM INTO ?", (str(target),))
    target.chmod(0o644)


def main(old: str, new: str) -> None:
    with FakeProvider() as provider, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = Llm(old, folder, provider)
        first.ask("My cat is called Luna.", "-s", "You are a vet.", reply="A good name.")
        first.ask("-c", "What is she called?", reply="Luna.")
        first.ask_about_files()
        first.ask_with_tool("What is the weather in Oslo?", call_id="call_old")
        save(folder, "llm-0.31.db")
        second = Llm(new, folder, provider)
        second.ask("My dog is called Rex.", reply="A strong name.")
        second.ask("-c", "What is he called?", reply="Rex.")
        second.ask_about_files()
        second.ask_with_tool("What is the weather in Oslo today?", call_id="call_new")
        with closing(sqlite3.connect(folder / "logs.db")) as database, database:
            (old_id,) = database.execute("SELECT id FROM conversations ORDER BY id").fetchone()
        second.ask("--cid", old_id, "And how old is she?", reply="You did not say.")
        save(folder, "llm-new.db")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Runs every code block of a page as a new user does: `python -m tests.document_blocks README.md`.

A page runs in a copy of the source tree, with an empty home folder and a new shell. Blocks run in
order, in one shell. The language of a block says what happens:

- `sh`: the commands run; each has to succeed.
- `console`: the lines after `$ ` run; the other lines are their output, standard output and
  standard error. `…` stands for any text in a line, or for any lines if it is alone in a line.
- `python`: runs as a program.
- `yaml` and `json`: have to be valid. Other languages are only shown.

A comment before a block changes this:

- `<!-- blocks: file PATH -->` writes the block to a file, `~` is the home folder.
- `<!-- blocks: background -->` runs the command until the end of the page.
- `<!-- blocks: hosted -->` runs the commands with fake services on loopback instead of hosted ones.
- `<!-- blocks: skip REASON -->` does not run the block.

`cllm serve` uses a free port instead of 3000, and so do the other blocks.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import yaml
from markdown_it import MarkdownIt
from tests.fake_provider import FakeProvider, closed_port

ROOT = Path(__file__).parents[1]
MARK = re.compile(r"<!-- blocks: (file|background|hosted|skip) ?(.*?) -->")
RUNNABLE = ("sh", "console", "python")
ANY = "…"
PROMPT = "$ "
SECONDS = 600
HOSTED_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")
PASSED_VARIABLES = re.compile(r"(PIP|UV|SSL|REQUESTS)_\w+|\w+_proxy|LANG", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A code block, its language, the line of its first line, and its comment."""

    language: str
    text: str
    line: int
    mark: str = ""
    argument: str = ""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Commands of a block, with the expected output of a `console` block."""

    commands: str
    output: str | None = None


class BlockError(Exception):
    """A block failed."""


def parse_blocks(text: str) -> list[Block]:
    """Return the code blocks of a Markdown page. Raises BlockError for one without a language."""
    blocks, mark, argument = [], "", ""
    for token in MarkdownIt().parse(text):
        found = MARK.match(token.content) if token.type == "html_block" else None
        if token.type == "code_block":
            assert token.map is not None
            raise BlockError(f"line {token.map[0] + 1}: use a fence with a language")
        if token.type == "fence":
            assert token.map is not None
            line = token.map[0] + 1
            if not token.info:
                raise BlockError(f"line {line}: the block has no language")
            blocks.append(
                Block(
                    language=token.info.split()[0],
                    text=token.content,
                    line=line + 1,
                    mark=mark,
                    argument=argument,
                )
            )
        mark, argument = (found[1], found[2]) if found else ("", "")
    return blocks


def split_steps(block: Block) -> list[Step]:
    """Return the commands of a block, each line of a `console` block separately."""
    if block.language == "python":
        return [Step(commands=f"python - <<'END_OF_BLOCK'\n{block.text}END_OF_BLOCK\n")]
    if block.language == "sh":
        return [Step(commands=block.text)]
    steps: list[tuple[str, list[str]]] = []
    continues = False
    for line in block.text.splitlines():
        if continues:
            command, output = steps[-1]
            steps[-1] = (f"{command}\n{line}", output)
        elif line.startswith(PROMPT):
            steps.append((line.removeprefix(PROMPT), []))
        else:
            if not steps:
                raise BlockError(f"line {block.line}: the block starts with output")
            steps[-1][1].append(line)
            continue
        continues = line.endswith("\\")
    return [Step(commands=command + "\n", output="\n".join(lines)) for command, lines in steps]


def matches(expected: str, output: str) -> bool:
    """Whether the output is the expected one; `…` matches any text of a line, or any lines."""
    pattern = ""
    for line in expected.strip("\n").splitlines():
        if line.strip() == ANY:
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(part) for part in line.rstrip().split(ANY)) + r"[ \t]*\n"
    return re.fullmatch(pattern, output.strip("\n") + "\n" if output.strip() else "") is not None


def copy_source(target: Path) -> None:
    """Copy the files that git knows or would add."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True).stdout
    for name in names.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)


class Shell:
    """A bash process with an empty home folder that runs the blocks of one page."""

    def __init__(self, folder: Path) -> None:
        self.home, self.work = folder / "home", folder / "cllm"
        self.home.mkdir()
        self.work.mkdir()
        self._folder = folder
        self._stack = ExitStack()
        self._background: list[subprocess.Popen[bytes]] = []
        self._port = closed_port()
        environment = {
            name: value for name, value in os.environ.items() if PASSED_VARIABLES.fullmatch(name)
        }
        # No server listens on the port of Ollama, so that one on this machine is not used.
        environment |= {
            "HOME": str(self.home),
            "PATH": _system_path(),
            "OLLAMA_HOST": "127.0.0.1:9",
        }
        self._state = folder / "state"
        self._state.write_text(
            "".join(f"export {name}={_quote(value)}\n" for name, value in environment.items())
            + f"cd {_quote(str(self.work))}\n",
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._background:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(SECONDS)
        self._stack.close()

    def replace_port(self, text: str) -> str:
        """Replace the port of the server by a free one, in commands and in their output."""
        text = text.replace(":3000", f":{self._port}")
        return text.replace("cllm serve", f"cllm serve --port {self._port}")

    def run(self, commands: str) -> str:
        """Run commands with the variables and the directory of the last ones; return the output."""
        commands = self.replace_port(commands)
        # The next commands start in the state that these ones leave.
        program = (
            f". {self._state}; set -eo pipefail\n{commands}\nset +e\n"
            f'{{ export -p; declare -f; echo cd "$(printf %q "$PWD")"; }} > {self._state}\n'
        )
        done = subprocess.run(
            ["bash", "-c", program],
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=SECONDS,
        )
        output = done.stdout.decode(errors="replace")
        if done.returncode != 0:
            raise BlockError(f"exit code {done.returncode}:\n{commands}\n{output}")
        return output

    def start(self, commands: str) -> None:
        """Run commands in the background until the first line of their output."""
        output = self._folder / f"background-{len(self._background)}"
        with output.open("wb") as file:
            self._background.append(
                subprocess.Popen(
                    ["bash", "-c", f". {self._state}; exec {self.replace_port(commands)}"],
                    env={},
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        waiting = f"for _ in $(seq 600); do test -s {output} && exit 0; sleep 0.1; done; exit 1"
        if subprocess.run(["bash", "-c", waiting], check=False).returncode != 0:
            raise BlockError(f"no output in a minute:\n{commands}")

    def write(self, path: str, text: str) -> None:
        target = Path(path.replace("~", str(self.home), 1)) if path[0] == "~" else self.work / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def run_hosted(self, commands: str) -> str:
        """Run commands with fake providers on loopback as OpenAI, Anthropic and Ollama.

        The commands set the keys; later blocks do not have them.
        """
        with FakeProvider() as provider:
            settings = {
                "providers": {
                    "openai": {"api_base": provider.url},
                    "anthropic": {"api_base": provider.root},
                    "ollama": {"api_base": provider.url},
                }
            }
            path = self.home / ".cllm" / "Cllmfile.yml"
            saved = path.read_text(encoding="utf-8") if path.exists() else None
            self.write("~/.cllm/Cllmfile.yml", json.dumps(settings))
            try:
                return self.run(commands)
            finally:
                self.run(f"unset {' '.join(HOSTED_KEYS)}")
                if saved is None:
                    path.unlink()
                else:
                    path.write_text(saved, encoding="utf-8")


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _system_path() -> str:
    """The folders of the system's programs and of the Python outside of a virtual environment."""
    python = Path(sys.base_prefix) / "bin"
    node = shutil.which("node")
    extra = [str(python), *([str(Path(node).parent)] if node else [])]
    return ":".join([*extra, "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"])


def run_block(shell: Shell, block: Block) -> None:
    """Run, write or check one block. Raises BlockError."""
    if block.mark == "skip":
        return
    if block.mark == "file":
        shell.write(block.argument, block.text)
    elif block.mark == "background":
        shell.start(block.text.strip())
        return
    if block.language == "yaml":
        yaml.safe_load(block.text)
    elif block.language == "json":
        json.loads(block.text)
    if block.language not in RUNNABLE or block.mark == "file":
        return
    for step in split_steps(block):
        output = (shell.run_hosted if block.mark == "hosted" else shell.run)(step.commands)
        if step.output is not None and not matches(shell.replace_port(step.output), output):
            raise BlockError(
                f"{step.commands}--- printed in the page\n{step.output}\n--- output\n{output}"
            )


def run_page(page: Path) -> Iterator[str]:
    """Run the blocks of a page in an empty environment; yield a line for each."""
    blocks = parse_blocks(page.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as name, Shell(Path(name)) as shell:
        copy_source(shell.work)
        for block in blocks:
            try:
                run_block(shell, block)
            except (BlockError, ValueError, yaml.YAMLError) as error:
                raise BlockError(f"{page.name}:{block.line}: {error}") from error
            mark = f", {block.mark} {block.argument}".rstrip() if block.mark else ""
            yield f"{page.name}:{block.line}: {block.language}{mark}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path)
    for page in parser.parse_args().pages:
        try:
            for line in run_page(page):
                print(line, flush=True)  # noqa: T201
        except BlockError as error:
            print(error, file=sys.stderr)  # noqa: T201
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

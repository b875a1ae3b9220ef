"""Checks cllm as it is installed from a wheel: `python -m tests.package_check WHEEL [EXTRAS]`.

Run it with the Python of the environment. It needs only the standard library, and starts the
installed command with a fake provider on loopback. `.ci/package` builds the environments.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from tests.fake_provider import FakeProvider

SOURCE = Path(__file__).parents[1] / "src"
COMMAND = Path(sys.prefix) / "bin" / "cllm"
SECONDS = 300


def list_source_files(source: Path = SOURCE) -> set[str]:
    """Return the files of the package, relative to `source`."""
    return {
        path.relative_to(source).as_posix()
        for path in (source / "cllm").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def list_wheel_files(wheel: Path) -> set[str]:
    """Return the files of a wheel, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def compare_files(wheel: Path) -> None:
    difference = list_source_files() ^ list_wheel_files(wheel)
    assert not difference, f"only in the source or only in the wheel: {sorted(difference)}"


class InstalledCommand:
    """The command in an empty home folder, with settings for a provider on loopback."""

    def __init__(self, root: Path, provider: FakeProvider) -> None:
        self.work = root / "work"
        self.work.mkdir()
        (root / ".cllm").mkdir()
        settings = {"model": "openai/gpt-test", "api_base": provider.url, "api_key": "sk-test"}
        (root / ".cllm" / "Cllmfile.yml").write_text(json.dumps(settings), encoding="utf-8")
        self.environment = {"HOME": str(root), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [COMMAND, *arguments],
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            text=True,
            timeout=SECONDS,
        )

    def output(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    @contextmanager
    def listen(self, *arguments: str) -> Iterator[str]:
        """Start a server; yield its address."""
        process = subprocess.Popen(
            [COMMAND, *arguments],
            cwd=self.work,
            env=self.environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        lines: list[str] = []
        try:
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                    yield found[0]
                    return
            raise AssertionError(f"{arguments} ended: {''.join(lines)}")
        finally:
            process.terminate()
            process.communicate(timeout=SECONDS)


def check_command(cllm: InstalledCommand, version: str) -> None:
    assert cllm.output("--version") == f"cllm {version}\n"
    assert "Commands (cllm COMMAND --help shows their options)" in cllm.output("--help")
    cllm.output("Hello", "--conversation", "cats")
    cllm.output("Hello again", "--conversation", "cats")
    assert cllm.output("--show-conversation", "cats").count("Hello") >= 2
    cllm.output("Hello", "--conversation", "cats", "--store", "sqlite:cats.db")
    cllm.output("db", "check", "--store", "sqlite:cats.db")
    assert "code-review" in cllm.output("templates", "list")
    cllm.output("init", "--template", "code-review")


def check_server(cllm: InstalledCommand) -> None:
    with cllm.listen("serve", "--port", "0") as address:
        body = {"model": "openai/gpt-test", "messages": [{"role": "user", "content": "Hello"}]}
        sent = Request(
            f"{address}/v1/chat/completions",
            data=json.dumps(body).encode(),
            headers={"X-Conversation-ID": "", "Content-Type": "application/json"},
        )
        with urlopen(sent, timeout=SECONDS) as response:
            assert json.load(response)["choices"][0]["message"]["content"]
            assert response.headers["X-Conversation-ID"]
        for path in ("/openapi.json", "/ready", "/v1/conversations"):
            urlopen(f"{address}{path}", timeout=SECONDS).close()


def check_page(cllm: InstalledCommand) -> None:
    with cllm.listen("demo", "--no-open") as address:
        with urlopen(f"{address}/", timeout=SECONDS) as response:
            page = response.read().decode()
        files = re.findall(r'(?:src|href)="(/[^"]+\.(?:js|css|svg)[^"]*)"', page)
        assert files, page
        for file in files:
            urlopen(f"{address}{file}", timeout=SECONDS).close()


def add_the_server(cllm: InstalledCommand) -> None:
    """Run the command that `cllm serve` prints if its extra is missing."""
    done = cllm.run("serve")
    assert done.returncode == 1, done.stderr
    command = shlex.split(done.stderr.partition("run: ")[2])
    assert command, done.stderr
    subprocess.run(
        [*command, "--quiet", "--disable-pip-version-check"], check=True, timeout=SECONDS
    )


def main(wheel: Path, extras: str = "") -> None:
    compare_files(wheel)
    version = wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory() as folder, FakeProvider() as provider:
        cllm = InstalledCommand(Path(folder), provider)
        check_command(cllm, version)
        if not extras:
            add_the_server(cllm)
        check_server(cllm)
        check_page(cllm)
        assert provider.requests
    print(f"cllm{extras} {version} works with Python {sys.version.split()[0]}.")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

"""Runs commands in an empty home directory and records command, output and exit code."""

import json
import os
import shlex
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.command import Cllm, Result
from tests.fake_provider import FakeProvider
from tests.home import SECRET, Home
from tests.surface_generator.shapes import Shape
from tests.surface_generator.text import Normaliser

UNLISTED_FOLDERS = (".locks", ".run")
OFFLINE = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "HF_ENDPOINT": "http://127.0.0.1:1",
    "PIP_NO_INDEX": "1",
    "UV_OFFLINE": "1",
}
"""Prevents downloads of models and requests for AWS credentials."""


class Shell:
    """Runs the commands of one subject. `lines` is the transcript.

    Prefixes: `$` the command, `<` input, `|` standard output, `!` standard error, `=` exit code.
    """

    def __init__(self, folder: Path, provider: FakeProvider) -> None:
        folder.mkdir(parents=True)
        self.home = Home(folder)
        self.provider = provider
        self.cllm = Cllm(self.home)
        self.lines: list[str] = []
        names = {"home": self.home.path, "work": self.home.work, "tmp": self.home.temporary}
        self.normalise = Normaliser(names)
        self.write("~/.cllm/Cllmfile.yml", self.settings_text())

    def configure(self, **settings: Any) -> None:
        """Write the user's Cllmfile with the fake provider and these settings, and record these."""
        lines = (f"{name}: {json.dumps(value)}" for name, value in sorted(settings.items()))
        self.note("settings", lines)
        self.write("~/.cllm/Cllmfile.yml", self.settings_text(**settings))

    def settings_text(self, **settings: Any) -> str:
        """Return a Cllmfile with the fake provider and these settings."""
        providers = dict(settings.pop("providers", {}))
        defaults = {"api_base": self.provider.url, "api_key": SECRET}
        providers["openai"] = defaults | providers.get("openai", {})
        values = {"model": "openai/gpt-test", "num_retries": 0, **settings, "providers": providers}
        return yaml.safe_dump(values, sort_keys=False)

    def write(self, name: str, text: str) -> None:
        """Write a file in the work folder, or with `~` in the home directory."""
        path = self.home.work / name.replace("~", str(self.home.path), 1)
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)

    def __call__(
        self,
        *arguments: str,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
        hides_output: bool = False,
    ) -> Result:
        """Run the command and record it."""
        env = env or {}
        result = self.cllm(*arguments, stdin=stdin.encode(), env={**OFFLINE, **env})
        variables = [f"{name}={value}" for name, value in sorted(env.items())]
        line = " ".join([*variables, shlex.join(("cllm", *arguments))])
        self.record(line, result, stdin=stdin, hides_output=hides_output)
        return result

    def record(
        self, line: str, result: Result, *, stdin: str = "", hides_output: bool = False
    ) -> None:
        """Record the result of a command."""
        self.lines.append(f"$ {self.normalise(line)}")
        self.lines.extend(f"< {text}" for text in self.normalise(stdin).splitlines())
        if not hides_output:
            self.lines.extend(f"| {text}" for text in self.normalise(result.out).splitlines())
            self.lines.extend(f"! {text}" for text in self.normalise(result.err).splitlines())
        self.lines.append(f"= {result.code}")

    def note(self, title: str, lines: Iterable[str]) -> None:
        """Record other lines under a title."""
        self.lines.append(f"# {self.normalise(title)}")
        self.lines.extend(f"  {self.normalise(line)}".rstrip() for line in lines)

    def note_sent(self) -> None:
        """Record the messages of the last request to the provider."""
        for message in self.last_request().get("messages", []):
            text = str(message.get("content"))
            self.note(f"sent, {message['role']}:", text.splitlines())

    def last_request(self) -> dict[str, Any]:
        """Return the body of the last request to the provider."""
        requests = self.provider.requests
        return dict(requests[-1].json) if requests else {}

    def note_fields(self, text: str) -> None:
        """Record the fields of a JSON document."""
        try:
            fields = Shape([json.loads(text)]).lines()
        except ValueError:
            fields = ["no JSON"]
        self.note("fields", [line.strip() for line in fields])

    def note_files(self) -> None:
        """Record the files in the home directory and the work folder with their modes."""
        lines = []
        for root in (self.home.path, self.home.work):
            for path in root.rglob("*"):
                is_cached = ".cache" in path.parts and not path.is_dir()
                if not is_cached and not any(part in UNLISTED_FOLDERS for part in path.parts):
                    mode = stat.S_IMODE(os.lstat(path).st_mode)
                    lines.append(self.normalise(f"{path}{'/' * path.is_dir()} {mode:04o}"))
        self.note("files", sorted(lines))

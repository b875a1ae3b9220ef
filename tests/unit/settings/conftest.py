"""A home folder, a current directory, and the settings that apply there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cllm.settings.load import CommandLine, Environment, Settings, load_settings


class World:
    """Writes Cllmfiles and loads the settings."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.work = root / "work"
        self.environment: dict[str, str] = {}
        for folder in (self.home / ".cllm", self.work):
            folder.mkdir(parents=True)

    @property
    def env(self) -> Environment:
        return Environment(home=self.home, directory=self.work, environment=self.environment)

    def write_home(self, text: str) -> Path:
        return write(self.home / ".cllm/Cllmfile.yml", text)

    def write_dot(self, text: str) -> Path:
        return write(self.work / ".cllm/Cllmfile.yml", text)

    def write_here(self, text: str) -> Path:
        return write(self.work / "Cllmfile.yml", text)

    def load(self, *, env: Environment | None = None, **line: Any) -> Settings:
        return load_settings(env or self.env, CommandLine(**line))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def load(world: World) -> Callable[[str], Settings]:
    """The settings with this text in the user's own file."""

    def load(text: str, **line: Any) -> Settings:
        world.write_home(text)
        return world.load(**line)

    return load

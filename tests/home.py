"""An empty home folder for a command, and settings for a provider on loopback."""

import json
import os
from pathlib import Path
from typing import Any

import yaml
from tests.fake_provider import FakeProvider

SECRET = "sk-test-0123456789abcdef"


class Home:
    """An empty home folder and the current directory of the command."""

    def __init__(self, root: Path) -> None:
        self.path = root / "home"
        self.work = root / "work"
        self.temporary = root / "tmp"
        self.cache = self.path / ".cache"
        for folder in (self.path, self.work, self.temporary):
            folder.mkdir()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.path),
            "LANG": "C.UTF-8",
            # No server listens there: an Ollama on the developer's machine is not used.
            "OLLAMA_HOST": "127.0.0.1:9",
            "PATH": os.environ["PATH"],
            "TMPDIR": str(self.temporary),
            "XDG_CACHE_HOME": str(self.cache),
            "XDG_CONFIG_HOME": str(self.path / ".config"),
            "XDG_DATA_HOME": str(self.path / ".local/share"),
            "XDG_RUNTIME_DIR": str(self.path / ".run"),
            "XDG_STATE_HOME": str(self.path / ".local/state"),
        }

    @property
    def conversations(self) -> Path:
        return self.path / ".cllm/conversations"

    def file(self, conversation: str) -> Path:
        return self.conversations / f"{conversation}.json"

    def load(self, conversation: str) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.file(conversation).read_bytes())
        return loaded

    def messages(self, conversation: str) -> list[tuple[str, Any]]:
        return [
            (message["role"], message["content"]) for message in self.load(conversation)["messages"]
        ]

    def turn_states(self, conversation: str) -> list[str]:
        """The states of the recorded turns; a missing state means complete."""
        turns = self.load(conversation)["metadata"]["cllm"]["turns"]
        return [turn.get("state", "complete") for turn in turns]

    def write_conversation(self, conversation: str, content: Any) -> bytes:
        """Write a conversation file: bytes, or a value as JSON."""
        data = content if isinstance(content, bytes) else json.dumps(content, indent=2).encode()
        self.conversations.mkdir(parents=True, exist_ok=True)
        self.file(conversation).write_bytes(data)
        return data

    def write_old_conversation(
        self, conversation: str, *messages: tuple[str, str], **fields: Any
    ) -> bytes:
        """Write a file in the format from before system prompts were captured."""
        contents = [{"role": role, "content": content} for role, content in messages]
        return self.write_conversation(
            conversation,
            {
                "id": conversation,
                "model": "openai/gpt-test",
                "messages": contents,
                "created_at": "2025-10-31T12:00:00Z",
                "updated_at": "2025-10-31T12:00:15Z",
                "metadata": {"total_tokens": 150},
            }
            | fields,
        )

    def snapshot(self, folder: Path | None = None) -> dict[str, bytes]:
        """The bytes of every file below the home or the folder, except lock files."""
        root = folder or self.path
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file() and "lock" not in path.name
        }

    def entries(self) -> list[str]:
        """Everything in the home and the work folder, directories too."""
        roots = (self.path, self.work)
        return [str(path) for root in roots for path in sorted(root.rglob("*"))]


def write_settings(home: Home, provider: FakeProvider, **keys: Any) -> None:
    values = {"model": "openai/gpt-test", "api_base": provider.url, "api_key": SECRET}
    path = home.path / ".cllm/Cllmfile.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({**values, "num_retries": 0, **keys}), encoding="utf-8")

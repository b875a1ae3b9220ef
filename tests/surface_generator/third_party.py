"""A package with two providers as entry points: one repeats the prompt, one raises an error."""

from pathlib import Path

ENTRY_POINTS = """[cllm.providers]
parrot = cllm_parrot:Parrot
faulty = cllm_parrot:Faulty
"""
SOURCE = """
from cllm.core.message import plain_message
from cllm.core.reply import ReplyFinished, TextDelta


class Parrot:
    def __init__(self, name, settings):
        self.name = name
        self.fields = sorted(settings.__struct_fields__)

    async def prepare(self):
        pass

    async def ask(self, prompt):
        text = f"{prompt.model}: {prompt.messages[-1].text} {self.fields}"
        yield TextDelta(text=text)
        yield ReplyFinished(message=plain_message("assistant", text), stop_reason="end")

    async def close(self):
        pass


class Faulty(Parrot):
    async def ask(self, prompt):
        raise RuntimeError("A fault.")
        yield
"""


def install(site: Path) -> dict[str, str]:
    """Write the package to a folder; return the environment variables that add it to the path."""
    info = site / "cllm_parrot-1.0.dist-info"
    info.mkdir(parents=True)
    metadata = "Metadata-Version: 2.1\nName: cllm-parrot\nVersion: 1.0\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    (site / "cllm_parrot.py").write_text(SOURCE, encoding="utf-8")
    return {"PYTHONPATH": str(site)}

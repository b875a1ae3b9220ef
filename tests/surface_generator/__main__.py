"""`python -m tests.surface_generator [FOLDER]`: write the surface to a folder (`tests/surface`).

Deletes files in the folder that are no longer part of the surface.
"""

import os
import sys
import tempfile
from pathlib import Path

from tests.postgres import own_server
from tests.surface_generator.generate import generate

DEFAULT_FOLDER = Path(__file__).parents[1] / "surface"
UMASK = 0o022


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_FOLDER
    os.umask(UMASK)
    with tempfile.TemporaryDirectory(prefix="cllm-surface-") as folder, own_server() as postgres:
        files = generate(Path(folder), postgres)
    target.mkdir(parents=True, exist_ok=True)
    for path in target.glob("*.txt"):
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        (target / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

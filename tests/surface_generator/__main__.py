"""`python -m tests.surface_generator [FOLDER]`: write the surface into a folder, `tests/surface`.

Files in the folder that are not part of the surface any more are deleted.
"""

import os
import sys
import tempfile
from pathlib import Path

from tests.postgres import own_server
from tests.surface_generator.generate import generate

RECORDED = Path(__file__).parents[1] / "surface"
USUAL_UMASK = 0o022


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDED
    os.umask(USUAL_UMASK)
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

"""Writes the picture of a terminal in the README: `python -m tests.terminal_picture [FILE]`.

Runs the real command with the local model, in an empty home folder, on a terminal of 88 columns.
"""

import os
import pty
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

FILE = Path(__file__).parents[1] / "docs/images/terminal.svg"
CACHE = Path(__file__).parents[1] / ".cache"
COLUMNS = 88
COMMANDS = (
    'cllm "What is the capital of France?" --conversation capitals',
    'cllm -c "And of Italy?"',
    "cllm search Rome",
    "cllm conversations show capitals --as-sent",
)
PROMPT_COLOUR = "#98c379"
THEME = TerminalTheme(
    (30, 33, 39),
    (215, 218, 224),
    [
        *((30, 33, 39), (224, 108, 117), (152, 195, 121), (229, 192, 123)),
        *((97, 175, 239), (198, 120, 221), (86, 182, 194), (215, 218, 224)),
    ],
)
# A terminal without web fonts: the picture loads nothing.
FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>cllm in a terminal</title>
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px;
}}
.{unique_id}-title {{
  font-family: ui-sans-serif, system-ui, "DejaVu Sans", sans-serif;
  font-size: 16px;
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def run_on_terminal(command: str, home: Path, cache: Path = CACHE) -> str:
    """Run a command on a pseudo-terminal; return what it prints."""
    parent, child = pty.openpty()
    environment = {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CLLM_MODEL": "local/smollm2-135m",
        "XDG_CACHE_HOME": str(cache),
        "COLUMNS": str(COLUMNS),
        "TERM": "xterm-256color",
        "TZ": "UTC",
        "LANG": "C.UTF-8",
    }
    with subprocess.Popen(
        ["sh", "-c", command], env=environment, cwd=home, stdin=child, stdout=child, stderr=child
    ) as process:
        os.close(child)
        output = b""
        while True:
            try:
                chunk = os.read(parent, 65536)
            except OSError:  # Linux reports the end of a terminal as an error.
                break
            if not chunk:
                break
            output += chunk
    os.close(parent)
    if process.returncode != 0:
        raise SystemExit(f"{command}: {output.decode()}")
    return output.decode().replace("\r\n", "\n")


def main() -> int:
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        for number, command in enumerate(COMMANDS):
            if number:
                console.print()
            console.print(Text.assemble(("$ ", PROMPT_COLOUR), (command, "bold")))
            output = run_on_terminal(command, Path(folder))
            console.print(Text.from_ansi(output.strip("\n")))
    svg = console.export_svg(
        title="cllm", theme=THEME, code_format=FORMAT, unique_id="terminal", font_aspect_ratio=0.61
    )
    file.write_text(svg, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

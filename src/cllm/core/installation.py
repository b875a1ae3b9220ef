"""The installation of cllm: its extras, and the command that adds one.

Reads only the files that installers write. Imported when a package is missing.
"""

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

EXTRAS = {
    "bedrock": "botocore",
    "keyring": "keyring",
    "litellm": "litellm",
    "local": "xllamacpp",
    "postgres": "asyncpg",
    "server": "uvicorn",
}
"""Each extra, with a package that shows that it is installed."""


def install_command(extra: str) -> str:
    """Return the command that adds an extra, for the tool that installed cllm."""
    cllm = find_distribution("cllm")
    return build_command(
        extra,
        installed=(name for name, package in EXTRAS.items() if find_distribution(package)),
        origin=json.loads((cllm and cllm.read_text("direct_url.json")) or "{}"),
        python=sys.executable,
        prefix=sys.prefix,
        read=_read_text,
    )


def build_command(
    extra: str,
    *,
    installed: Iterable[str],
    origin: Mapping[str, Any],
    python: str,
    prefix: str,
    read: Callable[[str], str],
) -> str:
    """Return the command for an environment: its prefix, and a function that reads its files.

    `origin` is direct_url.json of the Python packaging standard: empty for a package index.
    pipx and uv record the requirement of a tool, so for them it also names the installed extras.
    """
    whole = _requirement(sorted({extra, *installed}), origin)
    single = _requirement([extra], origin)
    is_uv = any(line.startswith("uv =") for line in read(f"{prefix}/pyvenv.cfg").splitlines())
    if read(f"{prefix}/pipx_metadata.json"):
        if "/venvs/" not in prefix:
            return f"pipx run --spec {whole} cllm"
        return f"pipx install --force {whole}"
    if read(f"{prefix}/uv-receipt.toml"):
        return f"uv tool install {whole}"
    if is_uv and "/archive-v" in prefix:
        return f"uvx --from {whole} cllm"
    if is_uv:
        return f"uv pip install --python {shlex.quote(prefix)} {single}"
    return f"{shlex.quote(python)} -m pip install {single}"


def find_distribution(package: str) -> Distribution | None:
    try:
        return distribution(package)
    except PackageNotFoundError:
        return None


def _requirement(extras: Iterable[str], origin: Mapping[str, Any]) -> str:
    """Return the requirement as shell words: from a package index, a folder, a file or a URL."""
    url, suffix = origin.get("url"), f"[{','.join(extras)}]"
    if not url:
        return f"'cllm{suffix}'"
    if origin.get("dir_info", {}).get("editable"):
        return f"--editable '{url.removeprefix('file://')}{suffix}'"
    repository = origin.get("vcs_info", {}).get("vcs")
    return f"'cllm{suffix} @ {repository + '+' if repository else ''}{url}'"


def _read_text(path: str) -> str:
    """Return the text of a file; empty if it does not exist."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - core imports no pathlib
            return file.read()
    except (OSError, ValueError):
        return ""

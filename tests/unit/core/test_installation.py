"""The command that adds an extra, for each tool that installs cllm."""

import shlex
from typing import Any

import pytest

from cllm.core.installation import EXTRAS, build_command, install_command

WHEEL = {"url": "file:///dist/cllm-0.1.0-py3-none-any.whl", "archive_info": {}}
FOLDER = {"url": "file:///src/cllm", "dir_info": {}}
EDITABLE = {"url": "file:///src/cllm", "dir_info": {"editable": True}}
REPOSITORY = {"url": "https://git.example/cllm.git", "vcs_info": {"vcs": "git"}}


def command(prefix: str, files: dict[str, str], **changes: Any) -> str:
    environment: dict[str, Any] = {
        "installed": (),
        "origin": {},
        "python": f"{prefix}/bin/python",
        "prefix": prefix,
        "read": lambda path: files.get(path.removeprefix(f"{prefix}/"), ""),
    }
    return build_command("server", **(environment | changes))


@pytest.mark.parametrize(
    ("prefix", "files", "expected"),
    [
        ("/venv", {}, "/venv/bin/python -m pip install 'cllm[server]'"),
        ("/a b", {}, "'/a b/bin/python' -m pip install 'cllm[server]'"),
        (
            "/pipx/venvs/cllm",
            {"pipx_metadata.json": "{}"},
            "pipx install --force 'cllm[local,server]'",
        ),
        (
            "/pipx/.cache/9a99",
            {"pipx_metadata.json": "{}"},
            "pipx run --spec 'cllm[local,server]' cllm",
        ),
        (
            "/uv/tools/cllm",
            {"uv-receipt.toml": "[tool]", "pyvenv.cfg": "uv = 0.13.7\n"},
            "uv tool install 'cllm[local,server]'",
        ),
        (
            "/cache/uv/archive-v0/x",
            {"pyvenv.cfg": "home = /bin\nuv = 0.13.7\n"},
            "uvx --from 'cllm[local,server]' cllm",
        ),
        (
            "/venv",
            {"pyvenv.cfg": "home = /bin\nuv = 0.13.7\n"},
            "uv pip install --python /venv 'cllm[server]'",
        ),
    ],
    ids=["pip", "pip with a space", "pipx", "pipx run", "uv tool", "uvx", "uv venv"],
)
def test_the_command_is_that_of_the_tool_that_installed_cllm(prefix, files, expected):
    assert command(prefix, files, installed=("local",)) == expected


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (WHEEL, ["cllm[server] @ file:///dist/cllm-0.1.0-py3-none-any.whl"]),
        (FOLDER, ["cllm[server] @ file:///src/cllm"]),
        (EDITABLE, ["--editable", "/src/cllm[server]"]),
        (REPOSITORY, ["cllm[server] @ git+https://git.example/cllm.git"]),
    ],
)
def test_the_command_installs_from_the_same_source(origin, requirement):
    words = shlex.split(command("/venv", {}, origin=origin))
    assert words == ["/venv/bin/python", "-m", "pip", "install", *requirement]


def test_the_command_of_this_environment_is_one_line():
    for extra in EXTRAS:
        words = shlex.split(install_command(extra))
        assert "install" in words
        assert f"[{extra}]" in words[-1]

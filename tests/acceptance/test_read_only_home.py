"""A home folder on a read-only file system: reads work, writes fail with one sentence."""

import shutil
import subprocess

import pytest

SCRIPT = """
    set -e
    mount --bind "$1" "$1"
    mount -o remount,ro,bind "$1"
    shift
    exec "$@"
"""


@pytest.fixture
def run(home, settings, provider, cllm, tmp_path):
    """Runs a command in the working folder, with a read-only home."""
    probe = ["unshare", "-rm", "sh", "-c", SCRIPT, "sh", str(home.path), "true"]
    can_mount = shutil.which("unshare") is not None
    if not can_mount or subprocess.run(probe, check=False, capture_output=True).returncode:
        pytest.skip("this machine does not let us mount a file system in a namespace")
    for store in (f"json:{home.path}/.cllm/conversations", f"sqlite:{home.path}/cats.db"):
        cllm("Hello", "--conversation", "cats", "--store", store).succeeded()
    outside = tmp_path / "outside"
    outside.mkdir()
    wrapper = (*probe[:-1],)
    return lambda *arguments: cllm(*arguments, wrapper=wrapper, cwd=outside)


def test_conversation_files_are_read(run, home):
    before = home.snapshot()

    for arguments in (
        ("Hello",),
        ("conversations", "list"),
        ("conversations", "show", "cats"),
        ("search", "hello"),
        ("verify",),
        ("backup", "b.zip"),
        ("templates", "list"),
    ):
        run(*arguments).succeeded()
    assert home.snapshot() == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("Hello", "--conversation", "cats"), ("read-only", "--conversations-path")),
        (("conversations", "undo", "cats", "--yes"), ("read-only", "--conversations-path")),
        (("templates", "edit", "greet"), ("templates", "read-only")),
        (("init", "--global", "--as", "x"), ("x.Cllmfile.yml", "read-only")),
        (("models", "default", "openai/x"), ("Cllmfile.yml", "read-only")),
        (("conversations", "list", "--store", "sqlite:{home}/cats.db"), ("copy the file",)),
        (("conversations", "list", "--store", "sqlite:{home}/new.db"), ("read-only",)),
    ],
)
def test_writes_and_databases_fail_with_one_sentence(run, home, arguments, words):
    before = home.snapshot()

    result = run(*(word.format(home=home.path) for word in arguments))

    assert result.code == 1, result.report()
    (line,) = result.warnings
    for word in words:
        assert word.lower() in line.lower(), line
    is_conversation = "cats" in arguments
    assert ("--conversations-path" in line) == is_conversation
    assert home.snapshot() == before

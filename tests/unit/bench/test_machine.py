"""The description of the machine and of versions."""

import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "bench"))

import cllm
from machine import cllm_version, command_version, describe_machine, package_versions


def test_the_machine_has_no_host_name():
    machine = describe_machine()

    assert machine.cores >= 1
    assert machine.memory_gib >= 1
    assert machine.system.split()[0] in {"Linux", "Darwin"}


def test_the_version_has_the_source_tree_and_says_whether_the_files_differ(tmp_path, monkeypatch):
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, timeout=60)

    source, result = tmp_path / "src" / "a.py", tmp_path / "bench" / "results" / "a.json"
    for file in (source, result):
        file.parent.mkdir(parents=True)
        file.write_text("1")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "First")
    monkeypatch.setattr("machine.ROOT", tmp_path)

    tree = subprocess.check_output(["git", "rev-parse", "HEAD:src"], cwd=tmp_path, text=True)
    result.write_text("2")
    assert cllm_version() == f"{cllm.__version__} (source {tree[:10]})"
    source.write_text("2")
    assert cllm_version().endswith(", changed)")


def test_versions_of_packages_and_commands():
    assert package_versions(sys.executable, ["click", "msgspec"]).keys() == {"click", "msgspec"}
    assert command_version([sys.executable, "--version"]).startswith("3.")
    assert command_version(["no-such-command", "--version"]) == "unknown"

"""Attack lines run through the real tool in a real folder: nothing leaks and nothing is written."""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.integration.commands.attack_lines import (
    CLASSES,
    HONEST,
    HONEST_LIST,
    HONEST_LISTED,
    LISTED,
)

from cllm.commands.command_line import CommandEnvironment
from cllm.commands.permission import CommandRules
from cllm.commands.run import run_plan
from cllm.commands.tool import TOOL, CommandSettings, CommandTool
from cllm.core.message import ToolCall

HIDDEN = "CANARY-HIDDEN"
OUTSIDE = "CANARY-OUTSIDE"
# Parts of the names of hidden files, none of which a line contains by itself.
HIDDEN_NAMES = ("canary-name", "canary-folder")
GIT = ("git", "-c", "user.name=n", "-c", "user.email=e@x", "-c", "init.defaultBranch=main")


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A repository with secrets in hidden files, and a file outside of it."""
    top = tmp_path_factory.mktemp("attacks")
    (top / "outside.txt").write_text(f"{OUTSIDE}\n", encoding="utf-8")
    (top / "outside.json").write_text(f'{{"key": "{OUTSIDE}"}}\n', encoding="utf-8")
    folder: Path = top / "project"
    files = {
        "a.txt": "alpha\nbeta\nCANARY\n",
        "b.txt": "beta\nalpha\n",
        "Makefile": "test:\n\t@echo tested\n",
        "tool.py": "print('tool')\n",
        "other.py": "open('pwned', 'w')\n",
        "sub/code.py": "x = 'CANARY'\n",
        "sub/d/g": "g\n",
        "other/code.py": "x = 2\n",
        "-rf": "a file that looks like an option\n",
        ".env": f"KEY={HIDDEN}\n",
        ".canary-name": f"{HIDDEN}\n",
        ".canary-folder/key.py": f"# {HIDDEN} nowhere-else\n",
        "sub/.hidden/key": f"{HIDDEN}\n",
        "sub/.env": f"{HIDDEN}\n",
        "other/.env": f"{HIDDEN} other\n",
        ".gitignore": "!.env\n!.canary-name\n",
        ".gitattributes": "*.txt diff=x\n",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    script = folder / "run.sh"
    script.write_text("#!/bin/sh\ntouch pwned\ncat .env\n", encoding="utf-8")
    script.chmod(0o755)
    _archive(folder, top)
    _link(folder, top)
    subprocess.run([*GIT, "init", "-q"], cwd=folder, check=True)
    subprocess.run([*GIT, "add", "-A", "-f"], cwd=folder, check=True)
    subprocess.run([*GIT, "commit", "-qm", "First commit"], cwd=folder, check=True)
    subprocess.run([*GIT, "tag", "v1"], cwd=folder, check=True)
    subprocess.run([*GIT, "tag", "blobtag", "HEAD:.env"], cwd=folder, check=True)
    subprocess.run([*GIT, "config", "canary.key", HIDDEN], cwd=folder, check=True)
    for name in (".env", "sub/.env", "a.txt"):
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write(f"{HIDDEN} changed\n" if name.endswith(".env") else "changed\n")
    return folder


def _archive(folder: Path, top: Path) -> None:
    names = [".env", ".canary-name", "a.txt", "sub"]
    subprocess.run(["tar", "cf", top / "outside.tar", "outside.txt"], cwd=top, check=True)
    subprocess.run(["tar", "cf", "project.tar", "--", *names], cwd=folder, check=True)
    code = "import sys, zipfile\nwith zipfile.ZipFile('project.zip', 'w') as z:\n"
    code += "    [z.write(name) for name in sys.argv[1:]]"
    subprocess.run(["python3", "-c", code, *names[:3]], cwd=folder, check=True)
    (top / "outside.zip").write_bytes((folder / "project.zip").read_bytes())


def _link(folder: Path, top: Path) -> None:
    targets: dict[str, str | Path] = {
        "keylink": top / "outside.txt",
        "sub/deeplink": top / "outside.txt",
        "linkdir": top,
        "hiddenlink": ".env",
        "chainlink": "keylink",
        "rootlink": "/",
        "homelink": Path.home(),
        "proclink": "/proc/self/environ",
        "-": top,
        "tarlink": top / "outside.tar",
        "ziplink": top / "outside.zip",
        "link-to-sh": "/bin/sh",
        "link-to-cat": "/bin/cat",
    }
    for name, target in targets.items():
        (folder / name).symlink_to(target)


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    return {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}


def run_line(line: str, rules: CommandRules, project: Path, environment: dict[str, str]) -> str:
    tool = CommandTool(
        CommandSettings(rules=rules, timeout=10),
        env=CommandEnvironment(directory=project, environment=environment),
        run=run_plan,
        confirm=None,
        report=lambda _text: None,
    )
    call = ToolCall(id="c", name=TOOL, arguments=json.dumps({"command": line, "reason": ""}))
    return asyncio.run(tool.use(call))


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file, folder and link beside and below the folder with its size and its times."""
    found: dict[str, tuple[int, int]] = {}
    folders = [str(folder.parent)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                found[entry.path] = (status.st_size, status.st_mtime_ns)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return found


RULES = {"default": CommandRules(), "listed": CommandRules(allow=LISTED)}
ATTACKS = [(kind, line) for kind, lines in CLASSES.items() for line in lines]


def test_there_are_at_least_sixty_lines_in_each_class():
    assert all(len(set(lines)) >= 60 for lines in CLASSES.values())
    assert len({line for _, line in ATTACKS}) >= 300


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize("kind", CLASSES)
def test_an_attack_shows_nothing_hidden_and_writes_nothing(kind, rules, project, environment):
    leaks = {}
    for line in CLASSES[kind]:
        (project / "b.txt").touch()  # git would refresh its index
        before = snapshot(project)
        result = run_line(line, rules, project, environment)
        secrets = (HIDDEN, OUTSIDE, *HIDDEN_NAMES, "root:x")
        # A refusal may quote the line.
        shown = [word for word in secrets if word in result and word not in line]
        if shown:
            leaks[line] = (shown, result[:200])
        if snapshot(project) != before:
            leaks[line] = (["written"], result[:200])

    assert leaks == {}


@pytest.mark.parametrize("option", ["-Snowhere-else", "-G'nowhere.else'", "-S nowhere-else"])
def test_a_search_in_the_history_finds_nothing_in_hidden_files(option, project, environment):
    rules = CommandRules(allow=("git *",))

    assert run_line(f"git log {option} --oneline", rules, project, environment) == "(no output)"
    assert "First commit" in run_line("git log -Sbeta --oneline", rules, project, environment)


@pytest.mark.parametrize(
    "option",
    [
        *("-p", "-u", "-U1", "--compact-summary", "--name-only", "--name-status", "--numstat"),
        *("--patch", "--stat", "--summary", "--unified=1"),
    ],
)
def test_an_option_of_git_log_that_shows_files_shows_no_hidden_ones(option, project, environment):
    result = run_line(f"git log {option}", CommandRules(allow=("git *",)), project, environment)

    assert "a.txt" in result
    assert not any(word in result for word in (HIDDEN, *HIDDEN_NAMES))


@pytest.mark.parametrize(
    "line",
    [
        "git diff",
        "git diff HEAD",
        "git show",
        "git log -p",
        "git log --stat",
        "git blame a.txt",
        "git grep beta",
        "git status",
    ],
)
@pytest.mark.parametrize(
    "setting",
    ["core.fsmonitor", "diff.external", "diff.x.command", "diff.x.textconv"],
)
def test_a_setting_of_the_repository_runs_no_program(line, setting, tmp_path, environment):
    folder, written = tmp_path / "project", tmp_path / "written"
    folder.mkdir()
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch '{written}'\n", encoding="utf-8")
    program.chmod(0o755)
    (folder / "a.txt").write_text("alpha\nbeta\n", encoding="utf-8")
    (folder / ".gitattributes").write_text("*.txt diff=x\n", encoding="utf-8")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "First commit")):
        subprocess.run([*GIT, *words], cwd=folder, check=True, env=environment)
    subprocess.run([*GIT, "config", setting, program], cwd=folder, check=True, env=environment)
    (folder / "a.txt").write_text("alpha\nbeta\ngamma\n", encoding="utf-8")

    result = run_line(line, CommandRules(allow=("git *",)), folder, environment)

    assert not result.startswith(("Refused", "Error"))
    assert not written.exists()


@pytest.mark.parametrize(
    ("allow", "lines"),
    [(None, HONEST), (HONEST_LIST, HONEST_LISTED)],
    ids=["default", "listed"],
)
def test_a_harmless_line_runs_and_shows_its_output(allow, lines, project, environment):
    rules = CommandRules(allow=allow)
    wrong = {}
    for line, expected in lines.items():
        if shutil.which(line.split()[0]) is None:
            continue  # .ci/run installs the programs that a system may lack
        result = run_line(line, rules, project, environment)
        hidden = [word for word in (HIDDEN, OUTSIDE, *HIDDEN_NAMES) if word in result]
        if result.startswith(("Refused", "Error")) or expected not in result or hidden:
            wrong[line] = result[:300]

    assert wrong == {}

"""The runner reports a fault that is put into a copy of the sources, and nothing without one."""

import fnmatch
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.differential import execute
from tests.differential.catalogue.building import ask, case, plain_body, said
from tests.differential.execute import Group, Result, run_group
from tests.differential.model import CommandCase, Refusal, Run
from tests.differential.versions import Version, install
from tests.fake_provider import Reply

REPOSITORY = Path(__file__).parents[2]

# Names of protocols and of the package's way in, which no change of the inside can rename.
SEEDS: Mapping[str, tuple[str, str]] = {
    "an option is lost on its way": (r'"stop_sequences"', '"stop_words"'),
    "a field of the response changes": (r'"chat\.completion"', '"chat.completed"'),
    "a notice is lost": (r'"X-CLLM-Notice"', '"X-CLLM-Remark"'),
    "stored usage changes": (r"\bcache_read_input_tokens\b", "cache_read_input_token"),
    "an exit code changes": (r"sys\.exit\((\w+)\)", r"sys.exit(\1 and \1 + 2)"),
}
WAY_IN = "__main__.py"


def cases() -> Group:
    """A request for each seed, and a run of the command that fails."""
    counted = Reply(pieces=("One ", "two."), usage=(40, 5), cached=(1000, 200))
    stopped = plain_body("openai", said("user", "Hi"), stop=["X"], seed=5)
    kept = plain_body("anthropic", said("user", "Count"))
    return Group(
        name="seeded",
        cases=[
            case(
                "stop",
                "openai",
                "anthropic",
                "whole",
                "stateless",
                [ask("openai", "anthropic", stopped)],
            ),
            case(
                "usage",
                "anthropic",
                "anthropic",
                "stream",
                "new",
                [
                    ask(
                        "anthropic",
                        "anthropic",
                        kept,
                        mode="stream",
                        conversation="",
                        answers=[counted],
                    ),
                    ask("anthropic", "anthropic", kept, conversation="{conversation}"),
                ],
            ),
            CommandCase(
                id="command-fails",
                runs=(
                    Run(arguments=("Hi",), answers=(Refusal(status=500),)),
                    Run(arguments=("--conversation", "c", "Hi")),
                ),
            ),
        ],
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("versions")


@pytest.fixture(scope="module")
def sound(cache: Path) -> Version:
    return install(str(REPOSITORY), cache, REPOSITORY)


@pytest.fixture(scope="module")
def faulty(cache: Path) -> Version:
    """A copy of the sources with every seed in it."""
    copy = cache / "faulty"
    shutil.copytree(REPOSITORY / "src", copy / "src")
    shutil.copy(REPOSITORY / "pyproject.toml", copy)
    sown = dict.fromkeys(SEEDS, 0)
    for path in copy.rglob("*.py"):
        before = text = path.read_text(encoding="utf-8")
        for name, (pattern, replacement) in SEEDS.items():
            if "exit" not in name or path.name == WAY_IN:
                text, count = re.subn(pattern, replacement, text)
                sown[name] += count
        if text != before:
            path.write_text(text, encoding="utf-8")
    assert all(sown.values()), f"The sources have no place for a seed any more: {sown}"
    return install(str(copy), cache, REPOSITORY)


def compared(old: Version, new: Version, folder: Path) -> Result:
    return run_group(cases(), old, new, folder, rows=True)


def test_a_version_does_not_differ_from_itself(sound: Version, tmp_path: Path) -> None:
    result = compared(sound, sound, tmp_path)
    assert result.differences == []
    assert (result.requests, result.runs) == (3, 2)
    # The providers of both sides were asked by every request and every run.
    assert result.upstream == 2 * (3 + 2)
    assert result.rows > 0


def test_each_seeded_fault_is_reported(
    sound: Version, faulty: Version, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rows that differ for good need no second look.
    monkeypatch.setattr(execute, "ROWS_SECONDS", 0.0)
    found = compared(sound, faulty, tmp_path).differences
    expected = {
        ("stop/*", "upstream"): ("stop_sequences", "stop_words"),
        ("stop/*", "body"): ("chat.completion", "chat.completed"),
        ("stop/*", "notice"): ("field_left_out", ""),
        ("usage/*", "rows"): ('"cache_read_tokens": 1000', '"cache_read_tokens": 0'),
        ("command-fails", "exit"): ("1", "3"),
    }
    for (pattern, aspect), (old, new) in expected.items():
        lines = [
            line
            for difference in found
            if fnmatch.fnmatchcase(difference.case, pattern) and difference.aspect == aspect
            for line in difference.changed
        ]
        assert any(line[0] == "-" and old in line for line in lines), (pattern, aspect, lines)
        assert any(line[0] == "+" and new in line for line in lines), (pattern, aspect, lines)

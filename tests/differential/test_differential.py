"""The runner reports faults in a copy of the sources, and nothing without a fault."""

import fnmatch
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.differential import runner
from tests.differential.catalogue.builders import make_body, make_call, make_case, make_message
from tests.differential.model import CommandCase, Refusal, Run
from tests.differential.runner import Group, Result, run_group
from tests.differential.versions import Version, install
from tests.fake_provider import Reply

REPOSITORY = Path(__file__).parents[2]

# Patterns use protocol names and the entry point only, which internal changes do not rename.
FAULTS: Mapping[str, tuple[str, str]] = {
    "an option is lost": (r'"stop_sequences"', '"stop_words"'),
    "a field of the response changes": (r'"chat\.completion"', '"chat.completed"'),
    "a notice is lost": (r'"X-CLLM-Notice"', '"X-CLLM-Remark"'),
    "stored usage changes": (r"\bcache_read_input_tokens\b", "cache_read_input_token"),
    "an exit code changes": (r"sys\.exit\((\w+)\)", r"sys.exit(\1 and \1 + 2)"),
}
ENTRY_POINT = "__main__.py"


def make_group() -> Group:
    """Return a request for each fault, and a run of the command that fails."""
    reply = Reply(pieces=("One ", "two."), usage=(40, 5), cached=(1000, 200))
    with_stop = make_body("openai", make_message("user", "Hi"), stop=["X"], seed=5)
    question = make_body("anthropic", make_message("user", "Count"))
    return Group(
        name="seeded",
        cases=[
            make_case(
                "stop",
                "openai",
                "anthropic",
                "whole",
                "stateless",
                [make_call("openai", "anthropic", with_stop)],
            ),
            make_case(
                "usage",
                "anthropic",
                "anthropic",
                "stream",
                "new",
                [
                    make_call(
                        "anthropic",
                        "anthropic",
                        question,
                        mode="stream",
                        conversation="",
                        answers=[reply],
                    ),
                    make_call("anthropic", "anthropic", question, conversation="{conversation}"),
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
def correct_version(cache: Path) -> Version:
    return install(str(REPOSITORY), cache, REPOSITORY)


@pytest.fixture(scope="module")
def faulty_version(cache: Path) -> Version:
    """A copy of the sources with every fault."""
    copy = cache / "faulty"
    shutil.copytree(REPOSITORY / "src", copy / "src")
    shutil.copy(REPOSITORY / "pyproject.toml", copy)
    counts = dict.fromkeys(FAULTS, 0)
    for path in copy.rglob("*.py"):
        before = text = path.read_text(encoding="utf-8")
        for name, (pattern, replacement) in FAULTS.items():
            if "exit" not in name or path.name == ENTRY_POINT:
                text, count = re.subn(pattern, replacement, text)
                counts[name] += count
        if text != before:
            path.write_text(text, encoding="utf-8")
    assert all(counts.values()), f"Update the pattern of a fault without a match: {counts}"
    return install(str(copy), cache, REPOSITORY)


def run_cases(old: Version, new: Version, folder: Path) -> Result:
    return run_group(make_group(), old, new, folder, rows=True)


def test_a_version_does_not_differ_from_itself(correct_version: Version, tmp_path: Path) -> None:
    result = run_cases(correct_version, correct_version, tmp_path)
    assert result.differences == []
    assert (result.requests, result.runs) == (3, 2)
    # Every request and every run of both versions called the provider.
    assert result.upstream == 2 * (3 + 2)
    assert result.rows > 0


def test_each_seeded_fault_is_reported(
    correct_version: Version,
    faulty_version: Version,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Do not wait for rows to become equal.
    monkeypatch.setattr(runner, "ROWS_SECONDS", 0.0)
    differences = run_cases(correct_version, faulty_version, tmp_path).differences
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
            for difference in differences
            if fnmatch.fnmatchcase(difference.case, pattern) and difference.aspect == aspect
            for line in difference.changed
        ]
        assert any(line[0] == "-" and old in line for line in lines), (pattern, aspect, lines)
        assert any(line[0] == "+" and new in line for line in lines), (pattern, aspect, lines)

"""What the quick commands load and leave behind: nothing heavy, and nothing."""

import re
import sys
from pathlib import Path

import pytest

HEAVY = {
    "aiohttp",
    "botocore",
    "genai_prices",
    "jinja2",
    "jsonschema",
    "litellm",
    "markdown_it",
    "prompt_toolkit",
    "rich",
    "sqlalchemy",
    "starlette",
    "xllamacpp",
}


def imported_packages(err: str) -> set[str]:
    """The top-level packages in the import times that Python wrote to stderr."""
    names = re.findall(r"^import time:.*\|\s*([\w.]+)$", err, re.MULTILINE)
    return {name.partition(".")[0] for name in names}


@pytest.fixture
def packages(cllm):
    def run(*arguments):
        cllm.command = (sys.executable, "-X", "importtime", "-m", "cllm")
        result = cllm(*arguments).succeeded()
        found = imported_packages(result.err)
        assert "cllm" in found, result.report()
        return found

    return run


def test_the_version_loads_nothing_heavy(packages):
    assert packages("--version") & HEAVY == set()


def test_the_list_of_conversations_loads_nothing_heavy(home, settings, packages):
    home.write_old_conversation("demo", ("user", "Hello"), ("assistant", "Hi."))

    assert packages("--list-conversations") & HEAVY == set()


def test_a_turn_with_a_provider_loads_no_other_ones_library(settings, packages):
    assert packages("Hello") & HEAVY == set()


def test_importing_the_package_loads_nothing_heavy(cllm):
    cllm.command = (sys.executable, "-X", "importtime", "-c", "import cllm")

    found = imported_packages(cllm().succeeded().err)

    assert "cllm" in found
    assert found & HEAVY == set()


@pytest.mark.parametrize("flag", ["--version", "--help", "--list-models", "--list-conversations"])
def test_a_command_that_only_reads_creates_nothing(flag, home, cllm):
    cllm(flag).succeeded()

    assert home.entries() == []


def test_the_version_is_that_of_the_package(cllm):
    cllm.command = (sys.executable, "-c", "import cllm; print(cllm.__version__)")
    version = cllm().succeeded().out.strip()
    cllm.command = (sys.executable, "-m", "cllm")
    module = cllm("--version").succeeded()
    cllm.command = (str(Path(sys.executable).with_name("cllm")),)
    script = cllm("--version").succeeded()

    assert re.fullmatch(r"\d+\.\d+.*", version)
    assert version in module.out
    assert script.out == module.out
    assert module.err == script.err == ""


def test_help_names_the_flags(cllm):
    result = cllm("--help").succeeded()

    for flag in (
        "--model",
        "--temperature",
        "--max-tokens",
        "--stream",
        "--raw",
        "--system",
        "--system-file",
        "--cllm-path",
        "--conversations-path",
        "--list-models",
        "--version",
        "--conversation",
        "--list-conversations",
        "--show-conversation",
        "--delete-conversation",
        "--read-only",
    ):
        assert re.search(rf"{flag}\b", result.out), flag


def test_the_list_of_models_names_the_local_one(cllm):
    assert "smollm2-135m" in cllm("--list-models").succeeded().out


def test_only_modules_are_excluded_from_garbage_collection(cllm):
    program = """
import atexit, gc, sys

sys.argv = ["cllm", "--list-conversations"]
from cllm.__main__ import main

atexit.register(lambda: print(gc.isenabled(), gc.get_freeze_count() > 10_000))
main()
"""
    cllm.command = (sys.executable, "-c", program)

    assert cllm().succeeded().out.endswith("True True\n")

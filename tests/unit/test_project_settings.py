"""The settings of the checks name only packages that exist, and all of them."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.package_coverage import coverage_by_package

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]


def list_modules() -> set[str]:
    """Return the dotted names of all packages and modules of cllm."""
    paths = (path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths}


def list_contract_modules() -> Iterator[str]:
    """Yield the modules that import contracts name."""
    for contract in SETTINGS["importlinter"]["contracts"]:
        yield from contract.get("source_modules", ())
        yield from contract.get("modules", ())
        for container in contract.get("containers", ()):
            for layer in contract["layers"]:
                yield from (f"{container}.{name.strip()}" for name in layer.split("|"))


def test_contracts_name_modules_that_exist():
    assert set(list_contract_modules()) <= list_modules()


def test_the_layers_name_every_package():
    top = {name for name in list_modules() if name.count(".") == 1}
    layers = SETTINGS["importlinter"]["contracts"][0]["layers"]
    assert {f"cllm.{name.strip()}" for layer in layers for name in layer.split("|")} == top


@pytest.mark.parametrize("pattern", SETTINGS["ruff"]["lint"]["per-file-ignores"])
def test_exceptions_of_ruff_name_existing_folders(pattern: str):
    assert list(ROOT.glob(pattern))


def test_ruff_and_mypy_check_existing_folders():
    for folder in (*SETTINGS["ruff"]["src"], *SETTINGS["mypy"]["files"]):
        assert (ROOT / folder).is_dir()
    assert {"src", "tests", "bench"} == set(SETTINGS["mypy"]["files"])


def test_coverage_is_measured_of_every_package():
    coverage = SETTINGS["coverage"]
    assert coverage["run"]["source"] == ["cllm"]
    assert not {"omit", "include"} & (coverage["run"].keys() | coverage["report"].keys())


def test_coverage_is_added_up_by_package():
    def counts(lines: int, branches: int) -> dict[str, Any]:
        covered = {"covered_lines": lines, "covered_branches": branches}
        return {"summary": {**covered, "num_statements": 10, "num_branches": 10}}

    report = {
        "files": {
            "src/cllm/app.py": counts(10, 10),
            "src/cllm/core/message.py": counts(10, 5),
            "src/cllm/core/ports/store.py": counts(5, 0),
        }
    }

    assert coverage_by_package(report) == {"cllm": 100.0, "cllm.core": 50.0}

"""Workflows, issue forms and the files that a repository page shows."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"
TARGET = re.compile(r"^([a-z-]+(?: [a-z-]+)*):", re.MULTILINE)


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def list_steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def list_targets() -> set[str]:
    rules = TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8"))
    return {name for rule in rules for name in rule.split()}


def test_the_tests_run_with_every_supported_python_on_linux_and_macos():
    workflow = load(WORKFLOWS / "ci.yml")
    job = workflow["jobs"]["test"]

    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert job["strategy"]["matrix"]["system"] == ["ubuntu-latest", "macos-latest"]
    assert any(step.get("run") == ".ci/run" for step in job["steps"])
    assert any("playwright install" in step.get("run", "") for step in job["steps"])


@pytest.mark.parametrize("path", sorted(WORKFLOWS.iterdir()), ids=lambda path: path.name)
def test_a_workflow_runs_existing_scripts_and_targets_with_read_access(path):
    workflow = load(path)
    commands = "\n".join(step.get("run", "") for step in list_steps(workflow))

    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] for job in workflow["jobs"].values())
    assert all("run" in step or "@" in step["uses"] for step in list_steps(workflow))
    for script in re.findall(r"\.ci/\w+", commands):
        assert os.access(ROOT / script, os.X_OK)
    for targets in re.findall(r"^make ([a-z -]+)$", commands, re.MULTILINE):
        assert set(targets.split()) <= list_targets()


def test_a_release_is_checked_attested_and_published_without_a_stored_token():
    workflow = load(WORKFLOWS / "release.yml")
    publish = workflow["jobs"]["publish"]
    text = (WORKFLOWS / "release.yml").read_text(encoding="utf-8")

    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads `on` as true
    assert publish["needs"] == "build"
    assert publish["permissions"]["id-token"] == "write"
    assert publish["environment"] == "pypi"
    assert "secrets." not in text
    assert "password" not in text
    for part in (".ci/package", "make sbom", "actions/attest@", "sbom-path"):
        assert part in text


def test_the_actions_of_the_workflows_are_updated_every_week():
    (update,) = load(ROOT / ".github" / "dependabot.yml")["updates"]

    assert update["package-ecosystem"] == "github-actions"
    assert update["directory"] == "/"
    assert update["schedule"] == {"interval": "weekly"}


def test_the_documentation_is_published_and_its_links_are_checked_every_week():
    workflow = load(WORKFLOWS / "docs.yml")
    jobs = workflow["jobs"]
    commands = {name: [step.get("run") for step in job["steps"]] for name, job in jobs.items()}

    assert workflow[True]["push"] == {"branches": ["main"]}
    assert workflow[True]["schedule"]
    assert "make docs" in commands["build"]
    assert "make docs-links" in commands["links"]
    assert jobs["publish"]["permissions"] == {"id-token": "write", "pages": "write"}
    uploaded = next(step for step in jobs["build"]["steps"] if "pages" in step.get("uses", ""))
    assert f"docs {uploaded['with']['path']}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_an_issue_form_is_complete(name):
    form = load(FORMS / f"{name}.yml")

    assert {"name", "description", "labels", "body"} <= set(form)
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


@pytest.mark.parametrize(
    "name", ["AGENTS.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"]
)
def test_the_links_of_a_top_level_page_lead_to_existing_files(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert "://" in link or (ROOT / link).exists(), link


def test_every_target_and_folder_that_agents_read_about_exists():
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= list_targets()
    for path in re.findall(r"`((?:src|tests|docs|bench|requirements|\.ci)/[\w./-]*)`", text):
        assert (ROOT / path).exists(), path

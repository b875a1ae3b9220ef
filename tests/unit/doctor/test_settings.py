"""Findings about the Cllmfiles."""

from pathlib import Path

import msgspec
import pytest

from cllm.doctor import Finding
from cllm.doctor.settings import check_settings
from cllm.settings.layers import CommandLine, Environment
from cllm.settings.load import Settings


@pytest.fixture
def env(tmp_path):
    (tmp_path / "home/.cllm").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    return Environment(home=tmp_path / "home", directory=tmp_path / "work", environment={})


def write_home(env: Environment, text: str, mode: int = 0o600) -> Path:
    path = env.home / ".cllm/Cllmfile.yml"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def check(env: Environment, *, fix: bool = False) -> tuple[list[Finding], Settings | None]:
    return check_settings(env, CommandLine(), fix=fix)


def test_without_a_file_the_defaults_apply(env):
    findings, settings = check(env)

    assert [(one.level, one.message) for one in findings] == [
        ("ok", "no Cllmfile.yml exists; the defaults apply.")
    ]
    assert settings is not None


def test_an_invalid_file_does_not_hide_the_others(env):
    own = write_home(env, "model: a/b")
    (env.directory / "Cllmfile.yml").write_text("- a", encoding="utf-8")

    findings, settings = check(env)

    assert [one.level for one in findings] == ["ok", "problem"]
    assert findings[0].message == f"{own} applies; it is your own."
    assert settings is not None
    assert settings.model == "a/b"


def test_settings_with_a_wrong_type_are_a_problem(env):
    write_home(env, "stream: often")

    findings, settings = check(env)

    assert findings[-1].level == "problem"
    assert settings is None


@pytest.mark.parametrize(
    ("key", "advice"), [("temperatur", "did you mean `temperature`?"), ("frob", "remove it")]
)
def test_an_unknown_key_is_a_warning(env, key, advice):
    write_home(env, f"{key}: 1")

    assert advice in check(env)[0][1].message


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("api_key: sk-1", "warning"),
        ("providers: {openai: {api_key: sk-1}}", "warning"),
        ("api_key: '${OPENAI_API_KEY}'", "ok"),
    ],
)
def test_a_key_in_a_file_that_others_can_read_is_a_warning(env, text, level):
    write_home(env, text, mode=0o644)

    assert check(env)[0][-1].level == level


def test_fix_removes_the_access_of_other_users(env):
    path = write_home(env, "api_key: sk-1", mode=0o644)

    finding = check(env, fix=True)[0][-1]

    assert finding.fixed
    assert path.stat().st_mode & 0o777 == 0o600


def test_variables_of_older_deployments_are_reported(env):
    variables = {"API_TOKENS": "a,b", "REQUIRE_AUTH": "true", "REASONING_DATABASE_URL": " "}
    findings, settings = check(msgspec.structs.replace(env, environment=variables))

    assert settings is not None
    assert [one.level for one in findings] == ["warning", "warning"]
    assert "API_TOKENS is ignored; list the keys under `server.keys`" in findings[0].message
    assert "REQUIRE_AUTH is ignored" in findings[1].message

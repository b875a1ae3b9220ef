"""Every command works without the extras that it does not need, and names the one that it needs.

The environments are real ones that have nothing but cllm's dependencies and some of its extras.
"""

import json

import pytest
from tests.command import Result
from tests.fake_provider import WAIT
from tests.fake_provider.server import closed_port
from tests.forking import DATABASE_MODULES, ForkServer, fork_server
from tests.minimal_environment import make_environment, resolve_dependencies

from cllm.cli.main import ASK, COMMANDS

ALL = ("bedrock", "local", "postgres", "server")
ENVIRONMENTS = [(), ("bedrock", "local"), ("postgres", "server")]
"""Each extra is missing in one of them and installed in another."""
NOWHERE = "postgresql://127.0.0.1:9/nothing"

# What needs no extra.
PLAIN = [
    ("--help",),
    ("--version",),
    ("--list-conversations",),
    ("--list-models",),
    ("--show-config",),
    ("--validate-schema", "--json-schema", '{"type": "object"}'),
    ("--clear-schema-cache",),
    ("Hello",),
    ("Hello", "--no-stream", "-vvv", "--log-file", "cllm.log"),
    ("Hello", "--raw"),
    ("Hello", "--conversation", "demo", "--exec", "echo hi"),
    ("Hello", "--conversation", "demo", "--store", "sqlite:cats.db"),
    ("Hello", "--store", "memory:", "--conversation"),
    ("Hello", "--allow-commands", "--attach", "note.txt"),
    ("--show-conversation", "demo"),
    ("conversations", "list"),
    ("conversations", "show", "demo"),
    ("conversations", "stats"),
    ("search", "Hello"),
    ("verify",),
    ("backup", "cats.backup"),
    ("restore", "cats.backup"),
    ("templates", "list"),
    ("keys", "list"),
    ("conversations", "branch", "demo", "--to", "other"),
    ("conversations", "migrate", "--add-system-prompt", "--dry-run"),
    ("conversations", "--store", "sqlite:cats.db", "list"),
    ("conversations", "delete", "other", "--yes"),
    ("--delete-conversation", "demo"),
    ("chat", "talk"),
    ("chat", "--no-save"),
    ("chat", "talk", "--store", "sqlite:cats.db"),
    ("db", "upgrade"),
    ("db", "current"),
    ("db", "check"),
    ("db", "current", "--store", "sqlite:cats.db"),
    ("db", "check", "--store", "sqlite:cats.db"),
    ("models", "list"),
    ("init",),
    ("init", "--list-templates"),
    ("trust",),
    ("completion", "bash"),
    ("doctor",),
]
# What fails in every environment, in one sentence.
FAILING = [
    ("db", "downgrade", "0009", "--store", "sqlite:cats.db"),
    ("db", "adopt", "--store", "sqlite:cats.db"),
    ("models", "remove", "nothing"),
    ("models", "pull", "hf:nothing"),
    ("-m", "nobody/x", "Hello"),
    ("-m", "anthropic/claude-x", "Hello"),
    ("-m", "litellm/openai/x", "Hello"),
]
# What needs an extra, and fails anyway: nobody listens there.
NEEDING = [
    ("local", ("-m", "local/./broken.gguf", "Hello")),
    ("local", ("models", "pull", "nothing")),
    ("bedrock", ("-m", "bedrock/x", "Hello")),
    ("server", ("serve", "--host", "0.0.0.0")),
    ("postgres", ("--list-conversations", "--store", NOWHERE)),
    ("postgres", ("Hello", "--conversation", "x", "--store", NOWHERE)),
    ("postgres", ("conversations", "--store", NOWHERE, "list")),
    ("postgres", ("chat", "x", "--store", NOWHERE)),
    ("postgres", ("db", "current", "--store", NOWHERE)),
    ("postgres", ("db", "check", "--store", NOWHERE)),
    ("postgres", ("db", "upgrade", "--store", NOWHERE)),
    ("postgres", ("db", "downgrade", "0001", "--store", NOWHERE)),
    ("postgres", ("db", "adopt", "--store", NOWHERE)),
]


def test_the_lists_name_every_extra_that_users_can_install():
    for extra in (*ALL, "litellm"):
        assert resolve_dependencies("cllm", (extra,)) > resolve_dependencies("cllm", ())


@pytest.fixture(scope="module", params=ENVIRONMENTS, ids=lambda extras: "+".join(extras) or "none")
def installed(request, tmp_path_factory):
    """The extras of an environment, and a process in it that has imported cllm."""
    python = make_environment(tmp_path_factory.mktemp("environment") / "venv", request.param)
    server = ForkServer(DATABASE_MODULES, python=python)
    yield request.param, server
    server.close()


@pytest.fixture
def run(installed, cllm, settings):
    settings(
        providers={"bedrock": {"endpoint_url": "http://127.0.0.1:9"}},
        default_system_message="Be brief.",
    )
    (cllm.home.work / "broken.gguf").write_bytes(b"GGUF and nothing more")
    (cllm.home.work / "note.txt").write_text("Hi.", encoding="utf-8")
    environment = cllm.environment(
        {
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    )

    def start(*arguments):
        done = (
            installed[1].start(arguments, environment, cllm.home.work).communicate(b"/list\n", WAIT)
        )
        error = done.stderr.decode()
        assert "Traceback" not in error, f"{arguments}: {error}"
        assert done.returncode in (0, 1), f"{arguments}: {done.returncode} {error}"
        return done.returncode, error

    return start


@pytest.mark.parametrize("installed", [()], indirect=True, ids=["none"])
def test_commands_without_extras_work_without_any(installed, run, provider):
    for arguments in PLAIN:
        code, error = run(*arguments)
        assert code == 0, f"{arguments}: {error}"


@pytest.mark.parametrize("installed", [()], indirect=True, ids=["none"])
def test_a_failure_without_extras_is_one_sentence(run):
    for arguments in FAILING:
        code, error = run(*arguments)
        assert code == 1
        assert len(error.splitlines()) == 1, f"{arguments}: {error}"


def test_a_missing_extra_is_named(installed, run):
    for extra, arguments in NEEDING:
        code, error = run(*arguments)
        assert code == 1
        assert len(error.splitlines()) == 1, f"{arguments}: {error}"
        advised = f"[{extra}]'" in error and "pip install" in error
        assert advised is (extra not in installed[0]), f"{arguments}: {error}"


@pytest.mark.parametrize("installed", [()], indirect=True, ids=["none"])
@pytest.mark.parametrize("arguments", [("Hello",), ("chat",)], ids=["prompt", "chat"])
def test_without_a_key_the_first_error_also_says_how_to_use_a_hosted_model(
    installed, cllm, arguments
):
    environment = cllm.environment({"OLLAMA_HOST": f"127.0.0.1:{closed_port()}"})
    started = installed[1].start(arguments, environment, cllm.home.work)
    done = started.communicate(b"Hello\n", WAIT)

    assert done.returncode == 1
    assert done.stdout == b""
    (line,) = done.stderr.decode().splitlines()
    assert "[local]'" in line
    assert line.endswith("; or save the key of a hosted provider: cllm keys set PROVIDER")


@pytest.mark.parametrize("installed", [()], indirect=True, ids=["none"])
def test_the_demo_names_the_extra_that_it_needs(installed, run):
    code, error = run("demo", "--no-open")
    assert code == 1
    assert "[server]'" in error


def test_the_lists_contain_every_command():
    lines = (*PLAIN, *FAILING, *(line for _, line in NEEDING), ("demo",))
    assert set(COMMANDS) - {ASK} <= {line[0] for line in lines}


def test_the_doctor_says_which_extras_are_installed(installed, cllm, settings):
    environment = cllm.environment()
    done = installed[1].start(("doctor", "--json"), environment, cllm.home.work)
    findings = json.loads(done.communicate(b"", WAIT).stdout)["findings"]

    (line,) = (one["message"] for one in findings if one["check"] == "extras")
    for extra in (*ALL, "litellm"):
        assert (f"{extra} not installed" in line) is (extra not in installed[0])


@pytest.mark.parametrize(
    "module", ["starlette", "uvicorn", "httptools", "uvloop", "asyncpg", "greenlet"]
)
def test_a_single_package_that_is_missing_is_no_traceback(module, cllm, settings):
    program = f"import sys; sys.modules[{module!r}] = None; from cllm.__main__ import main; main()"

    for arguments in (("serve", "--host", "0.0.0.0"), ("db", "current", "--store", NOWHERE)):
        forked = fork_server().start(arguments, cllm.environment(), cllm.home.work, source=program)
        done = forked.communicate(b"", WAIT)
        Result(done.returncode, "", done.stderr.decode()).failed_with_one_sentence()

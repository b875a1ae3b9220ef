"""What an import costs: nothing heavy is loaded before it is needed."""

import subprocess
import sys

import pytest

HEAVY = (
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
)


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after this statement."""
    program = f"import sys; {statement}; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
        env={},  # without the variables of `make coverage`, whose modules would count
    )
    return {name.split(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import cllm", {*HEAVY, "asyncio", "click", "yaml"}),
        ("import cllm.cli.main", {*HEAVY}),
        ("import cllm.app", {*HEAVY}),
        ("import cllm.settings.load", {*HEAVY, "asyncio", "yaml"}),
    ],
)
def test_an_import_loads_nothing_heavy(statement, forbidden):
    loaded = loaded_by(statement)

    assert "cllm" in loaded
    assert not loaded & forbidden


@pytest.mark.parametrize("layer", ["core.ports", "history.repair", "wire.openai.response_decoder"])
def test_the_pure_layers_load_no_event_loop_and_no_network(layer):
    assert not loaded_by(f"import cllm.{layer}") & {*HEAVY, "asyncio", "click", "socket", "yaml"}


def test_the_package_has_a_version():
    import cllm  # noqa: PLC0415

    assert cllm.__version__.count(".") == 2

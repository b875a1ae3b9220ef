"""Imports are cheap: slow libraries are loaded only when they are used."""

import subprocess
import sys

import pytest

SLOW_LIBRARIES = (
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


def list_loaded_modules(statement: str) -> set[str]:
    """Return the top-level modules of a new interpreter after this statement."""
    program = f"import sys; {statement}; print(' '.join(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
        env={},  # without the variables of `make coverage`, which load more modules
    )
    return {name.split(".")[0] for name in result.stdout.split()}


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import cllm", {*SLOW_LIBRARIES, "asyncio", "click", "yaml"}),
        ("import cllm.cli.main", {*SLOW_LIBRARIES}),
        ("import cllm.app", {*SLOW_LIBRARIES}),
        ("import cllm.settings.load", {*SLOW_LIBRARIES, "asyncio", "yaml"}),
    ],
)
def test_an_import_loads_no_slow_library(statement, forbidden):
    loaded = list_loaded_modules(statement)

    assert "cllm" in loaded
    assert not loaded & forbidden


@pytest.mark.parametrize("layer", ["core.ports", "history.repair", "wire.openai.response_decoder"])
def test_the_pure_layers_load_no_event_loop_and_no_network(layer):
    assert not list_loaded_modules(f"import cllm.{layer}") & {
        *SLOW_LIBRARIES,
        "asyncio",
        "click",
        "socket",
        "yaml",
    }


def test_the_package_has_a_version():
    import cllm  # noqa: PLC0415

    assert cllm.__version__.count(".") == 2

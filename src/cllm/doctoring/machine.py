"""What cllm runs on: versions, and which extras are installed."""

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from cllm import __version__
from cllm.doctoring.finding import Finding, ok, problem

CHECK = "versions"
PACKAGES = ("aiohttp", "click", "genai-prices", "Jinja2", "jsonschema", "msgspec", "PyYAML")
# Each extra by the package that it is for.
EXTRAS = {
    "bedrock": "botocore",
    "litellm": "litellm",
    "local": "xllamacpp",
    "postgres": "asyncpg",
    "server": "uvicorn",
}


def check_machine() -> Iterator[Finding]:
    found = {package: _version(package) for package in PACKAGES}
    listed = ", ".join(f"{package} {number}" for package, number in found.items() if number)
    yield ok(CHECK, f"cllm {__version__}, Python {platform.python_version()}, {listed}.")
    missing = [package for package, number in found.items() if number is None]
    if missing:
        yield problem(CHECK, f"{', '.join(missing)} not installed; run: pip install cllm")
    yield ok("extras", ", ".join(f"{extra} {_state(extra)}" for extra in EXTRAS) + ".")


def is_installed(extra: str) -> bool:
    return _version(EXTRAS[extra]) is not None


def _state(extra: str) -> str:
    number = _version(EXTRAS[extra])
    return "not installed" if number is None else f"installed ({EXTRAS[extra]} {number})"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

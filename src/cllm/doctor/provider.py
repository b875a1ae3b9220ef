"""Checks of the installed packages and of the provider.

The check of an address only connects: it sends no data and no key.
"""

import asyncio
import platform
import socket
import ssl
import threading
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import urlsplit

from cllm import __version__
from cllm.core.errors import CllmError, ProviderError
from cllm.doctor import Finding, ok, problem
from cllm.provider_factory import ProviderFactory, find_model_cache
from cllm.providers.http.transport import find_proxy, format_origin
from cllm.providers.local.models import resolve_model_file
from cllm.providers.registry import BUILTIN_PROVIDERS, LOCAL, ResolvedModel
from cllm.settings.load import Settings

MODEL, KEY, REACH = "model", "key", "provider"
CONNECT_SECONDS = 5.0
PORTS = {"http": 80, "https": 443}
MEGABYTE = 1_000_000
CHECK = "versions"
PACKAGES = ("aiohttp", "click", "genai-prices", "Jinja2", "jsonschema", "msgspec", "PyYAML")
# The package by which each extra is recognised.
EXTRAS = {
    "bedrock": "botocore",
    "litellm": "litellm",
    "local": "xllamacpp",
    "postgres": "asyncpg",
    "server": "uvicorn",
}


def check_provider(settings: Settings, opener: ProviderFactory, model: str) -> Iterator[Finding]:
    try:
        served = opener.resolve(model)
        access = opener.get_endpoint(served.provider)
    except CllmError as error:
        yield problem(MODEL, str(error))
        return
    where = "" if settings.model else ", as no other is set"
    yield ok(MODEL, f"{model} is served by the provider '{served.provider}'{where}.")
    if served.provider == LOCAL:
        yield _check_local_model(settings, served)
        return
    if access.kind == "bedrock":
        yield _check_bedrock(opener, served)
    else:
        yield _check_key(opener, served.provider)
    if access.address is None:
        yield ok(REACH, f"'{served.provider}' has no address here to try.")
    else:
        yield _check_connection(served.provider, access.address)


def _check_local_model(settings: Settings, served: ResolvedModel) -> Finding:
    if _version(EXTRAS["local"]) is None:
        advice = "install it with: pip install 'cllm[local]'"
        return problem(REACH, f"local models need what is not installed; {advice}")
    env = settings.env
    try:
        file = resolve_model_file(
            served.name, find_model_cache(env), cwd=env.directory, home=env.home
        )
    except CllmError as error:
        return problem(REACH, str(error))
    if file.is_complete:
        return ok(REACH, f"the model file {file.path} is there.")
    if file.known is None:
        return problem(REACH, f"there is no model file {file.path}; check the path.")
    size = f"{file.known.size / MEGABYTE:.0f} MB"
    return ok(REACH, f"the model is not here yet; its first use fetches {size}.")


def _check_key(opener: ProviderFactory, name: str) -> Finding:
    try:
        if opener.has_key(name):
            return ok(KEY, f"a key for '{name}' is set.")
    except CllmError as error:
        return problem(KEY, str(error))
    needs = (
        "is given none"
        if name not in BUILTIN_PROVIDERS or BUILTIN_PROVIDERS[name].key
        else "needs none"
    )
    return ok(KEY, f"'{name}' {needs}.")


def _check_bedrock(opener: ProviderFactory, served: ResolvedModel) -> Finding:
    async def look() -> None:
        provider = opener.open(served)
        try:
            await provider.prepare()
        finally:
            await provider.close()

    try:
        asyncio.run(look())
    except ProviderError as error:
        return problem(KEY, str(error))
    return ok(KEY, "AWS credentials or a Bedrock key were found.")


def _check_connection(name: str, address: str) -> Finding:
    try:
        proxy = find_proxy(address)
        if proxy is None:
            target = urlsplit(address)
        else:
            target = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        host, port = target.hostname, target.port or PORTS.get(target.scheme, 80)
    except ValueError:
        host, port = None, 0
    if host is None:
        return problem(REACH, f"the address of '{name}' is none; correct its `api_base`.")
    secure = proxy is None and target.scheme == "https"
    failure = _connection_failure(host, port, secure=secure)
    by = "" if proxy is None else f" by the proxy {host}"
    if failure is None:
        return ok(REACH, f"'{name}' can be reached at {format_origin(address)}{by}.")
    advice = "check the network, the proxy and `api_base`"
    return problem(
        REACH, f"'{name}' cannot be reached at {format_origin(address)}{by} ({failure}); {advice}."
    )


def _connection_failure(host: str, port: int, *, secure: bool) -> str | None:
    """Why a connection fails, or None. In a thread, as a name lookup has no timeout."""
    outcome: list[str | None] = []

    def attempt() -> None:
        try:
            with socket.create_connection((host, port), timeout=CONNECT_SECONDS) as plain:
                if secure:
                    with ssl.create_default_context().wrap_socket(plain, server_hostname=host):
                        pass
        except (OSError, ValueError) as error:
            outcome.append(getattr(error, "strerror", None) or str(error) or "no connection")
        else:
            outcome.append(None)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS)
    return outcome[0] if outcome else f"no answer in {CONNECT_SECONDS:.0f} seconds"


def check_machine() -> Iterator[Finding]:
    found = {package: _version(package) for package in PACKAGES}
    listed = ", ".join(f"{package} {number}" for package, number in found.items() if number)
    yield ok(CHECK, f"cllm {__version__}, Python {platform.python_version()}, {listed}.")
    missing = [package for package, number in found.items() if number is None]
    if missing:
        yield problem(CHECK, f"{', '.join(missing)} not installed; run: pip install cllm")
    numbers = {extra: _version(package) for extra, package in EXTRAS.items()}
    extras = (
        f"{extra} not installed"
        if number is None
        else f"{extra} installed ({EXTRAS[extra]} {number})"
        for extra, number in numbers.items()
    )
    yield ok("extras", ", ".join(extras) + ".")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

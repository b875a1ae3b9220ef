"""Checks of the installed packages and of the provider.

The check of a URL only connects: it sends no data and no key.
"""

import asyncio
import platform
import socket
import ssl
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

from cllm import __version__
from cllm.core.errors import CllmError, ProviderError, install_advice
from cllm.core.installation import EXTRAS, find_distribution
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


def check_provider(
    settings: Settings, opener: ProviderFactory, model: str, *, reason: str = ""
) -> Iterator[Finding]:
    """`reason`: why the model was chosen, if none is configured."""
    try:
        resolved = opener.resolve(model)
        access = opener.get_endpoint(resolved.provider)
    except CllmError as error:
        yield problem(MODEL, str(error))
        return
    yield ok(MODEL, f"{model}{reason} uses the provider '{resolved.provider}'.")
    if resolved.provider == LOCAL:
        yield _check_local_model(settings, resolved)
        return
    if access.kind == "bedrock":
        yield _check_bedrock(opener, resolved)
    else:
        yield _check_key(opener, resolved.provider)
    if access.address is None:
        yield ok(REACH, f"'{resolved.provider}' has no URL to check.")
    else:
        yield _check_connection(resolved.provider, access.address)


def _check_local_model(settings: Settings, resolved: ResolvedModel) -> Finding:
    if _find_version(EXTRAS["local"]) is None:
        return problem(REACH, f"local models need the extra 'local'; {install_advice('local')}")
    env = settings.env
    try:
        file = resolve_model_file(
            resolved.name, find_model_cache(env), cwd=env.directory, home=env.home
        )
    except CllmError as error:
        return problem(REACH, str(error))
    if file.is_complete:
        return ok(REACH, f"the model file {file.path} exists.")
    if file.known is None:
        return problem(REACH, f"the model file {file.path} does not exist; check the path.")
    size = f"{file.known.download_size / MEGABYTE:.0f} MB"
    return ok(REACH, f"the model is not downloaded yet; its first use downloads {size}.")


def _check_key(opener: ProviderFactory, name: str) -> Finding:
    try:
        if opener.has_key(name):
            return ok(KEY, f"a key for '{name}' is set ({opener.find_key_source(name)}).")
    except CllmError as error:
        return problem(KEY, str(error))
    state = (
        "has no key"
        if name not in BUILTIN_PROVIDERS or BUILTIN_PROVIDERS[name].key
        else "needs no key"
    )
    return ok(KEY, f"'{name}' {state}.")


def _check_bedrock(opener: ProviderFactory, resolved: ResolvedModel) -> Finding:
    async def load_credentials() -> None:
        provider = opener.open(resolved)
        try:
            await provider.prepare()
        finally:
            await provider.close()

    try:
        asyncio.run(load_credentials())
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
        return problem(REACH, f"the `api_base` of '{name}' is not a URL; correct it.")
    secure = proxy is None and target.scheme == "https"
    failure = _find_connection_failure(host, port, secure=secure)
    via = "" if proxy is None else f" through the proxy {host}"
    if failure is None:
        return ok(REACH, f"'{name}' is reachable at {format_origin(address)}{via}.")
    advice = "check the network, the proxy and `api_base`"
    return problem(
        REACH, f"'{name}' is not reachable at {format_origin(address)}{via} ({failure}); {advice}."
    )


def _find_connection_failure(host: str, port: int, *, secure: bool) -> str | None:
    """Why a connection fails, or None. Runs in a thread, because a DNS lookup has no timeout."""
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
    return outcome[0] if outcome else f"no connection within {CONNECT_SECONDS:.0f} seconds"


def check_machine() -> Iterator[Finding]:
    versions = {package: _find_version(package) for package in PACKAGES}
    listed = ", ".join(f"{package} {number}" for package, number in versions.items() if number)
    yield ok(CHECK, f"cllm {__version__}, Python {platform.python_version()}, {listed}.")
    missing = [package for package, number in versions.items() if number is None]
    if missing:
        yield problem(CHECK, f"not installed: {', '.join(missing)}; install cllm again.")
    numbers = {extra: _find_version(package) for extra, package in EXTRAS.items()}
    extras = (
        f"{extra} not installed"
        if number is None
        else f"{extra} installed ({EXTRAS[extra]} {number})"
        for extra, number in numbers.items()
    )
    yield ok("extras", ", ".join(extras) + ".")


def _find_version(package: str) -> str | None:
    found = find_distribution(package)
    return None if found is None else found.version

"""A schema is fetched from its address: over https, once, within a size and a time.

Keeps nothing and understands nothing of what it fetches. Redirects never lead out of https.
"""

import http.client
import ipaddress
import ssl
import threading
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import Any
from urllib.parse import SplitResult, urlsplit

from cllm.core.errors import SchemaError, SchemaUnavailableError
from cllm.schemas.source import SchemaRules

SILENCE_SECONDS = 10.0
TOTAL_SECONDS = 30.0
PIECE_BYTES = 65536
PASSING = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)
HEADERS = {"User-Agent": "cllm", "Accept": "application/schema+json, application/json"}


def shown(address: str) -> str:
    """The address without what could be a secret in it: name, password and query."""
    try:
        parts = urlsplit(address)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "an address that cannot be read"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


def fetch(address: str, rules: SchemaRules, *, seconds: float = TOTAL_SECONDS) -> bytes:
    """What the address gives; SchemaUnavailableError if it could give it at another time."""
    check_address(address, rules)
    errors: list[SchemaError] = []
    answers: list[bytes] = []

    def work() -> None:
        try:
            answers.append(_fetch(address, rules))
        except SchemaError as error:
            errors.append(error)

    # A time-out of the socket is for each piece, and an address can send pieces for ever.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not answers:
        raise _unavailable(address, f"it was not there whole in {seconds:g} s")
    return answers[0]


def check_address(address: str, rules: SchemaRules) -> None:
    """Refuse an address that is not to be asked."""
    problem = _address_problem(address, rules)
    if problem is not None:
        raise SchemaError(problem, source=shown(address))


def _address_problem(address: str, rules: SchemaRules) -> str | None:
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        return "that is no address."
    if parts.scheme != "https" and not (parts.scheme == "http" and rules.allow_http):
        return "schemas are fetched over https only; CLLM_ALLOW_HTTP_SCHEMAS=true allows http."
    if parts.username is not None:
        return "leave the name and the password out of the address."
    if not parts.hostname or not address.isprintable() or " " in address:
        return "that is no address."
    return None


def _fetch(address: str, rules: SchemaRules) -> bytes:
    opener = urllib.request.build_opener(_SafeRedirects(rules), *_proxies(urlsplit(address)))
    request = urllib.request.Request(address, headers=HEADERS)  # noqa: S310 - it was checked
    try:
        with opener.open(request, timeout=SILENCE_SECONDS) as answer:
            return _read(answer, address, rules.max_bytes)
    except urllib.error.HTTPError as error:
        error.close()
        raise _refusal(address, error.code) from error
    except urllib.error.URLError as error:
        raise _failure(address, error.reason) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _failure(address, error) from error


def _proxies(parts: SplitResult) -> list[urllib.request.BaseHandler]:
    """No proxy for this machine itself; elsewhere what the environment names."""
    host = parts.hostname or ""
    try:
        is_here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = False
    return [urllib.request.ProxyHandler({})] if is_here else []


def _read(answer: Any, address: str, limit: int) -> bytes:
    """The body, if it is within the limit; what it says of its own size is looked at first."""
    announced = str(answer.headers.get("Content-Length", ""))
    too_large = SchemaError(
        f"it is larger than {limit} bytes; CLLM_MAX_SCHEMA_SIZE sets the limit.",
        source=shown(address),
    )
    if announced.isdecimal() and (len(announced) > len(str(limit)) or int(announced) > limit):
        raise too_large
    body = bytearray()
    while piece := answer.read1(PIECE_BYTES):
        body += piece
        if len(body) > limit:
            raise too_large
    if announced.isdecimal() and len(body) < int(announced):
        raise _unavailable(address, "the connection ended too early")
    return bytes(body)


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follow a redirect only to where the person could have sent us, and never out of https."""

    max_redirections = 5

    def __init__(self, rules: SchemaRules) -> None:
        self._rules = rules

    def redirect_request(  # noqa: PLR0917 - the standard library's signature
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        was_secure = req.full_url.lower().startswith("https://")
        if was_secure and not newurl.lower().startswith("https://"):
            raise SchemaError("it redirects out of https.", source=shown(req.full_url))
        problem = _address_problem(newurl, self._rules)
        if problem is not None:
            raise SchemaError(
                f"it redirects to {shown(newurl)}, but {problem}", source=shown(req.full_url)
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _refusal(address: str, status: int) -> SchemaError:
    if status in PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _unavailable(address, f"the server answered {status}")
    if status // 100 == HTTPStatus.MULTIPLE_CHOICES // 100:
        return SchemaError("it redirects without end or to nowhere.", source=shown(address))
    return SchemaError(f"the server answered {status}; check the address.", source=shown(address))


def _failure(address: str, reason: object) -> SchemaError:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return SchemaError("the server's certificate was not accepted.", source=shown(address))
    if isinstance(reason, TimeoutError):
        return _unavailable(address, f"nothing came for {SILENCE_SECONDS:g} s")
    said = reason.strerror if isinstance(reason, OSError) and reason.strerror else "no connection"
    return _unavailable(address, said.lower())


def _unavailable(address: str, reason: str) -> SchemaUnavailableError:
    return SchemaUnavailableError(
        f"it cannot be fetched ({reason}); check the network and ask again.",
        source=shown(address),
    )

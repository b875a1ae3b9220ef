"""Who asks: a key becomes an owner.

A key is looked at for its form and hashed before anything is compared, and every known hash is
compared in the same time. The keys themselves are not kept. Where none are configured everybody
who reaches the server is its one person; that it is reached from this machine only is seen to
where it starts to listen.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator

import msgspec
from starlette.requests import Request

from cllm.core.conversation import LOCAL_OWNER
from cllm.core.errors import SettingsError
from cllm.server.http.errors import RefusedError
from cllm.server.http.request_log import record_of
from cllm.server.http.routes import Row
from cllm.server.serving import Caller
from cllm.settings.sections import KeySettings

KEY = re.compile(r"[\x21-\x7e]{16,512}")
HASH = re.compile(r"[0-9a-f]{64}")
UNSET = re.compile(r"\$\{\w+\}", re.ASCII)
BEARER = "bearer "
LOCAL_CALLER = Caller(owner=LOCAL_OWNER)


class KnownKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key by its hash, its name for the log, and whose conversations it opens."""

    name: str
    owner: str
    digest: bytes


class Keyring(msgspec.Struct, frozen=True, kw_only=True):
    """All keys of one server."""

    keys: tuple[KnownKey, ...] = ()

    def find(self, offered: str) -> Caller | None:
        """Whose key this is; None for nobody's."""
        if KEY.fullmatch(offered) is None:
            return None
        digest = _digest(offered)
        found = [known for known in self.keys if hmac.compare_digest(known.digest, digest)]
        return Caller(owner=found[0].owner, key=found[0].name) if found else None


def read_keyring(keys: Iterable[KeySettings]) -> Keyring:
    """The keyring of the settings; SettingsError for a key that nobody could use."""
    return Keyring(keys=tuple(map(_known, keys)))


def _known(settings: KeySettings) -> KnownKey:
    where = f"server.keys: key '{settings.name}'"
    if settings.hash is not None:
        if HASH.fullmatch(settings.hash.lower()) is None:
            raise SettingsError(f"{where} has a hash that is not a SHA-256 in hexadecimal.")
        digest = bytes.fromhex(settings.hash)
    elif settings.key is not None and UNSET.fullmatch(settings.key):
        raise SettingsError(f"{where} is {settings.key}, and that variable is not set; set it.")
    elif settings.key is not None and KEY.fullmatch(settings.key):
        digest = _digest(settings.key)
    else:
        raise SettingsError(
            f"{where} needs a hash, or a key of 16 to 512 printable characters; make one with: "
            "openssl rand -hex 32"
        )
    return KnownKey(name=settings.name, owner=settings.owner, digest=digest)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("ascii")).digest()


def admit(request: Request, row: Row) -> Caller:
    """Who asks, if they may call the route; RefusedError if not."""
    record = record_of(request)
    record.route = row.path
    caller = _caller(request, row)
    record.owner, record.key = caller.owner, caller.key
    return caller


def _caller(request: Request, row: Row) -> Caller:
    keyring: Keyring = request.app.state.keyring
    match row.access:
        case "anyone":
            return LOCAL_CALLER
        case "caller":
            return LOCAL_CALLER if not keyring.keys else _with_key(request, keyring)
        case _:
            raise RefusedError("not_found", "There is nothing here.")


def _with_key(request: Request, keyring: Keyring) -> Caller:
    offered = list(_offered(request))
    if not offered:
        raise RefusedError(
            "missing_token",
            "This server wants a key; send it as `Authorization: Bearer KEY` or `x-api-key: KEY`.",
        )
    found = [caller for key in offered if (caller := keyring.find(key)) is not None]
    if not found:
        raise RefusedError("invalid_token", "This server does not know the key; check it.")
    return found[0]


def _offered(request: Request) -> Iterator[str]:
    authorization = request.headers.get("authorization", "")
    if authorization[: len(BEARER)].lower() == BEARER:
        yield authorization[len(BEARER) :].strip()
    elif authorization:
        yield ""
    if "x-api-key" in request.headers:
        yield request.headers["x-api-key"].strip()

"""Authentication of requests: a missing or wrong key is 401, a valid one identifies the owner.

Only hashes are stored and compared, all in constant time. A server without keys has one owner and
listens on loopback only (`state.check_public_access`).
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request

from cllm.core.conversation import LOCAL_OWNER
from cllm.core.errors import SettingsError
from cllm.core.secret import UNSET_VARIABLE
from cllm.server.http.errors import ApiError
from cllm.server.state import Caller
from cllm.settings.sections import KeySettings

KEY = re.compile(r"[\x21-\x7e]{16,512}")
HASH = re.compile(r"[0-9a-f]{64}")
BEARER = "bearer "
LOCAL_CALLER = Caller(owner=LOCAL_OWNER)


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    owner: str
    digest: bytes
    is_admin: bool = False


class ApiKeys(msgspec.Struct, frozen=True, kw_only=True):
    keys: tuple[ApiKey, ...] = ()

    def find(self, key: str) -> Caller | None:
        if KEY.fullmatch(key) is None:
            return None
        digest = _digest(key)
        matches = [one for one in self.keys if hmac.compare_digest(one.digest, digest)]
        if not matches:
            return None
        first = matches[0]
        return Caller(owner=first.owner, key=first.name, is_admin=first.is_admin)

    @property
    def has_several_owners(self) -> bool:
        return len({key.owner for key in self.keys}) > 1


def load_api_keys(keys: Iterable[KeySettings]) -> ApiKeys:
    """Return the keys. Raises SettingsError, also if two are equal: the owner would be unclear."""
    loaded: dict[bytes, ApiKey] = {}
    for key in map(_load_api_key, keys):
        other = loaded.setdefault(key.digest, key)
        if other is not key:
            raise SettingsError(
                f"server.keys: the keys '{other.name}' and '{key.name}' are equal; create another "
                "one with: openssl rand -hex 32"
            )
    return ApiKeys(keys=tuple(loaded.values()))


def _load_api_key(settings: KeySettings) -> ApiKey:
    where = f"server.keys: key '{settings.name}'"
    if not settings.name or not settings.owner:
        raise SettingsError(f"{where} needs a name and an owner that are not empty.")
    if settings.key is not None and settings.hash is not None:
        raise SettingsError(f"{where} has a key and a hash; remove one of them.")
    if settings.hash is not None:
        if HASH.fullmatch(settings.hash.lower()) is None:
            raise SettingsError(f"{where} has a hash that is not a hexadecimal SHA-256.")
        digest = bytes.fromhex(settings.hash)
    elif settings.key is not None and UNSET_VARIABLE.fullmatch(settings.key):
        raise SettingsError(
            f"{where} is {settings.key}, but that environment variable is not set; set it."
        )
    elif settings.key is not None and KEY.fullmatch(settings.key):
        digest = _digest(settings.key)
    else:
        raise SettingsError(
            f"{where} needs a hash, or a key of 16 to 512 printable characters; create one with: "
            "openssl rand -hex 32"
        )
    return ApiKey(name=settings.name, owner=settings.owner, digest=digest, is_admin=settings.admin)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("ascii")).digest()


def authenticate(request: Request, api_keys: ApiKeys) -> Caller:
    """Return the caller; raise ApiError (401) without a valid key."""
    keys = list(_read_keys(request.headers))
    if not keys:
        raise ApiError(
            "missing_token",
            "The API key is missing; send `Authorization: Bearer KEY` or `x-api-key: KEY`.",
        )
    callers = [caller for key in keys if (caller := api_keys.find(key)) is not None]
    if not callers:
        raise ApiError("invalid_token", "The API key is not valid on this server; check it.")
    return callers[0]


def _read_keys(headers: Headers) -> Iterator[str]:
    authorization = headers.get("authorization", "")
    if authorization[: len(BEARER)].lower() == BEARER:
        yield authorization[len(BEARER) :].strip()
    elif authorization:
        yield ""
    if "x-api-key" in headers:
        yield headers["x-api-key"].strip()

"""What the codecs share: a message on its way into another protocol, and a request made of many.

Types only. A codec imports this and core, and no other codec.
"""

import msgspec

from cllm.core.message import AnyPart, Role
from cllm.core.notice import Notice


class Spoken(msgspec.Struct, frozen=True, kw_only=True):
    """One message to be encoded: its parts, and its own bytes if it is in the codec's dialect.

    A codec sends `raw` as it is where nothing has to change, and goes through the parts otherwise.
    """

    role: Role
    parts: tuple[AnyPart, ...]
    raw: bytes | None = None


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    """A request's body, and what could not be said in it."""

    body: bytes
    notices: tuple[Notice, ...] = ()

"""What a person should know about a turn that went well: something ignored, changed or left out."""

import msgspec


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """`code` for programs, `path` for the place it is about, `message` for people."""

    code: str
    message: str
    path: str = ""

"""How an unexpected exception is described in the log."""

import re
import sqlite3

import pytest

from cllm.logs import describe_exception
from cllm.wire.malformed import MalformedError
from cllm.wire.openai.request import decode_request

SECRET = "words of a client"


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause  # noqa: TRY301
    except Exception as found:  # noqa: BLE001
        return found


def test_the_text_of_an_exception_is_left_out():
    assert describe_exception(raised(ValueError(SECRET))) == "ValueError"


def test_the_text_of_an_error_of_the_system_or_a_database_is_there():
    full = OSError(28, "No space left on device")
    locked = sqlite3.OperationalError("database is locked")

    assert "No space left on device" in describe_exception(full)
    assert describe_exception(locked) == "OperationalError: database is locked"


def test_causes_are_described_too():
    error = raised(KeyError(SECRET), raised(ValueError(SECRET), OSError(5, "I/O error")))

    described = describe_exception(error)

    first, second, third = described.split("; caused by ")
    assert (first, second) == ("KeyError", "ValueError")
    assert third.startswith("OSError: [Errno 5] I/O error")


def test_a_chain_that_ends_in_itself_is_described_once():
    error = raised(ValueError(SECRET))
    error.__cause__ = error

    assert describe_exception(error) == "ValueError"


def test_every_frame_of_ours_is_named_by_module_and_line_and_no_other_is():
    with pytest.raises(MalformedError) as found:
        decode_request(b"{")

    kind, *frames = describe_exception(found.value).split("; caused by ")[0].split(" < ")
    assert kind == "FieldError"
    assert frames
    assert all(re.fullmatch(r"cllm\.wire\.[\w.]+:\d+", frame) for frame in frames)

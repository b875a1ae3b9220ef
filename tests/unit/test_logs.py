"""Logs: descriptions of unexpected exceptions, and secrets."""

import json
import logging
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from cllm.logs import ROOT_LOGGER, configure, describe_exception, log
from cllm.wire.errors import MalformedError
from cllm.wire.openai.request import decode_request

SECRET = "words of a client"


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "cllm.log"
    logger = logging.getLogger(ROOT_LOGGER)
    for handler in logger.handlers:
        if type(handler) is logging.StreamHandler:
            handler.stream.close()
    logger.handlers.clear()


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause  # noqa: TRY301
    except Exception as found:  # noqa: BLE001
        return found


def test_the_text_of_an_exception_is_left_out():
    assert describe_exception(raised(ValueError(SECRET))) == "ValueError"


def test_the_text_of_an_os_or_database_error_is_included():
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


def test_a_suppressed_cause_is_not_described():
    error = ValueError(SECRET)
    error.__context__ = KeyError(SECRET)
    error.__suppress_context__ = True

    assert describe_exception(error) == "ValueError"


def test_a_circular_chain_is_described_once():
    error = raised(ValueError(SECRET))
    error.__cause__ = error

    assert describe_exception(error) == "ValueError"


def test_only_frames_of_cllm_are_listed_by_module_and_line():
    with pytest.raises(MalformedError) as found:
        decode_request(b"{")

    kind, *frames = describe_exception(found.value).split("; caused by ")[0].split(" < ")
    assert kind == "FieldError"
    assert frames
    assert all(re.fullmatch(r"cllm\.wire\.[\w.]+:\d+", frame) for frame in frames)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    "secret", ["plain-secret-1", 'quote"d-secret', "back\\slash-secret", "\x9b-secret"]
)
def test_no_line_contains_a_secret_in_any_form(log_file: Path, secret: str, as_json: bool):
    configure(file=log_file, as_json=as_json, secrets=[secret])

    log("server", logging.INFO, f"Sent {secret}.", header=secret, nested={"list": [secret]})

    text = log_file.read_text(encoding="utf-8")
    assert text.count("***") == 3
    assert secret[-6:] not in text


def test_json_lines_contain_no_control_characters_or_line_separators(log_file: Path):
    text = "a\x00\x1b\x7f\x80\x85\x9f\u2028\u2029é"
    configure(file=log_file, as_json=True)

    log("server", logging.INFO, "request", path=text, user_agent=text)

    (line,) = log_file.read_text(encoding="utf-8").splitlines()
    assert line.count(r"a\u0000\u001b\u007f\u0080\u0085\u009f\u2028\u2029é") == 2
    assert json.loads(line)["path"] == text

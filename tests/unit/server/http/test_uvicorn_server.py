"""The listening socket: its address, and the error if it cannot be opened."""

import errno
import json
import logging
import os
import resource
import socket

import pytest

from cllm import logs
from cllm.core.errors import UsageError
from cllm.server.http.uvicorn_server import (
    MAX_OPEN_FILES,
    bind,
    format_address,
    raise_open_file_limit,
    warn_if_too_many_files,
)


def test_a_free_port_is_chosen_and_shown():
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]

        assert port > 0
        assert format_address(listener) == f"http://127.0.0.1:{port}"


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_an_ipv6_address_is_in_brackets():
    with bind("::1", 0) as listener:
        assert format_address(listener).startswith("http://[::1]:")


def test_a_port_in_use_is_a_usage_error():
    with (
        bind("127.0.0.1", 0) as listener,
        pytest.raises(UsageError, match="already in use"),
    ):
        bind("127.0.0.1", listener.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("192.0.2.1", os.strerror(errno.EADDRNOTAVAIL).lower()),
        # Two dots: no resolver looks for it.
        ("no..host", "the name cannot be resolved"),
    ],
)
def test_an_address_of_another_machine_is_a_usage_error(host: str, reason: str):
    with pytest.raises(UsageError) as caught:
        bind(host, 0)

    assert str(caught.value) == (
        f"Cannot listen on {host}, port 0 ({reason}); choose another address with --host."
    )


def test_the_limit_of_open_files_is_raised_and_never_lowered():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_open_file_limit()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert hard == before[1]
        assert soft >= min(hard, MAX_OPEN_FILES) or soft == resource.RLIM_INFINITY
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_warning_says_that_no_file_descriptor_is_free(capsys):
    logs.configure(verbosity=1, as_json=True)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    await warn_if_too_many_files()
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        await warn_if_too_many_files()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        logging.getLogger(logs.ROOT_LOGGER).handlers.clear()

    (line,) = capsys.readouterr().err.splitlines()
    record = json.loads(line)
    assert (record["level"], record["limit"]) == ("warning", free)
    assert record["message"].startswith("too many open files: new connections are closed")

"""A command that the tests fork is the same as one that is started in full."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests import forking
from tests.command import START_IN_FULL
from tests.fork_server import LENGTH, is_same_user
from tests.forking import LANGUAGE, MOST_BYTES, Forked, ForkServer, is_forkable

NOBODY = 2**31 - 1
"""No process has this number."""
ENVIRONMENT = {"LANG": LANGUAGE, "PATH": "/bin"}
SEEN_FROM_WITHIN = (
    "env | grep -v '^_=' | sort; pwd; ls /proc/self/fd | wc -l; ulimit -a; umask; "
    "grep -E '^(Sig(Ign|Blk)|Groups|Uid)' /proc/self/status"
)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("--nope",),
        ("conversations", "list"),
        ("Hello", "-m", "nobody/x"),
        ("Grüße, \udcff",),
    ],
    ids=lambda arguments: arguments[0].encode("ascii", "replace").decode(),
)
def test_it_prints_and_ends_the_same(cllm, settings, arguments):
    forked = cllm(*arguments)
    cllm.command = START_IN_FULL

    assert forked == cllm(*arguments)


def test_it_has_the_same_place_streams_and_signals(cllm, settings, provider):
    settings(context_commands=[{"name": "Within", "command": SEEN_FROM_WITHIN}])
    cllm("Hello", stdin=b"From a pipe.", env={"MORE": "yes"}).succeeded()
    cllm.command = START_IN_FULL
    cllm("Hello", stdin=b"From a pipe.", env={"MORE": "yes"}).succeeded()

    forked, in_full = provider.requests
    assert "From a pipe." in str(forked.json)
    assert "MORE=yes" in str(forked.json)
    assert forked.json == in_full.json


def test_its_memory_can_be_limited(cllm, settings):
    assert cllm("Hello", memory=500_000_000).succeeded()
    assert cllm("Hello", memory=30_000_000).code != 0


def test_commands_about_the_start_up_are_not_forked():
    assert is_forkable(["Hello"], ENVIRONMENT)
    assert not is_forkable(["Hello"], ENVIRONMENT | {"PYTHONPATH": "/elsewhere"})
    assert not is_forkable(["Hello"], ENVIRONMENT | {"LC_ALL": "C"})
    assert not is_forkable(["Hello"], ENVIRONMENT | {"LANG": "C"})
    assert not is_forkable(["x" * MOST_BYTES], ENVIRONMENT)


@pytest.fixture
def attendant() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of a connection: who asks for a command, and who forks it and waits for it."""
    asking, waiting = socket.socketpair()
    with asking, waiting:
        yield asking, waiting


def number(value: int) -> bytes:
    return value.to_bytes(LENGTH, "big", signed=True)


def streams() -> tuple[list[int], list[int]]:
    """Ours and theirs of a command's standard streams."""
    pipes = [os.pipe() for _ in range(3)]
    return [pipes[0][1], pipes[1][0], pipes[2][0]], [pipes[0][0], pipes[1][1], pipes[2][1]]


def close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


@pytest.mark.parametrize("sent", [b"", b"123"])
def test_that_no_process_is_named_is_an_error(attendant, sent):
    asking, waiting = attendant
    ours, theirs = streams()
    waiting.sendall(sent)
    waiting.close()

    with pytest.raises(ConnectionError):
        Forked(asking, ours)
    close([*ours, *theirs])


@pytest.mark.parametrize("sent", [b"", b"123"])
def test_that_no_exit_code_comes_is_an_error(attendant, sent):
    asking, waiting = attendant
    ours, theirs = streams()
    waiting.sendall(number(NOBODY) + sent)
    waiting.close()
    close(theirs)

    with pytest.raises(ConnectionError):
        Forked(asking, ours).communicate(b"", 10)


def test_open_streams_of_an_ended_command_are_waited_for_until_the_timeout(
    attendant,
):
    asking, waiting = attendant
    ours, theirs = streams()
    waiting.sendall(number(NOBODY) + number(0))

    with pytest.raises(subprocess.TimeoutExpired):
        Forked(asking, ours).communicate(b"", 0.2)
    close(theirs)


def test_an_incomplete_request_does_not_block_the_next_one(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(forking, "STARTING_SECONDS", 20)
    with closing(ForkServer()) as server:
        ours, theirs = streams()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(server._address)
            socket.send_fds(connection, [number(100)], theirs)
            connection.sendall(b"{")
        close([*ours, *theirs])

        done = server.start(["--version"], ENVIRONMENT, tmp_path).communicate(b"", 20)

    assert done.returncode == 0


def test_another_user_cannot_fork_a_command(attendant):
    asking, _ = attendant

    assert is_same_user(asking, os.getuid())
    assert not is_same_user(asking, os.getuid() + 1)

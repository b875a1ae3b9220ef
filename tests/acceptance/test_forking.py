"""A command that the tests fork is the same as one that is started in full."""

import sys

import pytest
from tests.forking import LANGUAGE, MOST_BYTES, is_forkable

IN_FULL = (sys.executable, "-m", "cllm.__main__")
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
    cllm.command = IN_FULL

    assert forked == cllm(*arguments)


def test_it_has_the_same_place_streams_and_signals(cllm, settings, provider):
    settings(context_commands=[{"name": "Within", "command": SEEN_FROM_WITHIN}])
    cllm("Hello", stdin=b"From a pipe.", env={"MORE": "yes"}).succeeded()
    cllm.command = IN_FULL
    cllm("Hello", stdin=b"From a pipe.", env={"MORE": "yes"}).succeeded()

    forked, in_full = provider.requests
    assert "From a pipe." in str(forked.json)
    assert "MORE=yes" in str(forked.json)
    assert forked.json == in_full.json


def test_its_memory_can_be_limited(cllm):
    assert cllm("--help", memory=500_000_000).succeeded()
    assert cllm("--help", memory=30_000_000).code != 0


def test_what_is_about_the_start_is_started_in_full():
    assert is_forkable(["Hello"], ENVIRONMENT)
    assert not is_forkable(["Hello"], ENVIRONMENT | {"PYTHONPATH": "/elsewhere"})
    assert not is_forkable(["Hello"], ENVIRONMENT | {"LC_ALL": "C"})
    assert not is_forkable(["Hello"], ENVIRONMENT | {"LANG": "C"})
    assert not is_forkable(["x" * MOST_BYTES], ENVIRONMENT)

"""The checks of addresses, redirects and disk errors."""

import errno
import urllib.request
from pathlib import Path

import pytest

from cllm.core.errors import DownloadError
from cllm.providers.local.download import (
    RefusedError,
    SafeRedirects,
    _connection_error,
    _status_error,
    _TransientError,
    check_scheme,
    disk_errors,
)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/a", "http://[::1]:1/a", "https://x.test/a"])
def test_https_and_loopback_are_allowed(url: str):
    check_scheme(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1/a", "http://x.test/a", "file:///etc/passwd"])
def test_a_redirect_from_https_to_another_scheme_is_refused(url: str):
    request = urllib.request.Request("https://x.test/a")
    with pytest.raises(DownloadError, match="insecure"):
        SafeRedirects().redirect_request(request, None, 302, "Found", {}, url)


@pytest.mark.parametrize(
    ("number", "text"),
    [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "is not writable"), (errno.EIO, "again")],
)
def test_an_error_of_the_disk_names_its_cause(number: int, text: str, tmp_path: Path):
    with pytest.raises(DownloadError, match=text), disk_errors("a", tmp_path):
        raise OSError(number, "an error")


@pytest.mark.parametrize("url", ["http://x.test/a", "ftp://x.test/a", "https://[x"])
def test_other_schemes_and_invalid_addresses_are_refused(url: str):
    with pytest.raises(RefusedError):
        check_scheme(url)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, RefusedError),
        (403, RefusedError),
        (404, DownloadError),
        (429, _TransientError),
        (503, _TransientError),
    ],
)
def test_a_status_is_refused_final_or_transient(status: int, kind: type[Exception]):
    assert type(_status_error(status, "a.gguf")) is kind


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file"), DownloadError),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), _TransientError),
        ("unknown host", _TransientError),
    ],
)
def test_only_a_missing_file_ends_the_attempts(reason: object, kind: type[Exception]):
    assert type(_connection_error(reason, "a.gguf")) is kind

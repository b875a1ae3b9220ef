"""The checks of `cllm conversations migrate`."""

import pytest

from cllm.cli.conversations.migrate import _check_is_file
from cllm.core.errors import StoreUnavailableError


def test_a_symbolic_link_is_refused(tmp_path):
    (tmp_path / "cats.json").symlink_to(tmp_path / "other.json")

    with pytest.raises(StoreUnavailableError, match="symbolic link"):
        _check_is_file(f"json:{tmp_path}", "cats")


def test_a_file_and_a_database_are_accepted(tmp_path):
    (tmp_path / "cats.json").touch()

    _check_is_file(f"json:{tmp_path}", "cats")
    _check_is_file(f"sqlite:{tmp_path}", "cats")

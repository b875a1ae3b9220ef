"""The options of `cllm conversations branch`."""

import pytest

from cllm.cli.conversations.branch import command
from cllm.cli.inputs import OptionError


def test_two_system_prompts_are_refused():
    arguments = ["cats", "--system", "A", "--system-file", "b.txt"]

    with pytest.raises(OptionError, match="not both"):
        command.main(arguments, standalone_mode=False)

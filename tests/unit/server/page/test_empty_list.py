"""Empty lists teach."""

import msgspec
import pytest

from cllm.server.page.empty_list import ServerFacts, describe_empty_list
from cllm.server.page.selection import Selection

SERVER = ServerFacts(address="http://127.0.0.1:3000", model="openai/gpt-test")
SELECTIONS = (
    Selection(),
    Selection(q="cats; rm -rf ~"),
    Selection(archive_filter="archived"),
    Selection(origin="chat"),
)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_an_empty_list_has_three_commands(selection):
    empty = describe_empty_list(selection, SERVER)

    assert len(empty.commands) == 3
    assert (empty.reset_url is None) is (selection == Selection())


def test_each_case_has_its_own_text():
    titles = {describe_empty_list(selection, SERVER).title for selection in SELECTIONS}

    assert len(titles) == len(SELECTIONS)


def test_the_words_of_a_search_are_quoted_for_the_shell():
    empty = describe_empty_list(SELECTIONS[1], SERVER)

    assert empty.commands[0] == "cllm search 'cats; rm -rf ~'"


def test_with_keys_the_commands_send_one():
    empty = describe_empty_list(Selection(), msgspec.structs.replace(SERVER, has_keys=True))

    assert "Authorization: Bearer KEY" in empty.commands[0]
    assert not any(command.startswith("cllm chat") for command in empty.commands)

"""Empty lists teach."""

import pytest

from cllm.server.page.empty_list import describe_empty_list
from cllm.server.page.selection import Selection

SELECTIONS = (
    Selection(),
    Selection(q="cats; rm -rf ~"),
    Selection(archive_filter="archived"),
    Selection(origin="chat"),
)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_an_empty_list_has_three_commands(selection):
    empty = describe_empty_list(selection, "http://127.0.0.1:3000")

    assert len(empty.commands) == 3
    assert (empty.reset_url is None) is (selection == Selection())


def test_each_case_has_its_own_text():
    titles = {describe_empty_list(selection, "").title for selection in SELECTIONS}

    assert len(titles) == len(SELECTIONS)


def test_the_words_of_a_search_are_quoted_for_the_shell():
    empty = describe_empty_list(SELECTIONS[1], "")

    assert empty.commands[0] == "cllm search 'cats; rm -rf ~'"

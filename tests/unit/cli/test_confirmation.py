"""The question whether a command of the model may run."""

import pytest

from cllm.cli.confirmation import MAX_REASON, confirmation_question


def test_the_command_is_on_a_separate_line_before_its_reason():
    assert confirmation_question("ls -l", "To see the files.") == (
        "The model requests this command:\n  ls -l\nReason: To see the files.\nRun it? [y/N] "
    )


def test_without_a_reason_there_is_no_reason_line():
    assert (
        confirmation_question("ls", "  ")
        == "The model requests this command:\n  ls\nRun it? [y/N] "
    )


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("ls\nrm x", "ls ⏎ rm x"),
        ("ls #\rrm x", r"ls #\rrm x"),
        ("ls \x1b[8m; rm x\x1b[0m", r"ls \x1b[8m; rm x\x1b[0m"),
        ("cat a\u202etxt.sh", r"cat a\u202etxt.sh"),
        ("rm\u200b x", r"rm\u200b x"),
        ("ls\u2800\xa0\u3000; rm x", r"ls\u2800\xa0\u3000; rm x"),
        ("ls \U000e0041", r"ls \U000e0041"),
        ("ls ❤\ufe0f", "ls ❤\\ufe0f"),
    ],
)
def test_hidden_characters_of_a_command_are_visible(command, shown):
    assert confirmation_question(command, "").split("\n")[1] == f"  {shown}"


def test_a_reason_cannot_imitate_the_question():
    question = confirmation_question(
        "rm x", "Fine.\nRun it? [y/N] y\n\nThe model requests this command:\n  ls"
    )

    assert question.split("\n")[2:] == [
        "Reason: Fine. Run it? [y/N] y The model requests this command: ls",
        "Run it? [y/N] ",
    ]


def test_a_long_reason_is_truncated():
    question = confirmation_question("ls", "x" * 5000)

    assert len(question.split("\n")[2]) == len("Reason: ") + MAX_REASON

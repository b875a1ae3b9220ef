"""Lists fit a terminal of 80 columns; elsewhere their lines are complete."""

import re

import pytest

from cllm.terminal import count_cells

COLUMNS = 80
UUID = "48d63c45-00ec-5285-a2a5-d59c117b5f10"
LONG = "x" * 100
TITLE = "A title of many words that does not fit into the width of a terminal, not by far"
STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def filled(home, settings, provider, cllm):
    """Conversations with a UUID and with a long name; a template, aliases and models."""
    settings(
        aliases={"fast": f"openai/{'m' * 90}"},
        providers={"mine": {"api_base": "http://127.0.0.1:9/v1", "models": ["n" * 70, "short"]}},
    )
    templates = home.path / ".cllm/templates"
    templates.mkdir()
    (templates / "translate.yml").write_text(f"# {TITLE}\nprompt: x\n", encoding="utf-8")
    for ref in (UUID, "cats"):
        provider.queue_reply(f"{TITLE}, and more words of the reply.")
        cllm("Tell me about regions.", "--conversation", ref).succeeded()
        cllm("conversations", "rename", ref, TITLE).succeeded()
    cllm("conversations", "branch", UUID, "--to", LONG).succeeded()


@pytest.mark.parametrize(
    "arguments",
    [
        ("conversations", "list"),
        ("conversations", "list", "--all"),
        ("conversations", "tree", UUID),
        ("conversations", "diff", "cats", UUID),
        ("conversations", "stats"),
        ("search", "regions"),
        ("models", "alias"),
        ("models", "list", "--provider", "local"),
        ("models", "list", "--provider", "mine"),
        ("templates", "list"),
    ],
    ids=" ".join,
)
def test_a_line_is_not_wider_than_the_terminal(arguments, filled, cllm):
    result = cllm.on_terminal(*arguments, env={"COLUMNS": str(COLUMNS)}).succeeded()

    lines = STYLE.sub("", result.out).replace("\r", "").split("\n")
    assert len(lines) > 2, result.report()
    wide = [line for line in lines if count_cells(line) > COLUMNS]
    # An ID is not cut, nor is the path of a store or an error.
    assert [line for line in wide if line.strip() != LONG and line[-1] not in ":."] == []


@pytest.mark.parametrize(
    "arguments", [("conversations", "list"), ("search", "regions"), ("templates", "list")]
)
def test_a_pipe_receives_the_whole_text(arguments, filled, cllm):
    result = cllm(*arguments, env={"COLUMNS": str(COLUMNS)}).succeeded()

    assert TITLE in result.out
    assert "…" not in result.out

"""The notices about the place of a history."""

import pytest
from tests.history_client import reply, user

from cllm.core.conversation import Branch, ParentKind
from cllm.core.ports import NewConversation
from cllm.engine.placement import BranchPoint, Placement, new_placement
from cllm.engine.request import ClientHistory


def test_a_new_conversation_has_no_notice():
    place = Placement(ref="new", messages=(user("a"),), create=NewConversation(id="new"))
    assert place.diverged_from is None
    assert list(place.list_notices()) == []


def test_recognised_messages_are_counted():
    place = Placement(ref="demo", messages=(user("c"),), recognised=2)
    (notice,) = place.list_notices()
    assert notice.code == "history_recognised"
    assert notice.message == "2 of 3 messages are stored already; new: 1."


def test_a_branch_names_the_conversation_and_the_message():
    place = Placement(
        ref="new",
        messages=(user("c"), reply("d")),
        recognised=2,
        create=NewConversation(id="new"),
        branch=BranchPoint(conversation="demo", at=2, path=("t1",)),
    )
    assert place.diverged_from == "demo"
    recognised, diverged = place.list_notices()
    assert recognised.code == "history_recognised"
    assert (diverged.code, diverged.path) == ("history_diverged", "messages")
    assert "conversation demo" in diverged.message


def test_only_a_branch_diverges():
    kinds: dict[ParentKind, str | None] = {"branch": "demo", "compaction": None, "side": None}
    for kind, expected in kinds.items():
        parent = Branch(conversation="demo", sequence=0, kind=kind)
        create = NewConversation(id="new", parent=parent)
        assert Placement(ref="new", messages=(), create=create).diverged_from == expected


CONTEXT = "<environment_context>\n<cwd>/x</cwd>\n</environment_context>"


@pytest.mark.parametrize(
    ("texts", "title"),
    [
        ((CONTEXT, "Fix it."), "Fix it."),
        ((f"# AGENTS.md instructions\n{CONTEXT}\n", "Fix it."), "Fix it."),
        ((CONTEXT,), None),
        (("Fix it.", "Now."), None),
        ((f"{CONTEXT} is what I see.", "Fix it."), None),
    ],
)
def test_the_title_leaves_out_the_context_of_codex(texts: tuple[str, ...], title: str | None):
    messages = [user(text) for text in texts]
    history = ClientHistory(client="codex")

    placement = new_placement(messages, history, "new")

    assert placement.create is not None
    assert placement.create.title == title

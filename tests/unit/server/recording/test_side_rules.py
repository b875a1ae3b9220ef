"""The default rules for side requests, and their table in the reference."""

import re
from pathlib import Path

import pytest

from cllm.history.side_requests import SideRule
from cllm.server.recording.side_rules import DEFAULT_RULES

REFERENCE = Path(__file__).parents[4] / "docs" / "reference" / "server.md"
SECTION = REFERENCE.read_text(encoding="utf-8").partition("\n## Side requests\n")[2]
ROWS = {
    (client, kind): (saved == "yes", request)
    for client, kind, saved, request in re.findall(
        r"^\| `([\w-]+)` \| `([\w-]+)` \| (yes|no) \| (.+) \|$", SECTION, re.MULTILINE
    )
}


@pytest.mark.parametrize("rule", DEFAULT_RULES, ids=lambda rule: f"{rule.client}-{rule.name}")
def test_every_default_rule_is_documented(rule: SideRule):
    assert rule.client is not None
    is_saved, request = ROWS[rule.client, rule.name]
    texts = (rule.system_contains, rule.user_equals, rule.user_starts_with, rule.user_contains)

    assert rule.record == is_saved
    assert rule.has_condition
    for text in (*filter(None, texts), *rule.headers):
        assert text in request
    assert "no tools" in request or not rule.no_tools
    assert "a response format" in request or not rule.response_format


def test_every_documented_rule_exists():
    assert {(rule.client, rule.name) for rule in DEFAULT_RULES} == set(ROWS)


def test_only_texts_for_the_screen_and_checks_are_not_saved():
    unsaved = {rule.name for rule in DEFAULT_RULES if not rule.record}

    assert unsaved == {"title", "suggestion", "quota", "prewarm"}


def test_every_condition_of_the_settings_is_documented():
    for name in SideRule.__struct_fields__:
        assert re.search(rf"^\| [^|]*`{name}`[^|]* \|", SECTION, re.MULTILINE), name


def test_a_rule_without_conditions_has_none():
    assert not SideRule(name="x", record=False).has_condition
    assert SideRule(name="x", client="codex").has_condition

"""Filling variables into commands: the short way gives what Jinja2 gives, or nothing."""

import shlex
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.settings.templates import TemplateProblemError, render
from cllm.settings.variables import MAX_RESULT, Value, fill_plainly, fill_template

VALUES: dict[str, Value] = {
    "A": "it's",
    "b_2": 5,
    "F": 0.5,
    "yes": True,
    "self": "x",
    "none": "y",
    "in": "z",
}
PIECES = st.sampled_from(
    [
        *("{{", "}}", "{", "}", "{%", "%}", "{#", "#}", "-", "|", " ", "\n", "\r", "\0", "'"),
        *("A", "b_2", "F", "yes", "self", "none", "in", "unknown", "shellquote", "lower"),
        *("{{ A }}", "{{b_2}}", "{{ F | shellquote }}", "{{ A|shellquote}}", "{{- A -}}"),
        *("{{ yes }}", "{{ none }}", "{{ self }}", "{{ A.x }}", "{{ A | lower }}", "{{ '{{' }}"),
        *("echo", "ä"),
    ]
)


def shellquote(value: object) -> str:
    return shlex.quote(str(value))


def rendered(template: str) -> str | None:
    """What Jinja2 makes of it; None if it makes nothing."""
    try:
        return render(template, VALUES, filters={"shellquote": shellquote}, limit=MAX_RESULT)
    except TemplateProblemError:
        return None


@given(template=st.lists(PIECES, max_size=8).map("".join))
def test_what_is_filled_in_the_short_way_is_what_jinja2_gives(template):
    plainly = fill_plainly(template, VALUES)

    assert plainly is None or plainly == rendered(template)


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("git log {{ A }}", "git log it's"),
        ("git log -{{b_2}} {{ A | shellquote }}", """git log -5 'it'"'"'s'"""),
        ("x=${HOME} {{ F }}{{ yes }}", "x=${HOME} 0.5True"),
    ],
)
def test_a_command_of_variables_is_filled_in_without_jinja2(monkeypatch, template, filled):
    monkeypatch.setitem(sys.modules, "cllm.settings.templates", None)

    assert fill_template(template, VALUES) == filled


@pytest.mark.parametrize(
    "template",
    [
        *("{{ unknown }}", "{{ A | lower }}", "{{- A }}", "{{ A.x }}", "{{ none }}", "{{{ A }}"),
        *("{{ A }}}", "{% if A %}{{ A }}{% endif %}", "{# A #}{{ A }}", "{{ A }}\n", "{{ A }}\r"),
        "{{ A }}" * MAX_RESULT,
    ],
)
def test_everything_else_is_left_to_jinja2(template):
    assert fill_plainly(template, VALUES) is None

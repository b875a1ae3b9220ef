"""The templates of commands and their limits."""

import time

import pytest

from cllm.settings.templates import TemplateProblemError, render

VALUES = {"A": "abc", "N": 5, "YES": True, "LIST": "a,b,c"}
LIMIT = 1000


def fill_commands(template: str) -> str:
    return render(template, VALUES, filters={"quoted": lambda value: f"<{value}>"}, limit=LIMIT)


@pytest.mark.parametrize(
    ("template", "result"),
    [
        ("{{ A }} {{ N }} {{ YES }}", "abc 5 True"),
        ("{{ A | upper }}{{ A | title }}{{ ' x ' | trim }}{{ A | length }}", "ABCAbcx3"),
        ("{{ A | quoted }}", "<abc>"),
        ("{{ MISSING | default('x') }}{{ MISSING is defined }}", "xFalse"),
        ("{{ '5' | int + N }} {{ N * 3 }} {{ N - 1 }} {{ '1.5' | float }}", "10 15 4 1.5"),
        ("{{ A ~ N ~ 'z' }}{{ A + 'z' }}", "abc5zabcz"),
        ("{{ A.upper() }}{{ A.replace('a', 'bb') }}{{ A | replace('c', '') }}", "ABCbbbcab"),
        ("{{ A[0] }}{{ A[1:] }}", "abc"),
        ("{% if N > 3 and YES %}more{% else %}less{% endif %}", "more"),
        ("{{ 'x' if A == 'abc' else 'y' }}{{ 'b' in A }}", "xTrue"),
        ("{% for x in LIST.split(',') %}{{ loop.index }}{{ x }} {% endfor %}", "1a 2b 3c "),
        ("{% set name = A + '!' %}{{ name }}", "abc!"),
        ("{% raw %}{{ A }}{% endraw %}{# nothing #}", "{{ A }}"),
    ],
)
def test_a_template_substitutes_values(template, result):
    assert fill_commands(template) == result


@pytest.mark.parametrize(
    "template",
    [
        "{{ MISSING }}",
        "{{ A.__class__ }}",
        "{{ A['__class__'] }}",
        "{{ A.format(1) }}",
        "{{ A['format'](1) }}",
        "{{ A.join('xy') }}",
        "{{ [A, A] }}",
        "{{ {'a': 1} }}",
        "{{ [A] | upper }}",
        "{{ A | map }}",
        "{{ range(3) }}",
        "{{ self }}",
        "{{ A | int(base=A) ** 2 }}",
        "{{ 1 // 0 }}",
        "{{ '\\0' }}",
        "{% set a = [A] %}",
        "{% set a, b = 'xy' %}{{ a }}",
        "{% set a %}text{% endset %}",
        "{% macro m() %}{% endmacro %}",
        "{% with a = 1 %}{% endwith %}",
        "{% filter upper %}a{% endfilter %}",
        "{% block b %}{% endblock %}",
        "{% for a in 'ab' %}" * 4 + "{% endfor %}" * 4,
    ],
)
def test_other_expressions_are_refused(template):
    with pytest.raises(TemplateProblemError):
        fill_commands(template)


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in '" + "x" * 2000 + "' %}" * 2 + "{% endfor %}" * 2,
        "{% for a in '" + "x" * 11_000 + "' %}{% endfor %}",
        "{% for a in '" + "x" * 900 + "' %}{{ A }}{% endfor %}",
        "{% set a = A %}" + "{% set a = a + a %}" * 50,
        "{% set a = A %}" + "{% set a = a ~ a %}" * 50,
        "{{ '" + "x" * 500 + "'.replace('x', 'yyyy') }}",
        "{{ '" + "x" * 500 + "' | replace('x', 'yyyy') }}",
        "{{ 1000000000000000000 * 10 }}",
        "{{ A * 3 }}",
        "{{ '%5d' % 5 }}",
    ],
)
def test_sizes_and_steps_are_limited(template):
    began = time.process_time()

    with pytest.raises(TemplateProblemError):
        fill_commands(template)
    assert time.process_time() - began < 2

"""`server.side_requests`: rules for the side requests of agents."""

import pytest

from cllm.core.errors import SettingsError
from cllm.history.side_requests import SideRule


def test_without_the_key_there_are_no_rules(load):
    assert load("server: {port: 1}").server.side_requests == ()
    assert load("server: {side_requests: }").server.side_requests == ()


def test_a_rule_has_a_name_and_conditions(load):
    settings = load(
        """
server:
  side_requests:
    - name: title
      record: false
      no_tools: true
      user_starts_with: "### Task:"
    - name: nightly
      client: qwen-code
      headers: {X-Purpose: nightly}
      response_format: true
      system_contains: You check
      user_contains: report
    - {name: ping, user_equals: ping}
"""
    )

    assert settings.server.side_requests == (
        SideRule(name="title", record=False, no_tools=True, user_starts_with="### Task:"),
        SideRule(
            name="nightly",
            client="qwen-code",
            headers={"x-purpose": "nightly"},
            response_format=True,
            system_contains="You check",
            user_contains="report",
        ),
        SideRule(name="ping", user_equals="ping"),
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            "title",
            (
                "`server.side_requests` must be a list of at most 100 mappings, each with `name` "
                "and a condition."
            ),
        ),
        (
            "[title]",
            (
                "`server.side_requests.0` must be a mapping such as {name: title, record: false, "
                "user_starts_with: Write a title}."
            ),
        ),
        (
            "[{no_tools: true}]",
            (
                "`server.side_requests.0.name` must be a name of at most 64 lower-case letters, "
                "digits, `-` and `_`."
            ),
        ),
        (
            "[{name: A title, no_tools: true}]",
            (
                "`server.side_requests.0.name` must be a name of at most 64 lower-case letters, "
                "digits, `-` and `_`."
            ),
        ),
        (
            "[{name: ok, no_tools: true}, {name: x, no_tools: maybe}]",
            "`server.side_requests.1.no_tools` must be true or false.",
        ),
        (
            "[{name: x, system_contains: ''}]",
            "`server.side_requests.0.system_contains` must be a text that is not empty.",
        ),
        (
            "[{name: x, headers: {a: 1}}]",
            "`server.side_requests.0.headers` must be a mapping of header names to texts.",
        ),
        (
            "[{name: x, record: false}]",
            (
                "`server.side_requests.0` needs a condition; use one of client, headers, no_tools, "
                "response_format, system_contains, user_equals, user_starts_with, user_contains."
            ),
        ),
        (
            "[{name: x, user_start: a}]",
            (
                "`server.side_requests.0.user_start` is not a known key; use one of name, record, "
                "client, headers, no_tools, response_format, system_contains, user_equals, "
                "user_starts_with, user_contains."
            ),
        ),
    ],
)
def test_an_invalid_rule_is_reported_in_one_sentence(load, rows: str, message: str):
    with pytest.raises(SettingsError) as error:
        load(f"server:\n  side_requests: {rows}\n")

    assert str(error.value).endswith(message)


def test_too_many_rules_are_refused(load):
    row = "{name: x, no_tools: true}"

    assert len(load(f"server: {{side_requests: [{', '.join([row] * 100)}]}}").server.side_requests)
    with pytest.raises(SettingsError, match="at most 100"):
        load(f"server: {{side_requests: [{', '.join([row] * 101)}]}}")

"""The checks of `cllm keys set`."""

import pytest

from cllm.cli import keys
from cllm.cli.inputs import OptionError


@pytest.mark.parametrize("name", ["openai", "bedrock", "mine"])
def test_built_in_and_configured_providers_can_have_a_key(name, monkeypatch):
    monkeypatch.setattr(keys, "_list_configured_providers", lambda: {"mine"})
    keys._check_provider(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("local", "Local models need no key"),
        ("mime", "Unknown provider 'mime': did you mean mine?"),
        ("zzzz", "Unknown provider 'zzzz': choose one of anthropic, .*, mine, "),
        ("a b", "not the name of a provider"),
    ],
)
def test_other_names_are_refused_with_advice(name, text, monkeypatch):
    monkeypatch.setattr(keys, "_list_configured_providers", lambda: {"mine"})
    with pytest.raises(OptionError, match=text):
        keys._check_provider(name)

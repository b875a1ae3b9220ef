"""The environment variables of `cllm chat`."""

import pytest

from cllm.cli.chat import _add_variables, _parse_number, _parse_whole_number
from cllm.core.errors import UsageError
from cllm.settings.layers import LayeredSettings
from cllm.settings.sections import MAX_WINDOW


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("0.7", 0.7), ("1e2", 100)])
def test_a_number(text, number):
    assert _parse_number("TEMPERATURE", text) == number


@pytest.mark.parametrize("text", ["", "warm", "-1", "nan", "inf"])
def test_another_text_is_not_a_number(text):
    with pytest.raises(UsageError, match="TEMPERATURE must be a number"):
        _parse_number("TEMPERATURE", text)


@pytest.mark.parametrize("text", ["1", str(MAX_WINDOW)])
def test_a_whole_number(text):
    assert _parse_whole_number("MAX_TOKENS", text) == int(text)


@pytest.mark.parametrize("text", ["", "0", "1.5", "-1", "²", str(MAX_WINDOW + 1), "9" * 5000])
def test_another_text_is_not_a_whole_number(text):
    with pytest.raises(UsageError, match="MAX_TOKENS must be a whole number"):
        _parse_whole_number("MAX_TOKENS", text)


def layers(**values) -> LayeredSettings:
    sources = dict.fromkeys(values, "Cllmfile.yml")
    return LayeredSettings(values=values, sources=sources, layers=(), files=())


def test_variables_are_below_all_settings():
    environment = {"MODEL_NAME": "a/b", "MAX_TOKENS": " 9 ", "TEMPERATURE": ""}

    merged = _add_variables(layers(model="c/d"), environment)

    assert merged.values == {"model": "c/d", "max_tokens": 9}
    assert merged.sources == {"model": "Cllmfile.yml", "max_tokens": "MAX_TOKENS"}


@pytest.mark.parametrize(("text", "debug"), [("1", True), ("off", False), ("*", False)])
def test_debug_of_another_program_is_not_an_error(text, debug):
    assert _add_variables(layers(), {"DEBUG": text}).values == {"debug": debug}


def test_verbosity_overrides_debug():
    assert "debug" not in _add_variables(layers(verbosity=0), {"DEBUG": "1"}).values

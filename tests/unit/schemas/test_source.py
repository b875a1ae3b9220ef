"""The source of a schema, and the rules that environment variables set."""

import pytest

from cllm.core.errors import SettingsError
from cllm.schemas.source import SchemaRules, SchemaSource, is_url, schema_rules


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("https://x/y", True),
        ("ftp://x", True),
        ("a/b.json", False),
        ("C:/x", False),
        ("//x", False),
    ],
)
def test_a_url_has_a_scheme(file, expected):
    assert is_url(file) is expected
    assert SchemaSource(name="x", file=file).url == (file if expected else None)


def test_an_inline_schema_has_no_url():
    assert SchemaSource(name="x", inline={}).url is None


@pytest.mark.parametrize("value", ["perhaps", "2", "TRUE!"])
def test_an_invalid_switch_is_refused(value):
    with pytest.raises(SettingsError, match="CLLM_OFFLINE_MODE"):
        schema_rules({"CLLM_OFFLINE_MODE": value})


def test_the_rules_come_from_the_environment():
    assert schema_rules({}) == SchemaRules()
    assert schema_rules(
        {
            "CLLM_ALLOW_HTTP_SCHEMAS": "TRUE",
            "CLLM_SCHEMA_CACHE_TTL": " 60 ",
            "CLLM_MAX_SCHEMA_SIZE": "2000",
            "CLLM_OFFLINE_MODE": "1",
        }
    ) == SchemaRules(allow_http=True, ttl=60, max_bytes=2000, offline=True)
    assert not schema_rules({"CLLM_OFFLINE_MODE": "0"}).offline


@pytest.mark.parametrize("value", ["-1", "1.5", "much", "٣", "9" * 40])
@pytest.mark.parametrize("name", ["CLLM_SCHEMA_CACHE_TTL", "CLLM_MAX_SCHEMA_SIZE"])
def test_an_invalid_number_is_refused(name, value):
    with pytest.raises(SettingsError, match=name):
        schema_rules({name: value})

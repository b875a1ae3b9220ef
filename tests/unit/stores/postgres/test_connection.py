import ssl

import asyncpg
import pytest

from cllm.core.errors import SettingsError, StoreUnavailableError, UsageError
from cllm.stores.postgres.connection import (
    PoolOptions,
    is_connection_lost,
    postgres_error,
    split_url,
)


def test_pool_options_are_removed_from_the_url():
    url, options = split_url("postgresql://host/db?pool_size=2&sslmode=require&pool_idle=1.5")
    assert url == "postgresql://host/db?sslmode=require"
    assert options == PoolOptions(size=2, idle=1.5)


@pytest.mark.parametrize(
    "rest",
    [
        "127.0.0.1:99999/x",
        "127.0.0.1:0/x",
        "127.0.0.1:abc/x",
        "127.0.0.1:-1/x",
        "host:1,host:x/x",
        "[::1/x",
        "u:se/cret@host/x",
        "u:se#cret@host/x",
        "u:se?cret@host/x",
        "u:secret@host/x#y",
        "host/x?port=99999",
        "host/x?port=a",
    ],
)
def test_an_invalid_address_is_an_error_without_the_url(rest: str):
    with pytest.raises(SettingsError, match="percent-encoded") as error:
        split_url(f"postgresql://{rest}")
    assert "cret" not in str(error.value)


@pytest.mark.parametrize("rest", ["h:5432/x", "[::1]:5432/x", "h:1,i:2/x", "u:%23%2F@h/x?port=1"])
def test_a_valid_address_is_unchanged(rest: str):
    assert split_url(f"postgresql://{rest}")[0] == f"postgresql://{rest}"


def test_a_url_without_options_has_the_defaults():
    for scheme in ("postgresql", "postgres", "postgresql+asyncpg"):
        assert split_url(f"{scheme}://host/db") == ("postgresql://host/db", PoolOptions())


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("pool_size=many", "`pool_size=many` in the store URL is not a number; use .* pool_size=5"),
        ("pool_size=0", "must be at least 1"),
        ("pool_colour=1", "pool_size, pool_idle"),
    ],
)
def test_an_invalid_pool_option_is_refused(query: str, message: str):
    with pytest.raises(SettingsError, match=message):
        split_url(f"postgresql://host/db?{query}")


def test_a_timeout_is_not_a_lost_connection():
    assert is_connection_lost(ConnectionResetError())
    assert is_connection_lost(asyncpg.AdminShutdownError())
    assert not is_connection_lost(TimeoutError())
    assert not is_connection_lost(None)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (asyncpg.DiskFullError(), "disk"),
        (asyncpg.InvalidPasswordError(), "password"),
        (TimeoutError(), "did not respond in time"),
        (ssl.SSLError(), "sslmode"),
        (ConnectionRefusedError(), "cannot be reached"),
        (asyncpg.UndefinedColumnError(), "42703"),
        (asyncpg.UndefinedObjectError('unrecognized parameter "x"'), 'unrecognized parameter "x"'),
        (asyncpg.ClientConfigurationError("no root.crt\nHINT: add it"), "used (no root.crt);"),
    ],
)
def test_an_error_of_the_driver_says_what_to_do(error: Exception, message: str):
    converted = postgres_error(error)
    assert isinstance(converted, StoreUnavailableError)
    assert message in str(converted)


def test_invalid_values_are_usage_errors():
    too_large = asyncpg.DataError("value out of range")
    too_large.__cause__ = OverflowError()
    unpaired = asyncpg.DataError("surrogates not allowed")
    unpaired.__cause__ = UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
    too_long = asyncpg.ProgramLimitExceededError()
    nul = asyncpg.CharacterNotInRepertoireError()
    messages = [str(postgres_error(error)) for error in (too_large, unpaired, too_long, nul)]
    assert "too large" in messages[0]
    assert "a lone surrogate" in messages[1]
    assert "too long" in messages[2]
    assert "NUL" in messages[3]
    assert isinstance(postgres_error(nul), UsageError)

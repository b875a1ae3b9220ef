"""The state of a server: checks before it opens, and the folder of conversation files."""

import pytest
from tests.server_app import SETTINGS_WITH_KEYS, open_server_app

from cllm.core.errors import UsageError
from cllm.server.state import check_public_access, check_trusted_proxies
from cllm.settings.sections import KeySettings, ServerSettings

KEYS = (KeySettings(name="n", owner="o", key="k" * 20),)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1"])
def test_a_server_on_loopback_needs_no_keys(host: str):
    check_public_access(ServerSettings(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "cllm.example", ""])
def test_a_public_server_needs_keys(host: str):
    with pytest.raises(UsageError, match=r"server\.keys"):
        check_public_access(ServerSettings(host=host))

    check_public_access(ServerSettings(host=host, keys=KEYS))


async def test_an_unknown_default_provider_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="'nobody', which is not a provider"):
        async with open_server_app(tmp_path, "server: {default_provider: nobody}"):
            pass


async def test_only_a_server_without_keys_serves_conversation_files(tmp_path):
    async with open_server_app(tmp_path) as server:
        assert server.state.files is not None
    async with open_server_app(tmp_path, SETTINGS_WITH_KEYS) as server:
        assert server.state.files is None


def test_a_trusted_proxy_is_an_address_or_a_network():
    check_trusted_proxies(ServerSettings(trusted_proxies=("127.0.0.1", "10.0.0.0/8", "::1", "*")))
    for entry in ("proxy.example.org", "10.0.0.1/8", ""):
        with pytest.raises(UsageError, match=r"server\.trusted_proxies"):
            check_trusted_proxies(ServerSettings(trusted_proxies=(entry,)))

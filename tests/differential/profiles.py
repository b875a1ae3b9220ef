"""The settings of servers and commands. All providers are the version's own fake provider."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Settings = dict[str, Any]

KEYS = {
    "ann": "key-of-ann-0123456789abcdef",
    "bob": "key-of-bob-0123456789abcdef",
}
ROUTED = "us.anthropic.claude-3-7-sonnet-20250219-v1:0"


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How a server is started. With `deletes` all rows are compared after every case."""

    settings: Callable[[str, str], Settings]
    arguments: tuple[str, ...] = ()
    deletes: bool = False


def providers(root: str, nobody: str) -> Settings:
    return {
        "openai": {"api_base": f"{root}/v1", "models": ["text-embedding-3-small"]},
        "anthropic": {"api_base": f"{root}/v1"},
        "bedrock": {"region": "us-east-1", "endpoint_url": root},
        "responses": {
            "type": "openai",
            "api": "responses",
            "api_base": f"{root}/v1",
            "api_key": "key-of-responses",
        },
        "deepseek": {"api_base": f"{root}/v1", "api_key": "key-of-deepseek"},
        "vllm": {"api_base": f"{root}/v1", "profile": "strict"},
        "nobody": {"type": "openai", "api_base": f"{nobody}/v1"},
    }


def plain_settings(root: str, nobody: str) -> Settings:
    return {
        "model": "openai/gpt-test",
        "num_retries": 0,
        "providers": providers(root, nobody),
        "server": {"default_provider": "openai"},
    }


def timeout_settings(root: str, nobody: str) -> Settings:
    """Short timeouts, for providers that stop sending."""
    return (
        plain_settings(root, nobody)
        | {"timeout": 1.0}
        | _provider_settings(root, nobody, timeout=1.0)
    )


def _provider_settings(root: str, nobody: str, **options: Any) -> Settings:
    all_providers = providers(root, nobody)
    return {
        "providers": {name: {**settings, **options} for name, settings in all_providers.items()}
    }


def key_settings(root: str, nobody: str) -> Settings:
    """Two owners, a system prefix, routes, fallbacks, small limits and a retry."""
    keys = [{"name": name, "owner": name, "key": key} for name, key in KEYS.items()]
    return plain_settings(root, nobody) | {
        "num_retries": 1,
        "fallbacks": ["anthropic/claude-sonnet-4-5", "bedrock/claude-sonnet-4-5"],
        "server": {
            "keys": keys,
            "system_prefix": "Operator: be brief.",
            "default_provider": "bedrock",
            "routes": {"house": f"bedrock/{ROUTED}", "quick": "openai/gpt-quick"},
            "allowed_origins": ["https://example.org"],
            "on_disconnect": "cancel",
            "limits": {"body_bytes": 60_000, "messages": 40, "parts": 60, "depth": 12},
        },
    }


def turn_window_settings(root: str, nobody: str) -> Settings:
    return plain_settings(root, nobody) | {"window": {"strategy": "turns", "max_turns": 2}}


def token_window_settings(root: str, nobody: str) -> Settings:
    return plain_settings(root, nobody) | {"window": {"strategy": "blocks", "max_tokens": 400}}


def summary_settings(root: str, nobody: str) -> Settings:
    window = {"strategy": "summarise", "max_tokens": 600, "summary_tokens": 100}
    return plain_settings(root, nobody) | {"window": window}


PROFILES = {
    "plain": Profile(settings=plain_settings),
    "deletes": Profile(settings=plain_settings, deletes=True),
    "separate": Profile(settings=plain_settings),
    "short-timeout": Profile(settings=timeout_settings),
    "keys": Profile(settings=key_settings),
    "turn-window": Profile(settings=turn_window_settings),
    "token-window": Profile(settings=token_window_settings),
    "summary-window": Profile(settings=summary_settings),
}


def command_settings(root: str, nobody: str) -> Settings:
    """Return the Cllmfile of the home directory for runs of the command."""
    return {
        "model": "openai/gpt-test",
        "num_retries": 0,
        "providers": providers(root, nobody),
    }

"""The settings that servers and commands run with: every provider leads to the side's own fake."""

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
    """How a server is started. With `deletes`, all rows are compared after every case."""

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


def plain(root: str, nobody: str) -> Settings:
    return {
        "model": "openai/gpt-test",
        "num_retries": 0,
        "providers": providers(root, nobody),
        "server": {"default_provider": "openai"},
    }


def impatient(root: str, nobody: str) -> Settings:
    """For providers that fall silent."""
    return plain(root, nobody) | {"timeout": 1.0} | _each_with(root, nobody, timeout=1.0)


def _each_with(root: str, nobody: str, **more: Any) -> Settings:
    found = providers(root, nobody)
    return {"providers": {name: {**settings, **more} for name, settings in found.items()}}


def keyed(root: str, nobody: str) -> Settings:
    """Two owners, an operator's prompt, routes, fallbacks, small limits and a retry."""
    keys = [{"name": name, "owner": name, "key": key} for name, key in KEYS.items()]
    return plain(root, nobody) | {
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


def windowed(root: str, nobody: str) -> Settings:
    return plain(root, nobody) | {"window": {"strategy": "turns", "max_turns": 2}}


def tokened(root: str, nobody: str) -> Settings:
    return plain(root, nobody) | {"window": {"strategy": "blocks", "max_tokens": 400}}


def summarised(root: str, nobody: str) -> Settings:
    window = {"strategy": "summarise", "max_tokens": 600, "summary_tokens": 100}
    return plain(root, nobody) | {"window": window}


PROFILES = {
    "plain": Profile(settings=plain),
    "deleting": Profile(settings=plain, deletes=True),
    "fresh": Profile(settings=plain),
    "impatient": Profile(settings=impatient),
    "keyed": Profile(settings=keyed),
    "windowed": Profile(settings=windowed),
    "tokened": Profile(settings=tokened),
    "summarised": Profile(settings=summarised),
}


def command_settings(root: str, nobody: str) -> Settings:
    """The Cllmfile of the home for runs of the command."""
    return {
        "model": "openai/gpt-test",
        "num_retries": 0,
        "providers": providers(root, nobody),
    }

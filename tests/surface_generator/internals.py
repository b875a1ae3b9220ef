"""All private names of cllm that the generator uses.

The generator observes everything else: it runs commands, sends requests and reads files. If a
refactoring moves or renames one of these names, change its function here. The result stays the
same.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from cllm.core.errors import CllmError


def root_command() -> click.Group:
    """Return the click group of `cllm`."""
    from cllm.cli.main import root  # noqa: PLC0415

    return root


def main_command() -> click.Command:
    """Return the click command of `cllm PROMPT`."""
    from cllm.cli.main import ASK  # noqa: PLC0415

    command = root_command().get_command(click.Context(root_command()), ASK)
    assert command is not None
    return command


def command_aliases() -> Mapping[str, str]:
    """Return the aliases of commands with their full names."""
    from cllm.cli.main import ALIASES  # noqa: PLC0415

    return ALIASES


def settings_keys() -> Mapping[str, frozenset[str]]:
    """Return the top-level keys of a Cllmfile by their user."""
    from cllm.settings import sections  # noqa: PLC0415

    return {
        "cllm": sections.CLLM_KEYS,
        "provider": sections.PROVIDER_KEYS,
        "request body": sections.BODY_KEYS,
    }


def settings_defaults(home: Path) -> Mapping[str, Any]:
    """Return the default values of the settings."""
    from cllm.history.context import ContextCommand  # noqa: PLC0415
    from cllm.providers.http.transport import Timeouts  # noqa: PLC0415
    from cllm.settings.load import CommandLine, Environment, load_settings  # noqa: PLC0415

    environment = Environment(home=home, directory=home, environment={})
    settings = load_settings(environment, CommandLine())
    fields = {field.name: field.default for field in msgspec.structs.fields(ContextCommand)}
    return {
        "context_commands[].on_failure": fields["on_failure"],
        "context_commands[].timeout": fields["timeout"],
        "dynamic_commands.max_commands": settings.commands.max_commands,
        "dynamic_commands.require_confirmation": settings.commands.confirm,
        "dynamic_commands.timeout": settings.commands.timeout,
        "num_retries": settings.retries,
        "on_interrupt": settings.on_interrupt,
        "raw_response": settings.raw,
        "server": msgspec.to_builtins(settings.server),
        "stream": settings.stream,
        "strict": settings.strict,
        "timeout": msgspec.to_builtins(Timeouts()),
        "verbosity": settings.verbosity,
        "window.max_tokens": settings.window.max_tokens,
        "window.max_turns": settings.window.max_turns,
        "window.strategy": settings.window.strategy,
        "window.summary_tokens": settings.window.summary_tokens,
    }


def settings_records() -> Mapping[str, tuple[str, ...]]:
    """Return the keys of mappings in lists of the settings."""
    from cllm.commands.tool import OfferedCommand  # noqa: PLC0415
    from cllm.history.side_requests import SideRule  # noqa: PLC0415
    from cllm.settings.sections import KeySettings  # noqa: PLC0415

    return {
        "dynamic_commands.available_commands[]": OfferedCommand.__struct_fields__,
        "server.keys[]": KeySettings.__struct_fields__,
        "server.side_requests[]": SideRule.__struct_fields__,
    }


def provider_rows() -> Mapping[str, Mapping[str, Any]]:
    """Return the built-in providers: URL, variable of the key, protocol."""
    from cllm.providers.registry import BUILTIN_PROVIDERS  # noqa: PLC0415

    return {
        name: msgspec.to_builtins(row, order="deterministic")
        for name, row in BUILTIN_PROVIDERS.items()
    }


def provider_prefixes() -> Mapping[str, str]:
    """Return the prefixes of model names that determine a provider."""
    from cllm.providers.registry import KNOWN_PREFIXES  # noqa: PLC0415

    return KNOWN_PREFIXES


def error_statuses() -> Mapping[str, int]:
    """Return the HTTP status of every error code."""
    from cllm.server.http.errors import STATUS_BY_CODE  # noqa: PLC0415

    return STATUS_BY_CODE


def error_response(error: CllmError, protocol: str) -> tuple[int, Mapping[str, str], bytes]:
    """Return the server's response to an error: status, headers and body."""
    from cllm.server.http.errors import anthropic_error_response, openai_error_response  # noqa: PLC0415

    return (
        anthropic_error_response(error) if protocol == "anthropic" else openai_error_response(error)
    )


def notice() -> Any:
    """Return a notice whose fields are their own names."""
    from cllm.core.notice import Notice  # noqa: PLC0415

    return Notice(code="CODE", message="MESSAGE", path="PATH")

"""The sections of a Cllmfile as structs. Descriptions complete the error "`key` must be …"."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from cllm.commands.permission import CommandRules
from cllm.commands.tool import CommandSettings, OfferedCommand
from cllm.core.errors import SettingsError
from cllm.core.secret import Secret
from cllm.history.context import DEFAULT_TIMEOUT, ContextCommand, OnFailure
from cllm.history.side_requests import SideRule
from cllm.schemas.source import SchemaSource, is_url
from cllm.settings.layers import (
    COMMAND_LINE,
    SCHEMA_KEYS,
    Environment,
    LayeredSettings,
    expand_home,
)
from cllm.settings.side_requests import read_side_requests
from cllm.settings.trust import is_outside_folder

MEGABYTE = 1024 * 1024
MAX_TIMEOUT = 1_000_000
MAX_CONTEXT_COMMANDS = 100
MAX_RETRIES = 20
MAX_VERBOSITY = 3
MAX_WINDOW = 100_000_000

Text = Annotated[str, Meta(description="a string")]
Texts = Annotated[tuple[str, ...], Meta(description="a list of strings")]
Count = Annotated[int, Meta(ge=1, description="a whole number of at least 1")]
Port = Annotated[int, Meta(ge=0, description="a whole number of at least 0")]
Seconds = Annotated[float, Meta(gt=0, description="a number of seconds above 0")]
Flag = Annotated[bool, Meta(description="true or false")]
Object = Annotated[dict[str, Any], Meta(description="a mapping")]
Retries = Annotated[
    int, Meta(ge=0, le=MAX_RETRIES, description=f"a whole number from 0 to {MAX_RETRIES}")
]


class CllmKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of type Any are decoded elsewhere."""

    aliases: Annotated[
        dict[str, str], Meta(description="a mapping of names to models, such as {fast: openai/x}")
    ] = {}
    allow_dynamic_commands: Flag = False
    budget: Annotated[None, Meta(description="removed: cllm has no budgets")] = None
    context_commands: Any = None
    conversations_path: Text | None = None
    debug: Flag = False
    default_provider: Any = None
    default_system_message: Text | None = None
    dynamic_commands: Any = None
    json_logs: Flag = False
    json_schema: Any = None
    json_schema_file: Any = None
    log_file: Text | None = None
    model: Text | None = None
    on_interrupt: Annotated[Literal["keep", "discard"], Meta(description="`keep` or `discard`")] = (
        "keep"
    )
    prompt: Text | None = None
    providers: Object = {}
    raw_response: Flag = False
    save: Annotated[Literal["named", "all"], Meta(description="`named` or `all`")] = "named"
    server: Any = None
    store: Text | None = None
    stream: Flag = True
    strict: Flag = False
    variables: Any = None
    verbosity: Annotated[
        int, Meta(ge=0, le=MAX_VERBOSITY, description=f"a whole number from 0 to {MAX_VERBOSITY}")
    ] = 0
    window: Any = None


class ProviderKeys(msgspec.Struct, frozen=True, kw_only=True):
    api_base: Text | None = None
    api_key: Text | None = None
    api_version: Any = None
    base_url: Any = None
    custom_llm_provider: Any = None
    drop_params: Any = None
    extra_headers: Object = {}
    fallbacks: Annotated[
        list[str], Meta(description="a list of models, such as [openai/gpt-4o]")
    ] = []
    max_retries: Retries | None = None
    num_retries: Retries | None = None
    organization: Any = None
    timeout: Any = None


CLLM_KEYS = frozenset(CllmKeys.__struct_fields__)
PROVIDER_KEYS = frozenset(ProviderKeys.__struct_fields__)
TOP_KEYS = ("api_base", "base_url", "api_key", "extra_headers", "timeout")
LITELLM_KEYS = ("api_version", "custom_llm_provider", "drop_params", "organization")
BODY_KEYS = frozenset(
    (
        *("frequency_penalty", "logit_bias", "logprobs", "max_completion_tokens", "max_tokens"),
        *("n", "parallel_tool_calls", "presence_penalty", "reasoning_effort", "response_format"),
        *("seed", "stop", "temperature", "tool_choice", "tools", "top_k", "top_logprobs"),
        *("top_p", "user"),
    )
)
KNOWN_KEYS = CLLM_KEYS | PROVIDER_KEYS | BODY_KEYS


TimeoutPart = Literal["connect", "first_byte", "idle"]


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach one provider. `names` maps other model names to the provider's."""

    kind: str | None = None
    api_base: str | None = None
    api_key: Secret | None = None
    headers: dict[str, Secret] = msgspec.field(default_factory=dict)
    timeout: float | dict[TimeoutPart, float] | None = None
    models: tuple[str, ...] = ()
    names: dict[str, str] = msgspec.field(default_factory=dict)
    options: dict[str, Any] = msgspec.field(default_factory=dict)


class TopProvider(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the provider of a model, from the top level of a file.

    Applies to the model that is set at that layer or below, never to a model that a file above
    sets: the author of that file could choose where a key is sent.
    """

    model: str | None
    settings: ProviderSettings


_Timeout = Annotated[float, Meta(gt=0, le=MAX_TIMEOUT)]


class _ProviderRow(msgspec.Struct, kw_only=True):
    type: Any = None
    api_base: Any = None
    base_url: Any = None
    api_key: Any = None
    extra_headers: Object = {}
    timeout: Annotated[
        _Timeout | dict[TimeoutPart, _Timeout] | None,
        Meta(
            description="a number of seconds, above 0 and up to 1,000,000, or a mapping with "
            "connect, first_byte or idle"
        ),
    ] = None
    models: Annotated[list[str], Meta(description="a list of names")] = []
    names: Annotated[
        dict[str, str], Meta(description="a mapping of model names to the provider's names")
    ] = {}


def read_provider(content: Any, *, where: str, layered: LayeredSettings) -> ProviderSettings:
    """Read an entry of `providers` or, with an empty `where`, the keys of the top level."""
    expected = "a mapping such as {api_base: …, api_key: …}"
    row = layered.decode(content, _ProviderRow, where, expected=expected)
    prefix = f"{where}." if where else ""
    if not all(f"{name}{value}".isprintable() for name, value in row.extra_headers.items()):
        raise layered.expectation_error(f"{prefix}extra_headers", "one line per header")
    base = row.api_base or row.base_url
    if base is not None and not isinstance(base, str):
        raise layered.expectation_error(f"{prefix}api_base", "a string")
    return ProviderSettings(
        kind=row.type,
        api_base=base,
        api_key=Secret(str(row.api_key)) if row.api_key else None,
        headers={name: Secret(str(value)) for name, value in row.extra_headers.items()},
        timeout=row.timeout,
        models=tuple(row.models),
        names=row.names,
        options={
            name: value
            for name, value in content.items()
            if name not in _ProviderRow.__struct_fields__
        },
    )


_CommandSeconds = Annotated[float, Meta(gt=0, le=3600)]


class _ContextRow(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    name: Text | None = None
    command: Annotated[str, Meta(pattern=r"\S", description="a shell command")]
    on_failure: Annotated[OnFailure, Meta(description="`warn`, `ignore` or `fail`")] = "warn"
    timeout: Annotated[_CommandSeconds, Meta(description="seconds, above 0 and at most 3600")] = (
        DEFAULT_TIMEOUT
    )
    dynamic: Flag = False


def read_context_commands(layered: LayeredSettings) -> tuple[ContextCommand, ...]:
    key = "context_commands"
    rows = layered.values.get(key)
    if rows is None:
        return ()
    if not isinstance(rows, list) or len(rows) > MAX_CONTEXT_COMMANDS:
        expected = f"a list of at most {MAX_CONTEXT_COMMANDS} commands, each with `command`"
        raise layered.expectation_error(key, expected)
    expected = "a mapping such as {name: Git status, command: git status}"
    commands = []
    for number, (content, raw) in enumerate(zip(rows, layered.raw_value(key), strict=True)):
        row = layered.decode(content, _ContextRow, f"{key}.{number}", expected=expected)
        text = str(raw["command"])
        commands.append(
            ContextCommand(
                name=row.name or text,
                command=row.command,
                template=text,
                kind="dynamic" if row.dynamic else "static",
                on_failure=row.on_failure,
                timeout=row.timeout,
            )
        )
    return tuple(commands)


Patterns = Annotated[list[str], Meta(description="a list of patterns such as [git log*]")]


_Offers = Annotated[
    list[OfferedCommand | str],
    Meta(description="a list such as [{command: git log, description: …}]"),
]


class _DynamicCommands(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    available_commands: _Offers | None = None
    allow: Patterns | None = None
    deny: Patterns = []
    require_confirmation: Flag = False
    timeout: Annotated[_CommandSeconds, Meta(description="a number above 0 and at most 3600")] = (
        30.0
    )
    max_commands: Annotated[
        int, Meta(gt=0, le=1000, description="a whole number above 0 and at most 1000")
    ] = 10


def read_command_settings(layered: LayeredSettings) -> CommandSettings:
    key = "dynamic_commands"
    content = layered.values.get(key)
    if content is None:
        return CommandSettings()
    expected = f"a mapping of {', '.join(_DynamicCommands.__struct_fields__)}"
    section = layered.decode(content, _DynamicCommands, key, expected=expected)
    offers = tuple(
        OfferedCommand(command=row) if isinstance(row, str) else row
        for row in section.available_commands or ()
    )
    allow = None
    if section.allow is not None or section.available_commands is not None:
        allow = (*(section.allow or ()), *(offer.command for offer in offers))
    return CommandSettings(
        offers=offers,
        rules=CommandRules(deny=split_patterns(section.deny), allow=allow),
        confirm=section.require_confirmation,
        timeout=section.timeout,
        max_commands=section.max_commands,
    )


def apply_flags(
    settings: CommandSettings, *, allow: Sequence[str], deny: Sequence[str], confirm: bool
) -> CommandSettings:
    rules = CommandRules(
        deny=(*settings.rules.deny, *split_patterns(deny)),
        allow=(*(settings.rules.allow or ()), *split_patterns(allow)) or settings.rules.allow,
    )
    return msgspec.structs.replace(settings, rules=rules, confirm=settings.confirm or confirm)


def split_patterns(lists: Sequence[str]) -> tuple[str, ...]:
    return tuple(pattern for one in lists for part in one.split(",") if (pattern := part.strip()))


StrategyName = Literal["blocks", "turns", "summarise"]
WINDOW_KEYS = {
    "blocks": ("max_tokens",),
    "turns": ("max_turns",),
    "summarise": ("max_tokens", "summary_tokens"),
}
_WINDOW_RANGE = f"a whole number from 1 to {MAX_WINDOW}"
_Tokens = Annotated[int, Meta(ge=1, le=MAX_WINDOW, description=_WINDOW_RANGE)]


class WindowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a conversation is sent; `max_tokens` None means the limit of the model."""

    strategy: StrategyName = "blocks"
    max_tokens: int | None = None
    max_turns: int = 10
    summary_tokens: int = 1000
    is_configured: bool = False


class _Window(msgspec.Struct, kw_only=True):
    strategy: Annotated[StrategyName, Meta(description="`blocks`, `turns` or `summarise`")] = (
        "blocks"
    )
    max_tokens: Annotated[
        _Tokens | Literal["auto"] | None, Meta(description=f"{_WINDOW_RANGE}, or `auto`")
    ] = None
    max_turns: _Tokens = 10
    summary_tokens: _Tokens = 1000


def read_window(layered: LayeredSettings) -> WindowSettings:
    content = layered.values.get("window")
    if content is None:
        return WindowSettings()
    if not isinstance(content, dict):
        raise layered.expectation_error(
            "window", "a mapping such as {strategy: turns, max_turns: 10}"
        )
    strategy = content.get("strategy") or "blocks"
    known_keys = WINDOW_KEYS.get(str(strategy), tuple(content))
    for name in content:
        if name == "strategy" or name in known_keys:
            continue
        others = [f"`strategy: {other}`" for other, keys in WINDOW_KEYS.items() if name in keys]
        known = " and ".join(f"`{key}`" for key in known_keys)
        problem = f"is not a known key; `strategy: {strategy}` accepts {known}"
        if others:
            problem = f"needs {' or '.join(others)}"
        raise layered.error_at(f"window.{name}", problem)
    section = layered.decode(content, _Window, "window")
    return WindowSettings(
        strategy=section.strategy,
        max_tokens=None if section.max_tokens == "auto" else section.max_tokens,
        max_turns=section.max_turns,
        summary_tokens=section.summary_tokens,
        is_configured=True,
    )


SCHEMA_FLAGS = {"json_schema": "--json-schema", "json_schema_file": "--json-schema-file"}


def read_schema_source(
    layered: LayeredSettings, env: Environment, *, cllm_folder: Path
) -> SchemaSource | None:
    """A relative file is in the folder of its Cllmfile, the current one, or `cllm_folder`."""
    keys = [key for key in SCHEMA_KEYS if layered.values.get(key) is not None]
    if not keys:
        return None
    key, value = keys[0], layered.values[keys[0]]
    layer = next(layer for layer in reversed(layered.layers) if key in layer.content)
    if len(keys) > 1:
        raise SettingsError(
            "use either `json_schema` or `json_schema_file`, not both.", path=layer.source
        )
    name, folder = SCHEMA_FLAGS[key], env.directory
    if layer.source != COMMAND_LINE:
        source = Path(layer.source)
        name, folder = f"{source.name}: {key}", env.directory / source.parent
    folders = (folder, env.directory, cllm_folder)
    if key == "json_schema":
        if not isinstance(value, dict | str):
            raise layered.expectation_error(key, "a JSON schema, as a mapping or as JSON text")
        return SchemaSource(name=name, inline=value)
    if not isinstance(value, str) or not value.strip():
        raise layered.expectation_error(key, "the path or the https URL of a JSON schema")
    file = value if is_url(value) else str(expand_home(value))
    return SchemaSource(
        name=name,
        file=file,
        folder=next((one for one in folders if _has_file(one, file)), folder),
        is_confined=not layer.is_own and not is_outside_folder(value),
    )


def _has_file(folder: Path, name: str) -> bool:
    try:
        return (folder / name).exists()
    except OSError:
        return False


class KeySettings(msgspec.Struct, frozen=True, kw_only=True):
    """A client's key, or its SHA-256 in hexadecimal, and the owner of its conversations.

    An `admin` key can read the metrics of all owners.
    """

    name: str
    owner: str
    hash: str | None = None
    key: str | None = None
    admin: bool = False

    def __repr__(self) -> str:
        """Omits the key."""
        return f"KeySettings(name={self.name!r}, owner={self.owner!r})"


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    body_bytes: Count = 32 * MEGABYTE
    bodies_bytes: Count = 256 * MEGABYTE
    import_bytes: Count = 4096 * MEGABYTE
    messages: Count = 10_000
    parts: Count = 10_000
    depth: Count = 64
    head_bytes: Count = 64 * 1024
    head_seconds: Seconds = 30
    body_seconds: Seconds = 60
    queue_seconds: Seconds = 60
    turn_seconds: Seconds = 3600
    stop_seconds: Seconds = 7


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`silence_seconds`: time without events after which a stream gets a keep-alive.

    `idempotency_seconds` is the lifetime of a saved response, `events_seconds` that of a stream's
    events after its end. `record` decides whether requests without a conversation are saved.
    """

    host: Text = "127.0.0.1"
    port: Port = 3000
    workers: Count = 1
    store: Text | None = None
    tls_cert: Text | None = None
    tls_key: Text | None = None
    trusted_proxies: Texts = ()
    default_provider: Text | None = None
    routes: Annotated[dict[str, str], Meta(description="a mapping of model names to models")] = (
        msgspec.field(default_factory=dict)
    )
    system_prefix: Text | None = None
    on_disconnect: Annotated[
        Literal["complete", "continue", "cancel"], Meta(description="`complete` or `cancel`")
    ] = "complete"
    keys: Annotated[
        tuple[KeySettings, ...],
        Meta(description="a list of mappings such as {name: ci, owner: ci, key: '${CI_KEY}'}"),
    ] = ()
    allowed_hosts: Texts = ()
    allowed_origins: Texts = ()
    silence_seconds: Seconds = 15
    idempotency_seconds: Seconds = 24 * 3600
    events_seconds: Seconds = 600
    record: Annotated[Literal["auto", "off"], Meta(description="`auto` or `off`")] = "off"
    side_requests: tuple[SideRule, ...] = ()
    limits: Limits = Limits()


def read_server(layered: LayeredSettings, environment: Mapping[str, str]) -> ServerSettings:
    content = layered.values.get("server")
    rules: tuple[SideRule, ...] = ()
    if isinstance(content, dict):
        rules = read_side_requests(content.get("side_requests"), layered)
        # YAML reads an unquoted `off` as false.
        record = "off" if content.get("record") is False else content.get("record")
        content = {**content, "record": record, "side_requests": None}
    server = layered.decode({} if content is None else content, ServerSettings, "server")
    provider = environment.get("DEFAULT_PROVIDER", "").strip() or server.default_provider
    return msgspec.structs.replace(server, default_provider=provider, side_requests=rules)


OLDER_VARIABLES = {
    "API_TOKENS": "list the keys under `server.keys` of a Cllmfile.",
    "REQUIRE_AUTH": "the server requires a key if `server.keys` of a Cllmfile lists one.",
    "REASONING_DATABASE_URL": "select the database with --store URL or `server.store`.",
}
"""Environment variables of older deployments, and what replaces them."""


def describe_ignored_variables(environment: Mapping[str, str]) -> Iterator[str]:
    for name, advice in OLDER_VARIABLES.items():
        if environment.get(name, "").strip():
            yield f"the environment variable {name} is ignored; {advice}"

"""The effective settings as one typed value, and the folder and stores of the history."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from cllm.commands.tool import CommandSettings
from cllm.core.errors import SettingsError, UsageError
from cllm.core.notice import Notice
from cllm.history.context import ContextCommand
from cllm.history.system_prompt import GivenPrompt
from cllm.schemas.source import SchemaSource
from cllm.settings import sections
from cllm.settings.cllmfile import find_line
from cllm.settings.layers import (
    CommandLine,
    Environment,
    Layer,
    LayeredSettings,
    expand_home,
    explicit_cllm_path,
    merge,
    merge_layers,
    read_files,
    user_folder,
)
from cllm.settings.sections import ProviderSettings, ServerSettings, TopProvider, WindowSettings
from cllm.settings.trust import check_trust, is_secret_name
from cllm.settings.variables import Variables, find_unused_variables, read_variables
from cllm.stores.registry import PATH_SCHEMES, list_passwords, normalize_url

__all__ = [
    "CommandLine",
    "Environment",
    "ProviderSettings",
    "Settings",
    "TopProvider",
    "load_settings",
    "merge",
    "read_files",
    "user_folder",
]

DEFAULT_RETRIES = 2
_WHOLE, _NUMBER = ((int,), "a whole number"), ((int, float), "a number")
NUMERIC_PARAMETERS: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "seed"), _WHOLE),
    **dict.fromkeys(("temperature", "top_p", "frequency_penalty", "presence_penalty"), _NUMBER),
}
LOCAL = ".cllm"
CONVERSATIONS = "conversations"
DATABASE = "cllm.db"
# The database and the files that SQLite creates next to it.
DATABASE_SUFFIXES = ("", "-wal", "-shm", "-journal")
LOCKS = ".locks"
JSON = "json:"
SQLITE = "sqlite:"
MEMORY = "memory:"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The effective settings. `top_providers`: from the top level of the files, lowest first.

    `store` is the store of new conversations. Unless `is_single_store`, conversations of the other
    default store are listed and continued too.
    """

    env: Environment
    files_folder: Path
    database_folder: Path
    model: str | None
    model_is_explicit: bool
    system: GivenPrompt
    prompt: str | None
    stream: bool
    raw: bool
    on_interrupt: str
    retries: int
    fallbacks: tuple[str, ...]
    strict: bool
    parameters: dict[str, Any]
    aliases: dict[str, str]
    top_providers: tuple[TopProvider, ...]
    providers: dict[str, ProviderSettings]
    context: tuple[ContextCommand, ...]
    variables: Variables
    window: WindowSettings
    allow_commands: bool
    commands: CommandSettings
    verbosity: int
    json_logs: bool
    log_file: Path | None
    schema: SchemaSource | None
    server: ServerSettings
    save: str
    store: str
    is_single_store: bool
    notices: tuple[Notice, ...]

    def expand_alias(self, name: str) -> str:
        """Return the model of an alias; other names are unchanged."""
        return self.aliases.get(name, name)

    def secrets(self) -> list[str]:
        from cllm.settings.saved_keys import SavedKeys  # noqa: PLC0415 - only for logs

        rows = [*self.providers.values(), *(top.settings for top in self.top_providers)]
        keys = [row.api_key for row in rows if row.api_key is not None]
        headers = [value for row in rows for value in row.headers.values()]
        environment = self.env.environment.items()
        variables = self.variables.by_name.items()
        return [
            *(secret.reveal() for secret in (*keys, *headers)),
            *(value for name, value in environment if is_secret_name(name)),
            *(
                str(variable.value)
                for name, variable in variables
                if is_secret_name(name) and variable.value is not None
            ),
            *(key.key for key in self.server.keys if key.key),
            *SavedKeys(user_folder(self.env)).read_file_keys(),
            *list_passwords(self.store),
            *list_passwords(self.server.store or ""),
        ]


def load_settings(env: Environment, line: CommandLine) -> Settings:
    return build_settings(load_layers(env, line), env, line)


def load_layers(env: Environment, line: CommandLine) -> LayeredSettings:
    """Read and merge the layers; raises UntrustedFileError for an untrusted file."""
    files = read_files(env, line)
    for file in files:
        check_trust(file, env, line)
    return merge_layers(files, env, line)


def _read_aliases(own: sections.CllmKeys, layered: LayeredSettings) -> dict[str, str]:
    """Names without a slash, so that no alias hides a `provider/name`."""
    for name in own.aliases:
        if not name.strip() or "/" in name:
            raise layered.error_at(f"aliases.{name}", "must be a name without a slash")
    return own.aliases


def _read_top_providers(
    layered: LayeredSettings, aliases: dict[str, str]
) -> tuple[TopProvider, ...]:
    tops = []
    for index, layer in enumerate(layered.layers):
        values = {key: layer.content[key] for key in sections.TOP_KEYS if key in layer.content}
        if values:
            settings = sections.read_provider(values, where="", layered=layered)
            model = _model_for(layered.layers, index)
            tops.append(TopProvider(model=aliases.get(model or "", model), settings=settings))
    return tuple(tops)


def _model_for(layers: tuple[Layer, ...], index: int) -> str | None:
    """Return the model of a layer or the nearest below, else of the user's own layers above."""
    below = [layer.content.get("model") for layer in layers[: index + 1]]
    above = [layer.content.get("model") for layer in layers[index + 1 :] if layer.is_own]
    return next((model for model in [*reversed(below), *above] if model), None)


def build_settings(layered: LayeredSettings, env: Environment, line: CommandLine) -> Settings:
    values = layered.values
    own = layered.decode(values, sections.CllmKeys, "")
    provider = layered.decode(values, sections.ProviderKeys, "")
    _check_model_type(layered)
    aliases = _read_aliases(own, layered)
    model = own.model or None
    retries = (provider.num_retries, provider.max_retries, DEFAULT_RETRIES)
    folder = files_folder(env, line)
    context = sections.read_context_commands(layered)
    variables = read_variables(layered, line.variables, env.environment)
    return Settings(
        env=env,
        files_folder=folder,
        database_folder=database_folder(env, line),
        model=None if model is None else aliases.get(model, model),
        model_is_explicit="model" in line.values,
        system=line.system or _configured_prompt(layered),
        prompt=own.prompt or None,
        stream=own.stream,
        raw=own.raw_response,
        on_interrupt=own.on_interrupt,
        retries=next(number for number in retries if number is not None),
        fallbacks=tuple(aliases.get(name, name) for name in provider.fallbacks),
        strict=own.strict,
        parameters=_parameters(layered),
        aliases=aliases,
        top_providers=_read_top_providers(layered, aliases),
        providers={
            name: sections.read_provider(row, where=f"providers.{name}", layered=layered)
            for name, row in own.providers.items()
        },
        context=context,
        window=sections.read_window(layered),
        variables=variables,
        allow_commands=own.allow_dynamic_commands,
        commands=sections.read_command_settings(layered),
        verbosity=sections.MAX_VERBOSITY if own.debug else own.verbosity,
        json_logs=own.json_logs,
        log_file=env.directory / expand_home(own.log_file) if own.log_file else None,
        schema=sections.read_schema_source(
            layered, env, cllm_folder=explicit_cllm_path(env, line) or local_folder(env)
        ),
        server=sections.read_server(layered, env.environment),
        save=own.save,
        store=_store_url(own, env, folder),
        is_single_store=bool(own.store),
        notices=(
            *_misspelled_key_notices(values),
            *_ineffective_key_notices(values),
            *find_unused_variables(
                line.variables,
                declared=values.get("variables") or {},
                templates=(own.prompt or "", *(command.template for command in context)),
            ),
        ),
    )


def _check_model_type(layered: LayeredSettings) -> None:
    for file in layered.files:
        if not isinstance(file.content.get("model"), str | None):
            at = find_line(file.path, "model")
            raise SettingsError("`model` must be a string.", path=str(file.path), line=at)


def _configured_prompt(layered: LayeredSettings) -> GivenPrompt:
    text = layered.values.get("default_system_message")
    if text is None or not text.strip():
        return GivenPrompt()
    source = Path(layered.sources["default_system_message"])
    return GivenPrompt(text=text, source=f"{source.name}: default_system_message")


def _parameters(layered: LayeredSettings) -> dict[str, Any]:
    """Return the fields of the request; common ones are checked while their file is known."""
    own = sections.CLLM_KEYS | sections.PROVIDER_KEYS
    values = layered.values.items()
    parameters = {key: value for key, value in values if key not in own and value is not None}
    for key, (kind, expected) in NUMERIC_PARAMETERS.items():
        value = parameters.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
            raise layered.expectation_error(key, expected)
    return parameters


def _store_url(own: sections.CllmKeys, env: Environment, folder: Path) -> str:
    if own.store:
        return normalize_url(own.store)
    if own.conversations_path:
        return f"json:{env.directory / expand_home(own.conversations_path)}"
    files = folder / CONVERSATIONS
    _check_links(folder, (files, files / LOCKS), env, "pass the folder with --conversations-path")
    return file_store(folder)


def _check_links(folder: Path, paths: Iterable[Path], env: Environment, advice: str) -> None:
    """Refuse links out of a project, which may be somebody else's: cllm would write there."""
    for path in paths:
        if _is_foreign_link(folder, path, env):
            raise SettingsError(
                f"it is a symbolic link out of this project; {advice}.", path=str(path)
            )


def _misspelled_key_notices(values: dict[str, Any]) -> tuple[Notice, ...]:
    """Return one warning for each unknown key that resembles a known one."""
    unknown = [key for key in values if key not in sections.KNOWN_KEYS]
    if not unknown:
        return ()
    from difflib import get_close_matches  # noqa: PLC0415 - rarely needed

    near = {key: get_close_matches(key, sections.KNOWN_KEYS, n=1, cutoff=0.8) for key in unknown}
    return tuple(
        Notice(
            code="unknown_key",
            path=key,
            message=f"Unknown setting `{key}` is sent to the model; did you mean `{match[0]}`?",
        )
        for key, match in near.items()
        if match
    )


def _ineffective_key_notices(values: dict[str, Any]) -> tuple[Notice, ...]:
    return tuple(
        Notice(
            code="key_without_effect",
            path=key,
            message=f"`{key}` has no effect at the top level; move it to providers.litellm.",
        )
        for key in sections.LITELLM_KEYS
        if values.get(key) is not None
    )


def local_folder(env: Environment) -> Path:
    return env.directory / LOCAL


def has_files(folder: Path) -> bool:
    files = folder / CONVERSATIONS
    return files.is_dir() or files.is_symlink()


def files_folder(env: Environment, line: CommandLine) -> Path:
    """Return the explicit folder, else the current directory's if it has files, else the user's."""
    explicit, local = explicit_cllm_path(env, line), local_folder(env)
    return explicit or (local if has_files(local) else user_folder(env))


def database_folder(env: Environment, line: CommandLine) -> Path:
    """As `files_folder`, or the current directory's if it has a database."""
    local = local_folder(env)
    has_database = explicit_cllm_path(env, line) is None and (local / DATABASE).exists()
    return local if has_database else files_folder(env, line)


def file_store(folder: Path) -> str:
    return f"{JSON}{folder / CONVERSATIONS}"


def database_store(folder: Path) -> str:
    return f"{SQLITE}{folder / DATABASE}"


def default_stores(env: Environment) -> Iterator[str]:
    for folder in dict.fromkeys((user_folder(env), local_folder(env))):
        if links_outside(folder / CONVERSATIONS, env):
            continue
        if (folder / CONVERSATIONS).is_dir():
            yield file_store(folder)
        if (folder / DATABASE).is_file() and not (folder / DATABASE).is_symlink():
            yield database_store(folder)


def is_same_store(url: str, other: str) -> bool:
    """Compare the paths of files. The URLs of a database server are the same only if equal."""
    scheme, _, path = url.partition(":")
    other_scheme, _, other_path = other.partition(":")
    if scheme not in PATH_SCHEMES:
        return url == other
    return scheme == other_scheme and _resolve_location(path) == _resolve_location(other_path)


def _resolve_location(location: str) -> Path:
    return Path(location.partition("?")[0]).resolve()


def links_outside(folder: Path, env: Environment) -> bool:
    """Whether a symbolic link leads out of a project, which may be somebody else's."""
    if folder.parent.resolve() == user_folder(env).resolve():
        return False
    return not folder.resolve().is_relative_to(env.directory.resolve())


def _is_foreign_link(folder: Path, path: Path, env: Environment) -> bool:
    return folder == local_folder(env) and links_outside(path, env)


def _database_paths(folder: Path) -> list[Path]:
    return [folder / f"{DATABASE}{suffix}" for suffix in DATABASE_SUFFIXES]


def use_single_store(settings: Settings, url: str) -> Settings:
    return msgspec.structs.replace(settings, store=url, is_single_store=True)


def other_store(settings: Settings) -> str | None:
    """Return the server's database, whose conversations are shown with the conversation files.

    None if it does not exist, or if server keys separate its conversations by owner.
    """
    if settings.is_single_store or settings.server.keys:
        return None
    configured = settings.server.store
    if configured is not None:
        is_database = not configured.startswith((JSON, MEMORY))
        return normalize_url(configured) if is_database else None
    folder, env = settings.database_folder, settings.env
    if not (folder / DATABASE).is_file():
        return None
    if any(_is_foreign_link(folder, path, env) for path in _database_paths(folder)):
        return None
    return database_store(folder)


def operator_store(settings: Settings) -> str | None:
    """Return the database of `cllm serve`, whatever keys are configured; it may not exist yet.

    None if it is the store of the shell. Keys separate owners, and an operator saves all of them.
    """
    configured = settings.server.store
    if configured is not None and configured.startswith((JSON, MEMORY)):
        return None
    url = server_store(settings)
    return None if is_same_store(settings.store, url) else url


def server_store(settings: Settings) -> str:
    configured = settings.server.store
    if configured is None and not settings.store.startswith(JSON):
        configured = settings.store
    if configured is None:
        folder = settings.database_folder
        paths = _database_paths(folder)
        _check_links(folder, paths, settings.env, "pass the file with --store sqlite:PATH")
        url = database_store(folder)
    else:
        url = normalize_url(configured)
    if url.startswith(JSON):
        raise UsageError(
            "`cllm serve` needs a database and also serves the conversation files; use --store "
            "sqlite:PATH or --store postgresql://…"
        )
    if url.startswith(MEMORY) and settings.server.workers > 1:
        raise UsageError(
            "A memory: store works in one process only; use --workers 1, or another store."
        )
    return url

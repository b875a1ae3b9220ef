"""`cllm models`: lists models; sets the default model and aliases; downloads local models."""

from datetime import UTC, datetime
from pathlib import Path
from typing import assert_never

import click

from cllm.cli import output
from cllm.cli.completion import complete_models
from cllm.cli.inputs import HelpGroup, current_environment
from cllm.cli.progress import Progress
from cllm.cli.trust import load_trusted_layers, load_trusted_settings
from cllm.core.errors import MissingExtraError, UsageError
from cllm.providers.local.models import (
    DEFAULT_MODEL,
    SUGGESTED_MODEL,
    CachePaths,
    KnownModel,
    cache_paths,
    is_runtime_installed,
    remove_model,
)
from cllm.settings.cllmfile import FILE_NAME
from cllm.settings.layers import CommandLine, Environment, settings_folders
from cllm.settings.load import LOCAL as LOCAL_FOLDER
from cllm.settings.load import build_settings
from cllm.terminal import align_columns, make_visible

HELP = """List, choose and download models; set aliases."""
PULL_HELP = f"""Download a model for offline use.

MODEL is the name of a known model, such as {SUGGESTED_MODEL} (default {DEFAULT_MODEL}), a
repository on Hugging Face as hf:OWNER/REPO[:QUANT], a file there as hf:OWNER/REPO/FILE.gguf, or
the https:// URL of a GGUF file. Without QUANT, Q4_K_M or Q8_0 is chosen. The file of a known model
or of a repository is checked against its SHA-256. An interrupted download resumes. If HF_TOKEN is
set, it is sent to Hugging Face. HF_ENDPOINT selects another server with the same API."""
PULL_EXAMPLES = (
    "cllm models pull",
    "cllm models pull hf:OWNER/REPO:Q4_K_M",
    "cllm models pull hf:OWNER/REPO/model.gguf",
)
LIST_HELP = """List models with their context window and price.

Lists the local models, the models of a running Ollama, and those of the providers with a key or in
the settings. The names come from the provider's list, which is cached for a day, or from the price
table. The context window is in tokens, prices are in dollars per million tokens."""
LIST_EXAMPLES = (
    "cllm models list",
    "cllm models list --provider openai",
    "cllm models list --refresh",
    "cllm models list --all --json",
)
DEFAULT_HELP = """Set the default model, or print it and its source.

Writes `model: NAME` into ~/.cllm/Cllmfile.yml and leaves the rest of the file unchanged."""
DEFAULT_EXAMPLES = (
    "cllm models default",
    "cllm models default openai/gpt-4o",
    "cllm models default openai/gpt-4o --local",
)
ALIAS_HELP = """List the aliases of models, set one, or remove one.

An alias works wherever a model can be named. It is a name without slashes and spaces. The command
writes `aliases` in ~/.cllm/Cllmfile.yml and leaves the rest of the file unchanged."""
ALIAS_EXAMPLES = (
    "cllm models alias",
    "cllm models alias fast openai/gpt-4o-mini",
    "cllm models alias --remove fast",
)
ALIASES = "aliases"
MAX_ALIAS_LENGTH = 100
REMOVE_HELP = "Delete the file of a model from the cache."


@click.group(cls=HelpGroup, name="models", help=HELP, examples=("cllm models list",))
def command() -> None:
    pass


@command.command(name="pull", help=PULL_HELP, examples=PULL_EXAMPLES)
@click.argument("model", required=False, default=DEFAULT_MODEL)
@click.option("--sha256", metavar="HEX", help="Expected SHA-256 hash of the file.")
def pull(model: str, sha256: str | None) -> None:
    from cllm.providers.local import fetch
    from cllm.providers.local.download import DownloadSource
    from cllm.providers.local.hub import HubQuery

    if not is_runtime_installed():
        raise MissingExtraError(feature="A local model", extra="local")
    env = current_environment()
    target = fetch.parse_target(model, env.environment)
    fetcher = fetch.Fetcher(paths=_find_paths(), environ=env.environment, report=Progress())
    match target:
        case KnownModel():
            fetched = fetch.fetch_known_model(target, fetcher, sha256=sha256 or target.sha256)
        case HubQuery():
            fetched = fetch.fetch_from_hub(target, fetcher, sha256=sha256)
        case DownloadSource():
            fetched = fetch.fetch_remote(target, fetcher, sha256=sha256)
        case _:
            assert_never(target)
    output.note(f'Use it with: cllm -m local/{fetched.name} "Hello"')


@command.command(name="list", help=LIST_HELP, examples=LIST_EXAMPLES)
@click.option("--provider", metavar="NAME", help="List the models of one provider.")
@click.option("--all", "is_complete", is_flag=True, help="List the models of all providers.")
@click.option("--refresh", "is_refresh", is_flag=True, help="Read the lists of providers again.")
@click.option("--json", "as_json", is_flag=True, help="Print the models as JSON.")
def list_command(
    *, provider: str | None, is_complete: bool, is_refresh: bool, as_json: bool
) -> None:
    print_models(
        CommandLine(),
        provider=provider,
        is_complete=is_complete,
        is_refresh=is_refresh,
        as_json=as_json,
    )


def print_models(
    line: CommandLine,
    *,
    provider: str | None = None,
    is_complete: bool = False,
    is_refresh: bool = False,
    as_json: bool = False,
) -> None:
    from cllm.model_list import ModelListing, format_rows

    settings = load_trusted_settings(current_environment(), line)
    problems: list[str] = []
    listing = ModelListing(
        settings,
        _find_paths(),
        now=datetime.now(UTC),
        report=problems.append,
        is_refresh=is_refresh,
    )
    rows = listing.list_rows(provider=provider, is_complete=is_complete)
    if not rows and not problems:
        advice = f"save its key (cllm keys set {provider}) or set its `api_base` and `models`"
        problems.append(f"No model of '{provider}' is known; {advice}.")
    for problem in problems:
        output.note(problem)
    if as_json:
        output.print_json(rows)
    elif rows:
        output.print_lines(format_rows(rows, columns=output.terminal_columns()))


@command.command(name="default", help=DEFAULT_HELP, examples=DEFAULT_EXAMPLES)
@click.argument("name", required=False, shell_complete=complete_models)
@click.option("--local", "is_local", is_flag=True, help="Write ./.cllm/Cllmfile.yml.")
def default_command(name: str | None, *, is_local: bool) -> None:
    from cllm.app import App
    from cllm.settings.cllmfile_edit import set_key

    env, line = current_environment(), CommandLine()
    if name is None:
        layered = load_trusted_layers(env, line)
        settings = build_settings(layered, env, line)
        app = App(settings)
        source = layered.source_of("model") if settings.model else app.model_choice.reason
        output.print_visibly(f"{app.model} ({source})")
        return
    settings = load_trusted_settings(env, line)
    model = settings.expand_alias(name)
    App(settings).provider_of(model)
    path = _find_cllmfile(env, line, is_local=is_local)
    set_key(path, "model", name)
    output.note(f"The default model is {name} ({path}).")
    effective = load_trusted_settings(env, line).model
    if effective != model:
        output.note(f"Here {effective} has priority; see: cllm models default")


@command.command(name="alias", help=ALIAS_HELP, examples=ALIAS_EXAMPLES)
@click.argument("name", required=False)
@click.argument("model", required=False, shell_complete=complete_models)
@click.option("--remove", "removed", metavar="NAME", help="Remove this alias.")
@click.option("--local", "is_local", is_flag=True, help="Write ./.cllm/Cllmfile.yml.")
@click.option("--json", "as_json", is_flag=True, help="Print the aliases as JSON.")
def alias_command(
    name: str | None, model: str | None, *, removed: str | None, is_local: bool, as_json: bool
) -> None:
    if removed is not None and name is not None:
        raise UsageError("--remove takes one name; use: cllm models alias --remove NAME")
    if removed is not None:
        _remove_alias(removed, is_local=is_local)
    elif name is None:
        _print_aliases(as_json=as_json)
    elif model is None:
        raise UsageError(f"The alias '{name}' needs a model; use: cllm models alias NAME MODEL")
    else:
        _set_alias(name, model, is_local=is_local)


def _set_alias(name: str, model: str, *, is_local: bool) -> None:
    from cllm.app import App
    from cllm.settings.cllmfile_edit import set_entry

    is_valid = name.isprintable() and not ("/" in name or " " in name or name.startswith("-"))
    if not is_valid or not 0 < len(name) <= MAX_ALIAS_LENGTH:
        raise UsageError(
            f"'{make_visible(name)}' cannot be an alias; use at most {MAX_ALIAS_LENGTH} visible "
            "characters without slashes and spaces, and no hyphen first."
        )
    env, line = current_environment(), CommandLine()
    settings = load_trusted_settings(env, line)
    target = settings.expand_alias(model)
    App(settings).provider_of(target)
    path = _find_cllmfile(env, line, is_local=is_local)
    set_entry(path, ALIASES, name, target)
    output.note(f"{name} is an alias of {target} ({path}).")
    effective = load_trusted_settings(env, line).expand_alias(name)
    if effective != target:
        output.note(f"Here {effective} has priority; see: cllm models alias")


def _remove_alias(name: str, *, is_local: bool) -> None:
    from cllm.settings.cllmfile import read_cllmfile
    from cllm.settings.cllmfile_edit import remove_entry

    env, line = current_environment(), CommandLine()
    path = _find_cllmfile(env, line, is_local=is_local)
    file = read_cllmfile(path, in_user_folder=True)
    aliases = None if file is None else file.content.get(ALIASES)
    if not isinstance(aliases, dict) or name not in aliases:
        layered = load_trusted_layers(env, line)
        if name in build_settings(layered, env, line).aliases:
            source = layered.source_of(f"{ALIASES}.{name}")
            raise UsageError(f"The alias '{name}' is in {source}; remove it there.")
        raise UsageError(f"There is no alias '{name}'; list them with: cllm models alias")
    remove_entry(path, ALIASES, name)
    output.note(f"Removed the alias {name} ({path}).")


def _print_aliases(*, as_json: bool) -> None:
    aliases = load_trusted_settings(current_environment(), CommandLine()).aliases
    if as_json:
        output.print_json([{"name": name, "model": aliases[name]} for name in sorted(aliases)])
    elif aliases:
        rows = [("ALIAS", "MODEL"), *sorted(aliases.items())]
        output.print_lines(align_columns(rows, output.terminal_columns()))
    else:
        output.note("There are no aliases; set one with: cllm models alias NAME MODEL")


def _find_cllmfile(env: Environment, line: CommandLine, *, is_local: bool) -> Path:
    folder = env.directory / LOCAL_FOLDER if is_local else settings_folders(env, line)[0][0]
    return folder / FILE_NAME


@command.command(name="remove", help=REMOVE_HELP, examples=(f"cllm models remove {DEFAULT_MODEL}",))
@click.argument("name")
def remove_command(name: str) -> None:
    output.print_line(f"Removed {remove_model(name.removeprefix('local/'), _find_paths())}")


def _find_paths() -> CachePaths:
    env = current_environment()
    return cache_paths(env.environment, home=env.home)

"""`cllm keys`: saves, lists and removes API keys."""

import re
import sys
from difflib import get_close_matches

import click
import msgspec

from cllm.cli import output
from cllm.cli.inputs import HelpGroup, OptionError, current_environment, piped_input
from cllm.core.errors import UsageError
from cllm.providers.registry import BUILTIN_PROVIDERS, LOCAL, MIN_SIMILARITY
from cllm.providers.third_party import is_offered
from cllm.settings.layers import CommandLine, read_files, user_folder
from cllm.settings.saved_keys import SavedKeys

HELP = """Save, list and remove API keys.

A saved key is in the system keyring if cllm is installed with the extra 'keyring' and the system
has one, else in ~/.cllm/keys.json, which only you can read. A key in a Cllmfile.yml or in the
environment variable of the provider, such as OPENAI_API_KEY, has priority."""
SET_HELP = """Save the API key of PROVIDER.

Type the key, which is not shown, or pipe it into the command."""
LIST_HELP = "List the providers that have a saved key, and where each key is."
REMOVE_HELP = "Delete the saved API key of PROVIDER."

MAX_KEY_BYTES = 16 * 1024
PROVIDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@click.group(
    cls=HelpGroup,
    name="keys",
    help=HELP,
    examples=("cllm keys set openai < openai-key.txt", "cllm keys list"),
)
def command() -> None:
    pass


@command.command(
    name="set",
    help=SET_HELP,
    examples=("cllm keys set openai < openai-key.txt",),
)
@click.argument("provider")
def set_key(provider: str) -> None:
    _check_provider(provider)
    key = _read_key(provider)
    place = SavedKeys(user_folder(current_environment())).save(provider, key)
    output.note(f"Saved the key of '{provider}' in {_describe_place(place)}.")
    row = BUILTIN_PROVIDERS.get(provider)
    if row is not None and row.key is not None and current_environment().environment.get(row.key):
        output.note(f"The environment variable {row.key} is set and has priority.")


@command.command(name="list", help=LIST_HELP, examples=("cllm keys list",))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_keys(*, as_json: bool) -> None:
    saved = SavedKeys(user_folder(current_environment())).list_keys()
    if as_json:
        rows = [{"provider": one.provider, "place": one.place} for one in saved]
        output.print_exactly(msgspec.json.encode(rows).decode())
        return
    if not saved:
        output.note("No key is saved. Save one with: cllm keys set PROVIDER")
    width = max((len(one.provider) for one in saved), default=0)
    for one in saved:
        output.print_visibly(f"{one.provider:<{width}}  {one.place}")


@command.command(name="remove", help=REMOVE_HELP, examples=("cllm keys remove openai",))
@click.argument("provider")
def remove_key(provider: str) -> None:
    place = SavedKeys(user_folder(current_environment())).remove(provider)
    if place is None:
        raise UsageError(f"No key is saved for '{provider}'; list the saved ones: cllm keys list")
    output.note(f"Removed the key of '{provider}' from {_describe_place(place)}.")


def _describe_place(place: str) -> str:
    return place if place.startswith("/") else f"the {place}"


def _check_provider(name: str) -> None:
    if name == LOCAL:
        raise OptionError("Local models need no key.")
    configured = _list_configured_providers()
    if name in BUILTIN_PROVIDERS or name in configured or is_offered(name):
        return
    known = sorted({*BUILTIN_PROVIDERS, *configured})
    similar = get_close_matches(name, known, n=1, cutoff=MIN_SIMILARITY)
    advice = f"did you mean {similar[0]}?" if similar else f"choose one of {', '.join(known)}."
    if PROVIDER_NAME.fullmatch(name) is None:
        raise OptionError(f"This is not the name of a provider: {advice}")
    raise OptionError(f"Unknown provider '{name}': {advice}")


def _list_configured_providers() -> set[str]:
    """Return the names under `providers` in the Cllmfiles; a name alone needs no trust."""
    files = read_files(current_environment(), CommandLine())
    rows = [file.content.get("providers") for file in files]
    return {str(name) for row in rows if isinstance(row, dict) for name in row}


def _read_key(provider: str) -> str:
    pipe = piped_input()
    if pipe is not None:
        data = pipe.read(MAX_KEY_BYTES + 1)
        text = data.decode("utf-8", "replace")
    elif sys.stdin is None or sys.stdin.closed:
        text = ""
    else:
        text = click.prompt(
            f"Key of '{provider}'", hide_input=True, err=True, default="", show_default=False
        )
    key = text.strip()
    if not key:
        raise OptionError(
            f"No key: type it, or pipe it into the command: cllm keys set {provider} < FILE"
        )
    if len(key) > MAX_KEY_BYTES or not key.isascii() or not key.isprintable() or " " in key:
        raise OptionError(
            "The input is not an API key: a key is one word of ASCII characters; nothing is saved."
        )
    return key

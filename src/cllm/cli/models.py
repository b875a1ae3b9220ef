"""`cllm models`: fetch, list and remove local models."""

import click

from cllm.cli import output
from cllm.cli.inputs import current_environment
from cllm.cli.progress import Progress
from cllm.providers.local.models import (
    DEFAULT_MODEL,
    CachePaths,
    KnownModel,
    cache_paths,
    list_models,
    remove_model,
)

MEGABYTE = 1_000_000

HELP = """Fetch, list and remove local models.

\b
Example:
  cllm models list"""

PULL_HELP = f"""Fetch a model, so that it can be used without a network.

MODEL is the name of a known model ({DEFAULT_MODEL} if left out), a file on Hugging Face as
hf:OWNER/REPO/FILE.gguf, or the https:// address of a GGUF file. A fetch that was interrupted goes
on where it stopped. HF_TOKEN is sent to Hugging Face if it is set, and HF_ENDPOINT names another
server of the same kind.

\b
Examples:
  cllm models pull
  cllm models pull hf:OWNER/REPO/FILE.gguf --sha256 64-HEX-DIGITS"""

LIST_HELP = """List the local models, with their size and whether they have been fetched.

\b
Example:
  cllm models list"""

REMOVE_HELP = """Delete a model's file from the cache.

\b
Example:
  cllm models remove smollm2-135m"""


@click.group(name="models", help=HELP)
def command() -> None:
    pass


@command.command(name="pull", help=PULL_HELP)
@click.argument("model", required=False, default=DEFAULT_MODEL)
@click.option("--sha256", metavar="HEX", help="The hash that the file must have.")
def pull(model: str, sha256: str | None) -> None:
    from cllm.providers.local import fetch

    env = current_environment()
    target = fetch.parse_target(model, env.environment)
    fetcher = fetch.Fetcher(paths=_paths(), environ=env.environment, report=Progress())
    if isinstance(target, KnownModel):
        fetched = fetch.fetch_known_model(target, fetcher, sha256=sha256 or target.sha256)
    else:
        fetched = fetch.fetch_remote(target, fetcher, sha256=sha256)
    output.note(f'Use it with: cllm -m local/{fetched.name} "Hello"')


@command.command(name="list", help=LIST_HELP)
def list_command() -> None:
    for model in list_models(_paths()):
        state = "fetched" if model.is_downloaded else "not fetched"
        output.print_line(f"local/{model.name}  {model.size / MEGABYTE:.0f} MB  {state}")


@command.command(name="remove", help=REMOVE_HELP)
@click.argument("name")
def remove_command(name: str) -> None:
    output.print_line(f"Removed {remove_model(name.removeprefix('local/'), _paths())}")


def _paths() -> CachePaths:
    env = current_environment()
    return cache_paths(env.environment, home=env.home)

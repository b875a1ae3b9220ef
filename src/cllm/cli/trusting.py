"""Settings for a command: those of untrusted files only once the person, if asked, said yes.

On a terminal the keys in question are shown and trusted with a word; everywhere else an untrusted
file is an error.
"""

import sys
from collections.abc import Iterator

from cllm.core.errors import UntrustedFileError
from cllm.settings.cllmfile import Cllmfile
from cllm.settings.layers import CommandLine, Layered, Place, read_files, user_folder
from cllm.settings.load import Settings, load_layers, type_settings
from cllm.settings.trust import TrustLedger, masked, parts_to_trust
from cllm.terminal import fits_on_screen, make_visible


def trusted_settings(place: Place, line: CommandLine) -> Settings:
    """The settings that hold here; the person is asked about files that need their trust."""
    return type_settings(trusted_layers(place, line), place, line)


def trusted_layers(place: Place, line: CommandLine) -> Layered:
    """The layers of the settings, after the same question."""
    asked: set[str | None] = set()
    while True:
        try:
            return load_layers(place, line)
        except UntrustedFileError as error:
            if error.path in asked or not _person_trusts(place, line, error):
                raise
            asked.add(error.path)


def _person_trusts(place: Place, line: CommandLine, error: UntrustedFileError) -> bool:
    """Show what the file wants, and trust exactly that if the person says so."""
    if not sys.stderr.isatty():
        return False
    from cllm.cli.confirming import ask_on_terminal  # noqa: PLC0415 - rarely needed

    file = next((one for one in read_files(place, line) if str(one.path) == error.path), None)
    if file is None:
        return False
    question = "\n".join([*shown_parts(file), "Trust this? [y/N] "])
    # What has scrolled away cannot be judged; the error says how to read the file and trust it.
    if not fits_on_screen(question) or not ask_on_terminal(question):
        return False
    TrustLedger(user_folder(place)).trust(file)
    return True


def shown_parts(file: Cllmfile) -> Iterator[str]:
    """The keys of a file that need trust, each on a line, without the secrets in them."""
    yield make_visible(f"{file.path} could be somebody else's, and wants to:")
    for key, value in parts_to_trust(file).items():
        yield make_visible(f"  {key}: {masked(key, value)}")

"""Checks of the Cllmfiles. Each is read alone, so that an invalid one does not hide the others."""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cllm.core.errors import CllmError, SettingsError
from cllm.doctor import Finding, fixed, ok, problem, reason_of, warning
from cllm.settings.cllmfile import FILE_NAME, Cllmfile, read_cllmfile, variables_in
from cllm.settings.layers import CommandLine, Environment, folders, layer_up
from cllm.settings.load import Settings, check_trust, type_settings
from cllm.settings.sections import KNOWN_KEYS
from cllm.settings.trust import parts_to_trust

CHECK = "settings"
FOR_OTHERS = 0o077
PREFIX = "Configuration error: "


def check_settings(
    place: Environment, line: CommandLine, *, fix: bool
) -> tuple[list[Finding], Settings | None]:
    """Check every Cllmfile that applies here; return also the settings of the valid ones."""
    findings: list[Finding] = []
    usable: list[Cllmfile] = []
    for folder, own in folders(place, line):
        try:
            file = read_cllmfile(folder / FILE_NAME, trusted_place=own)
            if file is None:
                continue
            check_trust(file, place, line)
        except SettingsError as error:
            findings.append(problem(CHECK, str(error).removeprefix(PREFIX)))
        else:
            usable.append(file)
            findings += _about(file, fix=fix)
    settings = None
    try:
        settings = type_settings(layer_up(usable, place, line), place, line)
    except CllmError as error:
        findings.append(problem(CHECK, str(error).removeprefix(PREFIX)))
    if not findings:
        findings.append(ok(CHECK, "there is no Cllmfile.yml, so the defaults hold."))
    return findings, settings


def _about(file: Cllmfile, *, fix: bool) -> Iterator[Finding]:
    if file.trusted_place:
        why = "it is your own"
    elif parts_to_trust(file):
        why = "you have trusted it"
    else:
        why = "nothing in it needs trust"
    yield ok(CHECK, f"{file.path} is read; {why}.")
    for key in file.content:
        if key not in KNOWN_KEYS:
            close = get_close_matches(key, KNOWN_KEYS, n=1, cutoff=0.8)
            advice = f"did you mean `{close[0]}`?" if close else "take it out if that is not meant."
            unknown = f"the unknown key `{key}` is passed to the model; {advice}"
            yield warning(CHECK, f"{file.path}: {unknown}")
    if _holds_key(file.content):
        yield from _permissions(file.path, fix=fix)


def _holds_key(content: dict[str, Any]) -> bool:
    """Whether the file contains a key itself, not a variable."""
    providers = content.get("providers")
    rows = list(providers.values()) if isinstance(providers, dict) else []
    holders = [row for row in (content, *rows) if isinstance(row, dict)]
    written = [row[name] for row in holders for name in ("api_key", "extra_headers") if name in row]
    return any(value and not variables_in(value) for value in written)


def _permissions(path: Path, *, fix: bool) -> Iterator[Finding]:
    """Check that only the owner can read the file; a link is never changed."""
    if not path.stat().st_mode & FOR_OTHERS:
        return
    if not fix or path.is_symlink():
        advice = f"chmod 600 {path}, or name a variable such as ${{OPENAI_API_KEY}} in its place."
        yield warning(
            CHECK, f"{path} has a key in it, and others on this machine can read it: {advice}"
        )
        return
    try:
        path.chmod(0o600)
    except OSError as error:
        yield problem(CHECK, f"{path} cannot be kept from others ({reason_of(error)}).")
    else:
        yield fixed(CHECK, f"{path} has a key in it, and only you can read it now.")

"""Checks of the Cllmfiles. Each is read alone, so that an invalid one does not hide the others."""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cllm.core.errors import CllmError, SettingsError
from cllm.doctor import Finding, fixed, ok, os_error_reason, problem, warning
from cllm.settings.cllmfile import FILE_NAME, Cllmfile, find_variables, read_cllmfile
from cllm.settings.layers import CommandLine, Environment, merge_layers, settings_folders
from cllm.settings.load import Settings, build_settings, check_trust
from cllm.settings.sections import KNOWN_KEYS
from cllm.settings.trust import settings_to_trust

CHECK = "settings"
FOR_OTHERS = 0o077
PREFIX = "Configuration error: "


def check_settings(
    env: Environment, line: CommandLine, *, fix: bool
) -> tuple[list[Finding], Settings | None]:
    """Check every Cllmfile that applies here; return also the settings of the valid ones."""
    findings: list[Finding] = []
    usable: list[Cllmfile] = []
    for folder, own in settings_folders(env, line):
        try:
            file = read_cllmfile(folder / FILE_NAME, in_user_folder=own)
            if file is None:
                continue
            check_trust(file, env, line)
        except SettingsError as error:
            findings.append(problem(CHECK, str(error).removeprefix(PREFIX)))
        else:
            usable.append(file)
            findings += _file_findings(file, fix=fix)
    settings = None
    try:
        settings = build_settings(merge_layers(usable, env, line), env, line)
    except CllmError as error:
        findings.append(problem(CHECK, str(error).removeprefix(PREFIX)))
    if not findings:
        findings.append(ok(CHECK, "there is no Cllmfile.yml, so the defaults hold."))
    return findings, settings


def _file_findings(file: Cllmfile, *, fix: bool) -> Iterator[Finding]:
    if file.in_user_folder:
        why = "it is your own"
    elif settings_to_trust(file):
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
    if _has_literal_key(file.content):
        yield from _check_permissions(file.path, fix=fix)


def _has_literal_key(content: dict[str, Any]) -> bool:
    """Whether the file contains a key itself, not a variable."""
    providers = content.get("providers")
    rows = list(providers.values()) if isinstance(providers, dict) else []
    holders = [row for row in (content, *rows) if isinstance(row, dict)]
    written = [row[name] for row in holders for name in ("api_key", "extra_headers") if name in row]
    return any(value and not find_variables(value) for value in written)


def _check_permissions(path: Path, *, fix: bool) -> Iterator[Finding]:
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
        yield problem(CHECK, f"{path} cannot be kept from others ({os_error_reason(error)}).")
    else:
        yield fixed(CHECK, f"{path} has a key in it, and only you can read it now.")

"""Checks of the Cllmfiles. Each is read separately, so that one invalid file hides no other."""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cllm.core.errors import CllmError, SettingsError
from cllm.doctor import Finding, ok, os_error_reason, problem, report_fix, warning
from cllm.settings.cllmfile import FILE_NAME, Cllmfile, find_variables, read_cllmfile
from cllm.settings.layers import CommandLine, Environment, merge_layers, settings_folders
from cllm.settings.load import Settings, build_settings
from cllm.settings.sections import KNOWN_KEYS, describe_ignored_variables
from cllm.settings.trust import check_trust, settings_to_trust

CHECK = "settings"
FOR_OTHERS = 0o077
PREFIX = "Configuration error: "


def check_settings(
    env: Environment, line: CommandLine, *, fix: bool
) -> tuple[list[Finding], Settings | None]:
    """Check every Cllmfile that applies here; return the findings and the valid settings."""
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
            findings += _check_files(file, fix=fix)
    settings = None
    try:
        settings = build_settings(merge_layers(usable, env, line), env, line)
    except CllmError as error:
        findings.append(problem(CHECK, str(error).removeprefix(PREFIX)))
    findings += (warning(CHECK, text) for text in describe_ignored_variables(env.environment))
    if not findings:
        findings.append(ok(CHECK, "no Cllmfile.yml exists; the defaults apply."))
    return findings, settings


def _check_files(file: Cllmfile, *, fix: bool) -> Iterator[Finding]:
    if file.in_user_folder:
        trust = "it is your own"
    elif settings_to_trust(file):
        trust = "you trusted it"
    else:
        trust = "it has no settings that need trust"
    yield ok(CHECK, f"{file.path} applies; {trust}.")
    for key in file.content:
        if key not in KNOWN_KEYS:
            close = get_close_matches(key, KNOWN_KEYS, n=1, cutoff=0.8)
            advice = (
                f"did you mean `{close[0]}`?" if close else "remove it if that is not intended."
            )
            unknown = f"the unknown key `{key}` is sent to the model; {advice}"
            yield warning(CHECK, f"{file.path}: {unknown}")
    if _has_literal_key(file.content):
        yield from _check_permissions(file.path, fix=fix)


def _has_literal_key(content: dict[str, Any]) -> bool:
    """Whether the file contains a key itself, not a variable."""
    providers = content.get("providers")
    rows = list(providers.values()) if isinstance(providers, dict) else []
    mappings = [row for row in (content, *rows) if isinstance(row, dict)]
    names = ("api_key", "extra_headers")
    values = [row[name] for row in mappings for name in names if name in row]
    return any(value and not find_variables(value) for value in values)


def _check_permissions(path: Path, *, fix: bool) -> Iterator[Finding]:
    """Check that only the owner can read the file; a link is never changed."""
    if not path.stat().st_mode & FOR_OTHERS:
        return
    if not fix or path.is_symlink():
        advice = f"run chmod 600 {path}, or use a variable such as ${{OPENAI_API_KEY}}."
        yield warning(CHECK, f"{path} contains a key, and other users can read the file; {advice}")
        return
    try:
        path.chmod(0o600)
    except OSError as error:
        yield problem(CHECK, f"cannot change the permissions of {path} ({os_error_reason(error)}).")
    else:
        yield report_fix(CHECK, f"{path} contains a key; now only you can read the file.")

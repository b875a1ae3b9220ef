"""Describes the settings: keys of a Cllmfile, accepted values, trust, defaults, variables.

A key is described by cllm's error messages for wrong values. If a message lists nested keys, these
are tried in the same way.
"""

import contextlib
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner
from tests.surface_generator import internals, source
from tests.surface_generator.text import Normaliser, document, join_rows, section

ROOT = Path(__file__).parents[2]
WRONG_VALUES: tuple[Any, ...] = ([{"?": 1}], {"?": {"?": 1}}, "?")
DEPTH = 3
ONE_OF = re.compile(r"one of:? ([a-z_, ]+)\.")
ERROR_PREFIX = re.compile(r"^Configuration error: (?:<home>\S*(?:, line \d+)?: )?")
VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
WORD = re.compile(r"[A-Z]{4,}")
NEEDING_TRUST = {
    "fallbacks": ["local/./x.gguf"],
    "json_schema_file": "https://example.com/schema.json",
    "model": "local/./x.gguf",
    "temperature": "${SOME_API_KEY}",
}
WINDOWS = ("blocks", "turns", "summarise")
REQUIRED_KEYS = {
    "context_commands": {"command": "true"},
    "server": {"name": "x", "no_tools": True},
}
"""The other keys that an entry of a list requires."""
PROVIDER_KEYS = ("type", "api_base", "api_key", "extra_headers", "timeout", "models", "names")


def surface(folder: Path) -> dict[str, str]:
    probe = Probe(folder)
    return {
        "settings.txt": _settings(probe),
        "environment.txt": _environment(probe),
        "providers.txt": _providers(),
        "package.txt": _package(),
    }


class Probe:
    """Loads settings files with the command, in this process and an empty home directory."""

    def __init__(self, folder: Path) -> None:
        self.home, self.work = folder / "home", folder / "work"
        for path in (self.home / ".cllm", self.work):
            path.mkdir(parents=True)
        self._normalise = Normaliser({"home": self.home, "work": self.work})

    def show(
        self,
        settings: dict[str, Any],
        *,
        mine: bool = True,
        environment: dict[str, str] | None = None,
    ) -> list[str]:
        """Return the output of `cllm --show-config` with these settings, or the error."""
        file = (self.home / ".cllm" if mine else self.work) / "Cllmfile.yml"
        file.write_text(yaml.safe_dump(settings), encoding="utf-8")
        runner = CliRunner()
        variables = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", **(environment or {})}
        cleared = dict.fromkeys(os.environ)
        with contextlib.chdir(self.work):
            result = runner.invoke(
                internals.root_command(), ["--show-config"], env={**cleared, **variables}
            )
        file.unlink()
        failed = result.exception is not None and not isinstance(result.exception, SystemExit)
        output = str(result.exception) if failed else result.output
        return self._normalise(output).splitlines()

    def rejection(self, settings: dict[str, Any]) -> str | None:
        """Return the error message for the settings, or None if they are valid."""
        first = self.show(settings)[0]
        message = ERROR_PREFIX.sub("", first)
        return message if message != first or first.startswith("Variable error") else None


def _settings(probe: Probe) -> str:
    groups = internals.settings_keys()
    keys = {name: group for group, names in groups.items() for name in names}
    dangerous = _needs_trust(probe, keys)
    return document(
        "Keys of a Cllmfile. Under each: who uses it, and what cllm says about wrong values "
        "(a list, a mapping, a text).",
        *(
            section(name, [f"  for: {keys[name]}", *_about(probe, (name,))])
            for name in sorted(keys)
        ),
        *(
            section(f"window, strategy {strategy}", _window(probe, strategy))
            for strategy in WINDOWS
        ),
        section("providers.NAME", _provider(probe)),
        *(
            section(name, join_rows((field,) for field in sorted(fields)))
            for name, fields in sorted(internals.settings_records().items())
        ),
        section("keys that need trust in a Cllmfile of the current directory", dangerous),
        section("defaults", sorted(_flat("", internals.settings_defaults(probe.home)))),
    )


def _needs_trust(probe: Probe, keys: dict[str, str]) -> list[str]:
    """Return the keys that the error about an untrusted file lists, if the file has all keys."""
    message = probe.show({**dict.fromkeys(keys, "x"), **NEEDING_TRUST}, mine=False)[0]
    key = "|".join(sorted(map(re.escape, keys), key=len, reverse=True))
    lists = re.findall(rf"\b(?:{key})(?:, (?:{key}))+\b", message)
    assert lists, f"The error lists no keys: {message}"
    return [f"  {name}" for name in sorted(max(lists, key=len).split(", "))]


def _about(probe: Probe, path: tuple[str | int, ...], depth: int = 1) -> Iterator[str]:
    indent = "  " * depth
    messages = [probe.rejection(_at(path, value)) for value in WRONG_VALUES]
    yield from (f"{indent}{line}" for line in dict.fromkeys(messages) if line is not None)
    nested = [match for line in messages if line and (match := ONE_OF.search(line))]
    if not nested or depth >= DEPTH:
        return
    for name in sorted(nested[0][1].split(", ")):
        is_list = ".0." in nested[0].string
        yield f"{indent}{name}"
        yield from _about(probe, (*path, 0, name) if is_list else (*path, name), depth + 1)


def _at(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """Return settings with a value at a path; 0 is the first entry of a list."""
    for name in reversed(path):
        value = [REQUIRED_KEYS[str(path[0])] | value] if name == 0 else {name: value}
    settings: dict[str, Any] = value
    return settings


def _window(probe: Probe, strategy: str) -> Iterator[str]:
    for key in ("?", "max_tokens", "max_turns", "summary_tokens"):
        yield f"  {key}: {probe.rejection({'window': {'strategy': strategy, key: '?'}})}"


def _provider(probe: Probe) -> Iterator[str]:
    for key in sorted(PROVIDER_KEYS):
        messages = [
            probe.rejection({"providers": {"NAME": {key: value}}}) for value in WRONG_VALUES
        ]
        yield f"  {key}"
        yield from (f"    {line}" for line in dict.fromkeys(messages) if line is not None)


def _flat(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flat(f"{path}.{name}" if path else name, inner)
    else:
        yield f"  {path}: {value!r}"


def _environment(probe: Probe) -> str:
    names = sorted(set(_variables()))
    return document(
        "Names in the source that have the form of environment variables, and what --show-config "
        "says when one that begins with CLLM_ is set to 1.",
        section("in the source", join_rows((name,) for name in names)),
        *(section(f"{name}=1", _effect(probe, name)) for name in names if name.startswith("CLLM_")),
    )


def _effect(probe: Probe, name: str) -> list[str]:
    default, changed = probe.show({}), probe.show({}, environment={name: "1"})
    return [f"  {line}" for line in changed if line not in default] or ["  (no change)"]


def _variables() -> Iterator[str]:
    """Yield names of variables: strings with an underscore, or keys of lookups."""
    yield from (name for name in source.strings() if VARIABLE.fullmatch(name))
    yield from (name for name in source.lookups() if WORD.fullmatch(name))


def _providers() -> str:
    rows = internals.provider_rows()
    return document(
        "Built-in providers, and the providers of model names without one.",
        *(section(name, _row(rows[name])) for name in sorted(rows)),
        section(
            "beginnings of model names", join_rows(sorted(internals.provider_prefixes().items()))
        ),
    )


def _row(row: Any) -> list[str]:
    return [f"  {name}: {value}" for name, value in sorted(row.items()) if value]


def _package() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return document(
        "The package: the commands it installs, its extras, and the Python it needs.",
        section("commands", join_rows((name,) for name in sorted(project["scripts"]))),
        section("extras", join_rows((name,) for name in sorted(project["optional-dependencies"]))),
        section("Python", [f"  {project['requires-python']}"]),
    )

"""What the documentation says is there, and what is there is in the documentation."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cllm.cli.main import ALIASES, COMMANDS, root
from cllm.providers.registry import BUILTIN_PROVIDERS
from cllm.settings import sections
from cllm.settings.layers import ENVIRONMENT_KEYS
from cllm.settings.trust import DANGEROUS_KEYS

TOP = Path(__file__).parents[2]
CLI_REFERENCE = (TOP / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
MAIN_TABLE = CLI_REFERENCE.split("## `cllm conversations`")[0]
README = (TOP / "README.md").read_text(encoding="utf-8")


def all_commands() -> Iterator[click.Command]:
    context = click.Context(root)
    for name in COMMANDS:
        command = root.get_command(context, name)
        assert command is not None, name
        yield command
        if isinstance(command, click.Group):
            for inner_name in command.list_commands(context):
                inner = command.get_command(context, inner_name)
                assert inner is not None, inner_name
                yield inner


def command_flags() -> Iterator[tuple[str, str]]:
    """Yield each command, such as `conversations list`, with each of its flags."""
    context = click.Context(root)
    for name in COMMANDS:
        command = root.get_command(context, name)
        assert command is not None, name
        commands = {name: command}
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                found = command.get_command(context, inner)
                assert found is not None, inner
                commands[f"{name} {inner}"] = found
        for path, one in commands.items():
            for option in one.params:
                if isinstance(option, click.Option):
                    for flag in (*option.opts, *option.secondary_opts):
                        yield path, flag


def find_reference(path: str) -> str:
    """Return what the reference says about a command.

    That is its section; for a command of a group its row, and the sentences of the section.
    """
    name, _, inner = path.partition(" ")
    if name == "ask":
        return MAIN_TABLE
    if name == "search":
        return find_reference("conversations search")
    pattern = rf"^## [^\n]*`cllm {name}\b.*?(?=^## )"
    section = re.search(pattern, CLI_REFERENCE, re.MULTILINE | re.DOTALL)
    assert section is not None, name
    text = section[0]
    if name == "chat":
        text += (TOP / "docs" / "reference" / "chat.md").read_text(encoding="utf-8")
    if not inner:
        return text
    return "\n".join(
        line
        for line in text.splitlines()
        if not line.startswith("|") or re.search(rf"`{inner}\b", line.split("|")[1])
    )


def ask_flags() -> list[str]:
    command = root.get_command(click.Context(root), "ask")
    assert command is not None
    options = (parameter for parameter in command.params if isinstance(parameter, click.Option))
    return sorted({flag for option in options for flag in option.opts})


def named_modules() -> list[str]:
    text = (TOP / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    return sorted(set(re.findall(r"(?<![./])\b(?:[a-z_]+/)*(?:[a-z_]+/|[a-z_]+\.py)", text)))


@pytest.mark.parametrize("name", named_modules())
def test_every_module_that_the_architecture_page_names_exists(name):
    package = TOP / "src" / "cllm"
    assert [path for path in package.rglob("*") if str(path).endswith("/" + name.rstrip("/"))]


@pytest.mark.parametrize(("path", "flag"), list(command_flags()))
def test_every_flag_of_a_command_is_in_the_part_of_the_reference_about_it(path, flag):
    assert re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", find_reference(path))


@pytest.mark.parametrize("flag", ask_flags())
def test_every_flag_of_the_main_command_has_a_row(flag):
    heads = [line.split("|")[1] for line in MAIN_TABLE.splitlines() if line.startswith("| `")]
    assert any(re.search(rf"`[^`]*(?<![\w-]){re.escape(flag)}(?![\w-])", head) for head in heads)


@pytest.mark.parametrize("name", sorted({*COMMANDS, *ALIASES} - {"ask"}))
def test_every_command_has_its_line_in_the_reference(name):
    assert f"`cllm {name}" in CLI_REFERENCE


def find_first_cells(page: str) -> list[str]:
    """Return the first cells of all rows of the tables in a text."""
    return [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]


ALIASES_OF_KEYS = {"base_url": "`base_url` is an alias of `api_base`."}
KEY_TABLES = CLI_REFERENCE.split("## Cllmfile.yml")[1]


@pytest.mark.parametrize("name", sorted({*sections.CLLM_KEYS, *DANGEROUS_KEYS, *ENVIRONMENT_KEYS}))
def test_every_key_has_its_row_in_the_reference(name):
    if name in ALIASES_OF_KEYS:
        assert ALIASES_OF_KEYS[name] in KEY_TABLES
    else:
        assert any(f"`{name}`" in cell for cell in find_first_cells(KEY_TABLES))


SECTIONS = {
    sections.ServerSettings: "server.md",
    sections.Limits: "server.md",
    sections.KeySettings: "server.md",
    sections._Window: "window.md",
    sections._ContextRow: "context.md",
    sections._DynamicCommands: "commands.md",
    sections._ProviderRow: "providers.md",
}
SECTION_KEYS = [
    (page, key)
    for kind, page in SECTIONS.items()
    for key in kind.__struct_fields__
    if key not in ALIASES_OF_KEYS
]


# A sentence lists these keys.
KEYS_IN_SENTENCES = {
    "hash": "either `key` or `hash`, the SHA-256",
    "admin": "only a key with `admin: true` can read",
}


@pytest.mark.parametrize(("page", "key"), SECTION_KEYS)
def test_every_key_of_a_section_has_its_row_in_the_reference(page, key):
    text = (TOP / "docs" / "reference" / page).read_text(encoding="utf-8")
    if key in KEYS_IN_SENTENCES:
        assert KEYS_IN_SENTENCES[key] in text
    else:
        pattern = re.compile(rf"`(?:[\w.]+\.)?{key}`|[{{ ]{key}:")
        assert any(pattern.search(cell) for cell in find_first_cells(text))


# Headers for proxies and browsers, and between the page and its own scripts.
OTHER_HEADERS = re.compile(r"x-(accel-buffering|content-type-options|page-\w+)")


def list_headers() -> list[str]:
    """The headers that clients send or receive, from the source of the server."""
    modules = (TOP / "src" / "cllm" / "server").rglob("*.py")
    code = "\n".join(path.read_text(encoding="utf-8") for path in modules)
    names = {name.lower() for name in re.findall(r'"(x-[a-z-]+)"', code, re.IGNORECASE)}
    return sorted(name for name in names if not OTHER_HEADERS.fullmatch(name))


@pytest.mark.parametrize("name", list_headers())
def test_every_header_of_the_server_has_its_line_in_the_reference(name):
    pages = ("server.md", "../how-to/record-clients.md")
    text = "".join((TOP / "docs/reference" / page).read_text(encoding="utf-8") for page in pages)
    assert re.search(rf"`[^`\n]*{name}[^`\n]*`", text, re.IGNORECASE)


def list_variables() -> list[str]:
    """The environment variables of cllm in the source."""
    modules = (TOP / "src" / "cllm").rglob("*.py")
    code = "\n".join(path.read_text(encoding="utf-8") for path in modules)
    return sorted(set(re.findall(r'"(CLLM_[A-Z_]+)"', code)))


@pytest.mark.parametrize("name", list_variables())
def test_every_environment_variable_has_its_line_in_the_reference(name):
    assert f"`{name}" in CLI_REFERENCE


@pytest.mark.parametrize("name", sorted(BUILTIN_PROVIDERS))
def test_every_provider_has_its_row_in_the_reference(name):
    row = next(line for line in CLI_REFERENCE.splitlines() if line.startswith(f"| `{name}`"))
    host = BUILTIN_PROVIDERS[name].base_url.partition("//")[2].split("/")[0]
    assert host in row
    assert (BUILTIN_PROVIDERS[name].key or "") in row


@pytest.mark.parametrize("command", list(all_commands()), ids=lambda command: command.name)
def test_every_command_has_help_with_an_example(command):
    # A command caches its help option, which has the names that the context of `cllm` sets.
    parent = root.make_context("cllm", [], resilient_parsing=True)
    help_text = command.get_help(click.Context(command, parent, info_name=command.name))

    assert "Example" in help_text
    assert "cllm" in help_text.split("Example", 1)[1]


def test_the_readme_names_the_files_that_are_there():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (TOP / target).exists(), target


def test_the_glossary_has_at_most_25_words():
    glossary = (TOP / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| ([^|]+) \| [A-Z]", glossary, re.MULTILINE)

    assert words == sorted(words, key=str.lower)
    assert 20 <= len(words) <= 25


@pytest.mark.usefixtures("settings", "provider")
def test_the_commands_that_read_recorded_conversations_run(cllm, home):
    page = (TOP / "docs" / "how-to" / "record-clients.md").read_text(encoding="utf-8")
    lines = re.findall(r"^cllm (?!serve)(.+)$", page, re.MULTILINE)
    database = f"sqlite:{home.path}/.cllm/cllm.db"
    cllm("Fix it.", "--store", database, "--conversation", "ID").succeeded()
    *sources, listed, with_side, reply = [
        cllm(*shlex.split(line)).succeeded().out for line in lines
    ]
    assert len(sources) == page.count("--source") == 8
    assert "ID" in listed
    assert "ID" in with_side
    assert reply.startswith("echo: Summarise")

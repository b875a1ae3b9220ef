"""What the documentation says is there, and what is there is in the documentation."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
import msgspec
import pytest

from cllm import provider_factory
from cllm.cli.main import ALIASES, COMMANDS, root
from cllm.commands.tool import OfferedCommand
from cllm.prices.book import KINDS
from cllm.provider_factory import COMMON_OPTIONS, PROTOCOL_OPTIONS
from cllm.providers.registry import BUILTIN_PROVIDERS
from cllm.settings import sections, side_requests
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


def list_flags(command: click.Command) -> set[str]:
    options = (option for option in command.params if isinstance(option, click.Option))
    return {flag for option in options for flag in (*option.opts, *option.secondary_opts)}


def list_flags_by_command() -> dict[str, set[str]]:
    """Return the flags of each command, such as `conversations list`."""
    context = click.Context(root)
    flags = {}
    for name in COMMANDS:
        command = root.get_command(context, name)
        assert command is not None, name
        flags[name] = list_flags(command)
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                found = command.get_command(context, inner)
                assert found is not None, inner
                flags[f"{name} {inner}"] = list_flags(found)
    return flags


FLAGS = list_flags_by_command()
COMMAND_FLAGS = sorted((path, flag) for path, flags in FLAGS.items() for flag in flags)


def find_section(page: str, heading: str) -> str:
    """Return a section of a page with its subsections. `heading` is a regular expression."""
    start = re.search(rf"^(#+) {heading}.*$", page, re.MULTILINE)
    assert start is not None, heading
    # A line of a code block can start with one `#`.
    end = re.compile(rf"^#{{2,{len(start[1])}}} ", re.MULTILINE).search(page, start.end())
    return page[start.start() : end.start() if end else len(page)]


def find_rows(text: str, name: str) -> list[str]:
    """Return the rows of tables whose first cell has a code span that starts with the name."""
    pattern = re.compile(rf"`{name}(?![\w-])")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [row for row in rows if pattern.search(row.split("|")[1])]


def find_reference(path: str, flag: str) -> str:
    """Return the part of the reference that has to contain a flag of a command.

    A command of a group has a row, and possibly a section of its own. Only a flag that all commands
    of a section accept can be in the text of the section instead.
    """
    if path == "ask":
        return MAIN_TABLE
    if path == "search":
        return find_reference("conversations search", flag)
    if path == "chat":
        return (TOP / "docs" / "reference" / "chat.md").read_text(encoding="utf-8")
    name = path.split(maxsplit=1)[0]
    section = find_section(CLI_REFERENCE, rf"[^\n]*`cllm {name}\b")
    # One section describes `cllm backup`, `cllm restore` and `cllm verify`.
    members = [other for other in FLAGS if other.startswith(f"{name} ")] or re.findall(
        r"`cllm ([a-z]+)", section.splitlines()[0]
    )
    if members == [path]:
        return section
    overview = section.split("\n### ")[0]
    if path not in members or all(flag in FLAGS[other] for other in members):
        return "\n".join(line for line in overview.splitlines() if not line.startswith("|"))
    return find_own_parts(section, path, flag)


def find_own_parts(section: str, path: str, flag: str) -> str:
    """Return the row and the section of one of several commands that a section describes."""
    inner = path.rsplit(maxsplit=1)[-1]
    overview, _, details = section.partition("\n### ")
    parts = [*find_rows(overview, inner), *find_rows(overview, f"cllm {path}")]
    if f"### `cllm {path}" in section:
        parts.append(find_section(section, f"`cllm {path}"))
    # A sentence names the flag, and the rows what each command prints.
    if flag == "--json" and find_rows(details.partition("### JSON output")[2], inner):
        parts.append(flag)
    return "\n".join(parts)


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


@pytest.mark.parametrize(("path", "flag"), COMMAND_FLAGS)
def test_every_flag_of_a_command_is_in_the_part_of_the_reference_about_it(path, flag):
    assert re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", find_reference(path, flag))


@pytest.mark.parametrize("flag", ask_flags())
def test_every_flag_of_the_main_command_has_a_row(flag):
    heads = [line.split("|")[1] for line in MAIN_TABLE.splitlines() if line.startswith("| `")]
    assert any(re.search(rf"`[^`]*(?<![\w-]){re.escape(flag)}(?![\w-])", head) for head in heads)


@pytest.mark.parametrize("name", sorted({*COMMANDS, *ALIASES} - {"ask"}))
def test_every_command_has_its_line_in_the_reference(name):
    assert f"`cllm {name}" in CLI_REFERENCE


def find_first_cells(text: str) -> list[str]:
    """Return the first cells of all rows of the tables in a text."""
    lines = (line.strip() for line in text.splitlines())
    return [line.split("|")[1] for line in lines if line.startswith("| `")]


def read_section(address: str) -> str:
    """Return a section of the reference: `server.md: Settings`."""
    page, _, heading = address.partition(": ")
    text = (TOP / "docs" / "reference" / page).read_text(encoding="utf-8")
    return find_section(text, heading)


def has_row(text: str, key: str) -> bool:
    pattern = re.compile(rf"`(?:[\w.]+\.)?{key}`|[{{ ]{key}:")
    return any(pattern.search(cell) for cell in find_first_cells(text))


# Sentences say what these keys mean.
KEYS_IN_SENTENCES = {
    "base_url": "`base_url` is an alias of `api_base`.",
    "max_retries": "`max_retries` is an alias.",
    **dict.fromkeys(
        sections.LITELLM_KEYS,
        "`api_version`, `custom_llm_provider`, `drop_params` and `organization` have no effect",
    ),
}
KEY_TABLES = CLI_REFERENCE.split("## Cllmfile.yml")[1]
TOP_LEVEL_KEYS = {
    *sections.CLLM_KEYS,
    *sections.PROVIDER_KEYS,
    *DANGEROUS_KEYS,
    *ENVIRONMENT_KEYS,
}


@pytest.mark.parametrize("name", sorted(TOP_LEVEL_KEYS))
def test_every_key_has_its_row_in_the_reference(name):
    if name in KEYS_IN_SENTENCES:
        assert KEYS_IN_SENTENCES[name] in KEY_TABLES
    else:
        assert has_row(KEY_TABLES, name)


SECTIONS = {
    sections.ServerSettings: "server.md: Settings",
    sections.Limits: "server.md: Limits and rate limits",
    sections.KeySettings: "server.md: Authentication",
    side_requests._SideRequest: "server.md: Side requests",
    sections._Window: "window.md: Settings",
    sections._ContextRow: "context.md: Settings",
    sections._DynamicCommands: "commands.md: Settings",
    sections._ProviderRow: "providers.md: Settings",
}
SECTION_KEYS = [
    (section, key)
    for kind, section in SECTIONS.items()
    for key in kind.__struct_fields__
    if key not in KEYS_IN_SENTENCES
]
TOP_LEVELS = {sections.CllmKeys, sections.ProviderKeys}
# What the sections are converted to.
RESULTS = {sections.ProviderSettings, sections.TopProvider, sections.WindowSettings}


@pytest.mark.parametrize(("section", "key"), SECTION_KEYS)
def test_every_key_of_a_section_has_its_row_in_the_reference(section, key):
    assert has_row(read_section(section), key)


def test_every_section_of_a_cllmfile_has_its_tables_in_the_reference():
    structs = {
        value
        for module in (sections, side_requests)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct)
        if value.__module__ == module.__name__
    }
    assert structs == {*SECTIONS, *TOP_LEVELS, *RESULTS}


@pytest.mark.parametrize("key", OfferedCommand.__struct_fields__)
def test_every_key_of_an_available_command_is_in_its_row(key):
    (row,) = find_rows(read_section("commands.md: Settings"), "available_commands")
    assert re.search(rf"`\[\{{[^`]*\b{key}\b[^`]*`", row)


@pytest.mark.parametrize("key", KINDS)
def test_every_key_of_a_price_has_its_row_in_the_reference(key):
    assert has_row(read_section("costs.md: Price sources"), key)


@pytest.mark.parametrize("part", get_args(sections.TimeoutPart))
def test_every_key_of_a_timeout_is_in_its_row(part):
    for text in (KEY_TABLES, read_section("providers.md: Settings")):
        (row,) = find_rows(text, "timeout")
        assert re.search(rf"`\{{[^`]*\b{part}\b[^`]*`", row)


# The type of provider whose options a function reads.
READERS = {
    "local_context_size": "local",
    "_open_local": "local",
    "_build_account": "bedrock",
    "get_endpoint": "openai",
}


def list_read_options() -> Iterator[tuple[str, str]]:
    """Yield each option that `provider_factory.py` reads by its name, with the type of provider."""
    tree = ast.parse(Path(provider_factory.__file__).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    for function in functions:
        for node in ast.walk(function):
            names: list[ast.expr] = []
            match node:
                case ast.Call(func=ast.Attribute(value=value, attr="get")) if is_options(value):
                    names = node.args[:1]
                case ast.Call(args=[first, *others]) if is_options(first):
                    names = others
                case ast.Subscript(value=value, slice=index, ctx=ast.Load()) if is_options(value):
                    names = [index]
            for name in names:
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    yield READERS.get(function.name, function.name), name.value


def is_options(node: ast.expr) -> bool:
    """Whether this is `….options`, or the variable `options` for it."""
    return ast.unparse(node).split(".")[-1] == "options"


PROVIDER_OPTIONS = {
    *((kind, option) for kind, options in PROTOCOL_OPTIONS.items() for option in options),
    *list_read_options(),
}


def test_the_options_that_a_function_reads_are_found():
    found = {("local", "threads"), ("local", "context"), ("bedrock", "endpoint_url")}
    assert found <= PROVIDER_OPTIONS


@pytest.mark.parametrize(("kind", "option"), sorted(PROVIDER_OPTIONS))
def test_every_option_of_a_provider_is_in_the_row_of_its_type(kind, option):
    (row,) = find_rows(read_section("providers.md: Settings"), kind)
    assert f"`{option}`" in row


@pytest.mark.parametrize("option", COMMON_OPTIONS)
def test_every_option_of_all_providers_has_its_row(option):
    assert has_row(read_section("providers.md: Settings"), option)


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

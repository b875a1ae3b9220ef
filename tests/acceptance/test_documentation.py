"""What the documentation says is there, and what is there is in the documentation."""

import ast
import json
import re
import shlex
from collections.abc import Collection, Iterator
from inspect import signature
from pathlib import Path
from typing import get_args

import click
import msgspec
import pytest
from tests.reference_pages import (
    find_definitions,
    find_rows,
    find_section,
    get_first_cell,
    list_rows,
    read_page,
    read_section,
)

import cllm
from cllm import provider_factory
from cllm.cli import main
from cllm.cli.main import ALIASES, COMMANDS, root
from cllm.commands.tool import OfferedCommand
from cllm.core.conversation import Policy
from cllm.default_model import SMALL_MODELS
from cllm.library.arguments import Options
from cllm.prices.book import KINDS
from cllm.provider_factory import COMMON_OPTIONS, PROTOCOL_OPTIONS
from cllm.providers.registry import BUILTIN_PROVIDERS, LITELLM, LOCAL, OPENAI_COMPATIBLE
from cllm.providers.third_party import ProviderAccess
from cllm.server.turns.headers import HISTORY_MODES
from cllm.settings import sections, side_requests
from cllm.settings.layers import ENVIRONMENT_KEYS
from cllm.settings.trust import DANGEROUS_FIELDS, DANGEROUS_KEYS
from cllm.stores.postgres.connection import PoolOptions
from cllm.stores.registry import SCHEMES
from cllm.window.strategies import Strategy
from cllm.wire.conversation_file import codec

TOP = Path(__file__).parents[2]
CLI_REFERENCE = read_page("cli.md")
MAIN_TABLE = CLI_REFERENCE.split("## `cllm conversations`")[0]
README = (TOP / "README.md").read_text(encoding="utf-8")


def list_commands() -> Iterator[tuple[str, click.Command]]:
    """Yield each command with its path, such as `conversations list`."""
    context = click.Context(root)
    for name in COMMANDS:
        command = root.get_command(context, name)
        assert command is not None, name
        yield name, command
        if isinstance(command, click.Group):
            for inner_name in command.list_commands(context):
                inner = command.get_command(context, inner_name)
                assert inner is not None, inner_name
                yield f"{name} {inner_name}", inner


def list_flags(command: click.Command) -> set[str]:
    options = (option for option in command.params if isinstance(option, click.Option))
    return {flag for option in options for flag in (*option.opts, *option.secondary_opts)}


PATHS = dict(list_commands())
COMMAND_FLAGS = sorted(
    {("ask", flag) for flag in root.context_settings["help_option_names"]}
    | {(path, flag) for path, command in PATHS.items() for flag in list_flags(command)}
)


def find_command_section(name: str) -> tuple[str, list[str]]:
    """Return the section about a command, and the paths of the commands that it describes."""
    section = find_section(CLI_REFERENCE, rf"[^\n]*`cllm {name}\b")
    inner = [path for path in PATHS if path.startswith(f"{name} ")]
    # One section describes `cllm backup`, `cllm restore` and `cllm verify`.
    return section, inner or re.findall(r"`cllm ([a-z]+)", section.splitlines()[0])


def find_command_rows(section: str, path: str) -> list[str]:
    """Return the rows of a command, which start with `list` or with `cllm backup`."""
    _, _, inner = path.partition(" ")
    return find_rows(section, inner or f"cllm {path}")


def find_reference(path: str) -> str:
    """Return the part of the reference that defines the flags of a command.

    If a section describes several commands, these are the text for all of them, and the rows and
    the section of this command.
    """
    match path:
        case "ask":
            return MAIN_TABLE
        case "chat":
            return read_page("chat.md")
        case "search":
            return find_reference("conversations search")
    section, paths = find_command_section(path.split(maxsplit=1)[0])
    if paths == [path]:
        return section
    overview = section.partition("\n### ")[0]
    parts = [line for line in overview.splitlines() if not line.startswith("|")]
    if path in paths:
        parts += find_command_rows(section, path)
    if f"### `cllm {path}" in section:
        parts.append(find_section(section, f"`cllm {path}"))
    return "\n".join(parts)


def defines_flag(text: str, flag: str) -> bool:
    pattern = re.compile(rf"(?<![\w-]){re.escape(flag)}(?![\w-])")
    return any(pattern.search(span) for span in find_definitions(text))


def named_modules() -> list[str]:
    text = (TOP / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    return sorted(set(re.findall(r"(?<![./])\b(?:[a-z_]+/)*(?:[a-z_]+/|[a-z_]+\.py)", text)))


@pytest.mark.parametrize("name", named_modules())
def test_every_module_that_the_architecture_page_names_exists(name):
    package = TOP / "src" / "cllm"
    assert [path for path in package.rglob("*") if str(path).endswith("/" + name.rstrip("/"))]


@pytest.mark.parametrize(("path", "flag"), COMMAND_FLAGS)
def test_every_flag_of_a_command_is_defined_in_the_part_of_the_reference_about_it(path, flag):
    assert defines_flag(find_reference(path), flag)


@pytest.mark.parametrize("flag", [flag for path, flag in COMMAND_FLAGS if path == "serve"])
def test_every_flag_of_the_server_is_defined_on_its_page(flag):
    assert defines_flag(read_section("server.md: Starting the server"), flag)


@pytest.mark.parametrize("path", sorted({*PATHS} - {"ask"}))
def test_every_command_has_its_section_or_its_row_in_the_reference(path):
    section, paths = find_command_section(path.split(maxsplit=1)[0])
    overview = section.partition("\n### ")[0]
    is_one_of_several = path in paths and len(paths) > 1
    assert not is_one_of_several or find_command_rows(overview, path)


@pytest.mark.parametrize("alias", ALIASES)
def test_every_alias_of_a_command_is_in_its_section(alias):
    section, _ = find_command_section(ALIASES[alias])
    assert f"`cllm {alias}` is an alias." in section


@pytest.mark.parametrize("word", main.OTHER_WORDS)
def test_every_word_that_looks_like_a_command_is_in_the_list(word):
    paragraph = MAIN_TABLE.partition("\n**Prompts that look like commands.**")[2]
    assert f"`{word}`" in paragraph.partition("\n\nOn a terminal")[0]


def test_every_exit_code_has_its_row():
    codes = {str(code) for name, code in vars(main).items() if name.startswith("EXIT_")}
    rows = list_rows(read_section("cli.md: Exit codes"))
    assert set(map(get_first_cell, rows)) == {"0", *codes}


@pytest.mark.usefixtures("provider")
def test_every_check_of_the_doctor_has_its_row(cllm, settings):
    settings().chmod(0o600)
    cllm("Hello.", "--conversation", "cats").succeeded()
    findings = json.loads(cllm("doctor", "--json").succeeded().out)["findings"]
    section, _ = find_command_section("doctor")
    checks = section.partition("| check |")[2]
    assert set(find_definitions(checks)) == {finding["check"] for finding in findings}


def has_row(text: str, key: str) -> bool:
    """Whether the first cell of a row has the key: alone, after a dot, in a mapping, or called."""
    pattern = re.compile(rf"`(?:[\w.]+\.)?{key}[`(]|[{{ ]{key}:")
    return any(pattern.search(get_first_cell(row)) for row in list_rows(text))


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
TOP_LEVELS = {sections.CllmKeys, sections.ProviderKeys}
# What the sections are converted to.
RESULTS = {sections.ProviderSettings, sections.TopProvider, sections.WindowSettings}


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


def read_surface(file: str) -> str:
    return (TOP / "tests" / "surface" / file).read_text(encoding="utf-8")


def list_surface_names(file: str, part: str) -> list[str]:
    """Return the names below a line of a file in tests/surface."""
    return read_surface(file).partition(f"\n{part}\n")[2].partition("\n\n")[0].split()


def list_members(kind: type) -> list[str]:
    return [name for name in vars(kind) if not name.startswith("_")]


FIELD = re.compile(r"^  (?:metadata\.(?:cllm\.)?)?(\w+)\??:", re.MULTILINE)
# `colour` is a field of a user.
FILE_FIELDS = {*FIELD.findall(read_surface("conversation_file.txt"))} - {"cllm", "colour"}
TABLES = {*re.findall(r"^\w+ table (\w+)", read_surface("tables.txt"), re.MULTILINE)}
METHODS = list_members(cllm.Conversation)
MANAGER_PARAMETERS = {*signature(cllm.ConversationManager).parameters} - {"store", "window"}
NAMES: list[tuple[str, Collection[str]]] = [
    *((section, kind.__struct_fields__) for kind, section in SECTIONS.items()),
    ("cli.md: Models and providers", [LOCAL]),
    ("conversation-file.md: Keys", FILE_FIELDS | {*codec._Cllm.__struct_fields__}),
    ("conversation-file.md: System prompt", get_args(Policy)),
    ("costs.md: Price sources", [*KINDS, LOCAL, *BUILTIN_PROVIDERS]),
    ("database.md: PostgreSQL", [f"pool_{option}" for option in PoolOptions.__struct_fields__]),
    ("database.md: Tables", TABLES - {"cllm_revision"}),
    ("library.md: Functions", ["Answer", "TextStream", "AsyncTextStream"]),
    ("library.md: Functions", ["ask", "stream", "aask", "astream", *Options.__annotations__]),
    ("library.md: `Conversation`", signature(cllm.Conversation).parameters),
    ("library.md: `Conversation`", [name for name in METHODS if f"a{name}" in METHODS]),
    ("library.md: `ConversationManager`", MANAGER_PARAMETERS),
    ("library.md: `ConversationManager`", list_members(cllm.ConversationManager)),
    ("providers.md: Built-in providers", [LOCAL]),
    ("providers.md: Reasoning in the history", [LOCAL, LITELLM, *OPENAI_COMPATIBLE]),
    ("providers.md: Settings", [LOCAL, *(row.kind for row in BUILTIN_PROVIDERS.values())]),
    ("providers.md: Settings", COMMON_OPTIONS),
    ("providers.md: Writing a provider", ProviderAccess.__struct_fields__),
    ("server.md: Whole histories", HISTORY_MODES),
    ("server.md: Retries and timeouts", get_args(sections.TimeoutPart)),
]
SECTION_NAMES = sorted({(section, name) for section, names in NAMES for name in names})


@pytest.mark.parametrize(("section", "name"), SECTION_NAMES)
def test_every_name_has_its_row_in_its_section_of_the_reference(section, name):
    assert name in KEYS_IN_SENTENCES or has_row(read_section(section), name)


@pytest.mark.parametrize("strategy", sections.WINDOW_KEYS)
def test_every_strategy_of_a_window_has_its_row_with_its_keys(strategy):
    rows = list_rows(read_section("window.md: Settings"))
    (cell,) = (cell for cell in map(get_first_cell, rows) if f"{{strategy: {strategy}," in cell)
    assert all(f" {key}: " in cell for key in sections.WINDOW_KEYS[strategy])


@pytest.mark.parametrize("strategy", get_args(Strategy))
def test_every_class_of_a_window_has_its_row_with_its_fields(strategy):
    (row,) = find_rows(read_section("window.md: Strategies"), strategy.__name__)
    assert all(f"`{field}`" in row for field in strategy.__struct_fields__)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_kind_of_store_has_its_row_in_the_reference(scheme):
    spans = find_definitions(read_section("database.md: Store URLs"))
    assert any(span.startswith(f"{scheme}:") and "?" not in span for span in spans)


@pytest.mark.parametrize(
    "key",
    [
        *DANGEROUS_KEYS,
        *DANGEROUS_FIELDS,
        "tools",
        "variables",
        "model",
        "fallbacks",
        "aliases",
        "json_schema_file",
    ],
)
def test_every_key_that_needs_trust_is_in_the_list(key):
    assert f"`{key}`" in read_section("cli.md: Trust").partition("\n\nTrust a Cllmfile")[0]


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


# Headers of HTTP, of browsers, of Amazon Bedrock, and between the page and its own scripts.
OTHER_HEADERS = re.compile(
    r"(accept|access-control|content|cross-origin|www|x-(accel|amzn|content|page))-.*|allow|cache-control"
    r"|date|host|if-range|last-modified|origin|proxy-authorization|referrer-policy"
    r"|transfer-encoding|user-agent|vary|x-ai"
)


def list_client_headers() -> list[str]:
    """The headers by which the server recognises clients, from its source."""
    modules = (TOP / "src" / "cllm" / "server" / "recording").glob("*.py")
    code = "\n".join(path.read_text(encoding="utf-8") for path in modules)
    return sorted({"thread-id", *re.findall(r'"(x-[a-z-]+)"', code)})


CLIENT_HEADERS = list_client_headers()
HEADERS = sorted(
    {
        (part, name.lower())
        for part in ("requests", "responses", "in the source")
        for name in list_surface_names("headers.txt", part)
        if not OTHER_HEADERS.fullmatch(name.lower()) and name not in CLIENT_HEADERS
    }
)


@pytest.mark.parametrize(("part", "name"), HEADERS)
def test_every_header_is_defined_in_the_reference(part, name):
    page = read_page("server.md")
    responses = find_section(page, "Response headers")
    texts = {"requests": page.replace(responses, ""), "responses": responses}
    spans = find_definitions(texts.get(part, page))
    assert name in [span.partition(":")[0].lower() for span in spans]


@pytest.mark.parametrize("name", CLIENT_HEADERS)
def test_every_header_of_a_client_is_in_a_row_about_side_requests(name):
    assert any(f"`{name}" in row for row in list_rows(read_section("server.md: Side requests")))


# Names that cllm sets for programs and libraries, variables of the system, and other constants.
OTHER_NAMES = {
    *("ANTHROPIC_AUTH_TOKEN", "GOMP_SPINCOUNT", "HOME", "INVALID_JSON", "KEY_VALUES_MISMATCH"),
    *("LC_ALL", "LD_LIBRARY_PATH", "LITELLM_LOCAL_MODEL_COST_MAP", "LITELLM_MODE"),
    *("MAX_IMAGE_URL_DOWNLOAD_SIZE_MB", "PATH", "PROMETHEUS_MULTIPROC_DIR", "Q4_K_M", "Q8_0"),
    *("TERM", "VIRTUAL_ENV", "WAYLAND_DISPLAY"),
}
PROVIDER_KEYS = {*(provider.key for provider in BUILTIN_PROVIDERS.values())}
# Python reads the proxies.
PROXIES = {"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"}
VARIABLES = {*list_surface_names("environment.txt", "in the source")} | PROXIES


@pytest.mark.parametrize("name", sorted(VARIABLES - OTHER_NAMES - PROVIDER_KEYS))
def test_every_environment_variable_has_its_row_in_the_reference(name):
    pages = [read_section(f"{page}: Environment variables") for page in ("cli.md", "chat.md")]
    assert any(has_row(page, name) for page in pages)


@pytest.mark.parametrize("name", sorted(BUILTIN_PROVIDERS))
def test_every_provider_has_its_row_in_the_reference(name):
    (row,) = find_rows(read_section("cli.md: Models and providers"), name)
    host = BUILTIN_PROVIDERS[name].base_url.partition("//")[2].split("/")[0]
    assert host in row
    assert (BUILTIN_PROVIDERS[name].key or "") in row


@pytest.mark.parametrize(("provider", "model"), SMALL_MODELS.items())
def test_every_model_that_cllm_chooses_is_in_the_reference(provider, model):
    assert f"`{provider}/{model}`" in read_section("cli.md: Models and providers")


@pytest.mark.parametrize("command", PATHS.values(), ids=PATHS)
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

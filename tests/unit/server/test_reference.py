"""Every route, error code, log field and metric is defined in the reference."""

import re
from pathlib import Path

import pytest
import yaml
from tests.reference_pages import (
    find_definitions,
    find_section,
    get_first_cell,
    list_rows,
    read_page,
    read_section,
)

import cllm.server.page
from cllm.core.reply import Usage
from cllm.engine.sent_prompt import PromptView
from cllm.server.api.conversation_feed import FeedEvent
from cllm.server.api.views import (
    DetailView,
    HitView,
    MessageView,
    ParentView,
    SummaryView,
    TurnView,
)
from cllm.server.http.errors import ANTHROPIC_TYPES, STATUS_BY_CODE
from cllm.server.http.metrics import Metrics
from cllm.server.http.request_log import RequestRecord, log_fields
from cllm.server.http.routes import PAGE_ROUTES, ROUTES

SERVER = read_page("server.md")
ERRORS = read_page("errors.md")


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: f"{row.method} {row.path}")
def test_every_route_is_documented(row):
    path = re.sub(r":\w+\}", "}", row.path)

    assert f"{row.method} {path}" in find_definitions(SERVER)


@pytest.mark.parametrize("row", PAGE_ROUTES, ids=lambda row: f"{row.method} {row.path}")
def test_every_route_of_the_page_is_documented(row):
    assert f"{row.method} {row.path}" in find_definitions(read_section("page.md: Routes"))


def test_every_view_of_the_page_has_its_address():
    addresses = find_definitions(read_section("page.md: Addresses"))
    paths = [row.path for row in PAGE_ROUTES if row.endpoint.startswith("page.pages:")]
    names = {"{conversation_id}": "ID", "{turn_id}": "TURN"}

    assert {address.partition("?")[0] for address in addresses} == {
        re.sub(r"\{\w+\}", lambda match: names[match[0]], path) for path in paths
    }


def test_every_shortcut_of_the_page_is_documented():
    modules = Path(cllm.server.page.__file__).parent.joinpath("static").glob("*.js")
    code = "\n".join(path.read_text(encoding="utf-8") for path in modules)
    keys = re.findall(r'addShortcut\("([^"]+)"', code)

    assert len(keys) > 8
    assert set(find_definitions(read_section("page.md: Keyboard"))) == set(keys)


@pytest.mark.parametrize("code", sorted(STATUS_BY_CODE))
def test_every_error_code_is_documented_with_its_status(code):
    assert f"| {STATUS_BY_CODE[code]} | `{code}` |" in ERRORS


def test_every_documented_code_exists():
    documented = set(re.findall(r"^\| \d+ \| `(\w+)`", ERRORS, re.MULTILINE))

    assert documented == set(STATUS_BY_CODE)


def test_every_type_of_an_error_is_documented():
    types = {*ANTHROPIC_TYPES.values(), "api_error", "invalid_request_error"}

    assert types <= set(find_definitions(ERRORS.partition("\n## ")[0]))


def test_every_log_field_is_documented():
    record = RequestRecord(request="r", method="GET", started=0.0, usage=Usage())
    for name in record.__struct_fields__:
        if getattr(record, name) is None:
            setattr(record, name, 1)

    fields = set(log_fields(record))
    record.route = None
    fields |= set(log_fields(record))
    assert fields == set(find_definitions(find_section(SERVER, "Logging")))


def test_every_metric_is_documented():
    names = re.findall(r"# TYPE (\w+)", Metrics().render().decode())

    assert len(names) == 8
    assert set(names) <= set(find_definitions(find_section(SERVER, "Health and metrics")))


@pytest.mark.parametrize(
    ("kind", "section"), [(PromptView, "Prompt of a turn"), (FeedEvent, "Feed of changes")]
)
def test_every_field_is_documented(kind, section):
    assert set(kind.__struct_fields__) == set(find_definitions(find_section(SERVER, section)))


OBJECTS = {
    "conversation in a list": {*SummaryView.__struct_fields__},
    "conversation": {*DetailView.__struct_fields__} - {*SummaryView.__struct_fields__},
    "`parent`": {*ParentView.__struct_fields__},
    "message": {*MessageView.__struct_fields__},
    "search result": {*HitView.__struct_fields__},
    "turn": {*TurnView.__struct_fields__},
}


@pytest.mark.parametrize("name", OBJECTS)
def test_every_field_of_an_object_is_in_its_row(name):
    rows = {get_first_cell(row): row for row in list_rows(find_section(SERVER, "Objects"))}

    assert [field for field in OBJECTS[name] if f"`{field}`" not in rows[name]] == []


def test_names_are_defined_in_first_cells_and_before_colons():
    page = """Send `GET /a`, then `GET /b`: both return text. `--c`, `-d`: print it.
| `GET /e` | effect |
|---|---|
| `GET /f`, `--g x\\|y` | as `GET /h`. `--i`: print it. |
- `--j N` or `-k`: print it.
- `--l` prints it."""

    assert find_definitions(page) == ["GET /f", "--g x\\|y", "--c", "-d", "--i", "--j N", "-k"]


def test_the_example_of_keys_is_valid_yaml():
    block = SERVER.split("    server:\n")[1].split("\n\n")[0]
    keys = yaml.safe_load("server:\n" + "\n".join(line[4:] for line in block.splitlines()))

    assert [key["name"] for key in keys["server"]["keys"]] == ["ci", "ann", "prometheus"]

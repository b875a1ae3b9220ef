"""Every route, error code, log field and metric is in the reference."""

import re
from pathlib import Path

import pytest
import yaml

import cllm.server.page
from cllm.core.reply import Usage
from cllm.server.http.errors import STATUS_BY_CODE
from cllm.server.http.metrics import Metrics
from cllm.server.http.request_log import RequestRecord, log_fields
from cllm.server.http.routes import PAGE_ROUTES, ROUTES

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
PAGE = (REFERENCE / "page.md").read_text(encoding="utf-8")
SERVER = (REFERENCE / "server.md").read_text(encoding="utf-8")
ERRORS = (REFERENCE / "errors.md").read_text(encoding="utf-8")


def has_own_place(page: str, name: str) -> bool:
    """Whether a name is in the first cell of a row, or starts a cell or a paragraph."""
    code = re.escape(f"`{name}`")
    return re.search(rf"(^|\| ){code}|^\| `[^|]*{code}", page, re.MULTILINE) is not None


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: f"{row.method} {row.path}")
def test_every_route_is_documented(row):
    path = re.sub(r":\w+\}", "}", row.path)

    assert has_own_place(SERVER, f"{row.method} {path}")


@pytest.mark.parametrize("row", PAGE_ROUTES, ids=lambda row: f"{row.method} {row.path}")
def test_every_route_of_the_page_is_documented(row):
    assert has_own_place(PAGE, f"{row.method} {row.path}")


def test_every_shortcut_of_the_page_is_documented():
    modules = Path(cllm.server.page.__file__).parent.joinpath("static").glob("*.js")
    code = "\n".join(path.read_text(encoding="utf-8") for path in modules)
    keys = re.findall(r'addShortcut\("([^"]+)"', code)

    assert len(keys) > 8
    for key in keys:
        assert re.search(rf"^\| .*`{re.escape(key)}`.* \|", PAGE, re.MULTILINE), key


@pytest.mark.parametrize("code", sorted(STATUS_BY_CODE))
def test_every_error_code_is_documented_with_its_status(code):
    assert f"| {STATUS_BY_CODE[code]} | `{code}` |" in ERRORS


def test_every_documented_code_exists():
    documented = set(re.findall(r"^\| \d+ \| `(\w+)`", ERRORS, re.MULTILINE))

    assert documented == set(STATUS_BY_CODE)


def test_every_log_field_is_documented():
    record = RequestRecord(request="r", method="GET", started=0.0, usage=Usage())
    for name in record.__struct_fields__:
        if getattr(record, name) is None:
            setattr(record, name, 1)

    for field in log_fields(record):
        assert f"`{field}`" in SERVER, field


def test_every_metric_is_documented():
    names = re.findall(r"# TYPE (\w+)", Metrics().render().decode())

    assert len(names) == 8
    for name in names:
        assert has_own_place(SERVER, name)


def test_a_mention_in_a_sentence_is_not_a_place_of_its_own():
    page = "Send `GET /a` first.\n| `GET /b`, `GET /c` | as `GET /d` | `GET /e` |\n`GET /f` returns"
    found = [name for name in "abcdef" if has_own_place(page, f"GET /{name}")]
    assert found == ["b", "c", "e", "f"]


def test_the_example_of_keys_is_valid_yaml():
    block = SERVER.split("    server:\n")[1].split("\n\n")[0]
    keys = yaml.safe_load("server:\n" + "\n".join(line[4:] for line in block.splitlines()))

    assert [key["name"] for key in keys["server"]["keys"]] == ["ci", "ann", "prometheus"]

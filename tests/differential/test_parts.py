"""Components of the runner: tokens, comparison, intended differences, selection of cases."""

import time
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.differential.catalogue.selection import list_cases, make_groups, select_cases
from tests.differential.comparison import Difference, Section, compare
from tests.differential.intended_differences import find_reasons, read_rules
from tests.differential.model import Case
from tests.differential.normaliser import Normaliser
from tests.differential.report import format_matrix, group_differences
from tests.differential.versions import VersionError, find_missing, install

REPOSITORY = Path(__file__).parents[2]
ONE, OTHER = (f"6a5ed61c-5e0c-4f2e-8d2c-0c8d2ad5a1f{digit}" for digit in "12")


def normaliser(known: str = "") -> Normaliser:
    return Normaliser(literals={"/tmp/old": "<root>"}, version="0.1.0", known=known)  # noqa: S108


def test_an_id_has_the_same_token_everywhere() -> None:
    normalise = normaliser()
    assert normalise("body 1", f"{ONE} {OTHER} {ONE}") == (
        "<id body 1.1> <id body 1.2> <id body 1.1>"
    )
    assert normalise("rows", f"{OTHER}") == "<id body 1.2>"


def test_an_id_that_the_case_sends_is_not_replaced() -> None:
    assert normaliser(known=f"GET /{ONE}")("body", f"{ONE} {OTHER}") == f"{ONE} <id body.1>"


def test_only_times_around_now_are_replaced() -> None:
    normalise = normaliser()
    now = datetime.now(UTC).isoformat()
    old = "2025-10-31T12:00:00.123456Z"
    assert normalise("x", f"{now} {old}") == f"<time> {old}"
    assert normalise("x", f'"created": {int(time.time())}, 1760000001') == (
        '"created": <epoch>, 1760000001'
    )


def test_paths_and_the_version_are_replaced_and_longer_numbers_are_not() -> None:
    found = normaliser()("x", "/tmp/old/home cllm/0.1.0 10.1.0.1 0.1.0.5")  # noqa: S108
    assert found == "<root>/home cllm/<version> 10.1.0.1 0.1.0.5"


def section(text: str, aspect: str = "body") -> Section:
    return Section(aspect=aspect, step="1", text=text)


def test_a_section_of_only_one_version_is_a_difference() -> None:
    (found,) = compare("c", [section("a"), section("n", "notice")], [section("a")])
    assert (found.aspect, found.changed[0]) == ("notice", "-n")


def test_json_is_shown_by_field_and_by_bytes_if_only_its_layout_differs() -> None:
    (found,) = compare("c", [section('{"a":1,"b":2}')], [section('{"a":1,"b":3}')])
    assert found.changed == ('- "b": 2', '+ "b": 3')
    (found,) = compare("c", [section('{"a":1}')], [section('{"a": 1}')])
    assert found.changed == ('-{"a":1}', '+{"a": 1}')


def test_the_diff_of_a_long_line_contains_the_difference() -> None:
    before, after = (f"{'x' * 5000}{end}{'y' * 5000}" for end in "ab")
    (found,) = compare("c", [section(before)], [section(after)])
    assert all(len(line) < 300 for line in found.changed)
    assert ["a" in line for line in found.changed] == [True, False]


RULES = """
| cases | aspect | line | reason |
|---|---|---|---|
| `chat-*` | headers | `^[-+]server: (uvicorn\\|none)` | The server names itself no longer. |
| * | rows | `"revision"` | One revision. |
"""


def difference(case: str, aspect: str, *lines: str) -> Difference:
    return Difference(case=case, aspect=aspect, step="1", lines=lines)


def test_a_difference_is_intended_if_all_its_changed_lines_are(tmp_path: Path) -> None:
    path = tmp_path / "intended.md"
    path.write_text(RULES, encoding="utf-8")
    rules = read_rules(path)
    named = difference("chat-1", "headers", " date: x", "-server: uvicorn")
    assert find_reasons(named, rules) == ["The server names itself no longer."]
    more = difference("chat-1", "headers", "-server: uvicorn", "-x-request-id: y")
    assert find_reasons(more, rules) is None
    assert find_reasons(difference("other", "headers", "-server: uvicorn"), rules) is None
    assert find_reasons(difference("other", "rows", '+"revision": 5'), rules) == ["One revision."]


def test_a_rule_without_a_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "intended.md"
    path.write_text(RULES.replace("One revision.", ""), encoding="utf-8")
    with pytest.raises(ValueError, match="reason"):
        read_rules(path)


def test_the_rules_in_the_repository_can_be_read() -> None:
    read_rules()


def test_similar_differences_are_shown_together() -> None:
    found = [difference(f"c{n}", "body", f"-at {n}", f"+on {n}") for n in range(5)]
    found.append(difference("d", "body", "-other"))
    assert [len(group) for group in group_differences(found)] == [5, 1]


def test_cases_of_missing_recorded_data_are_skipped(tmp_path: Path) -> None:
    cases = list_cases(tmp_path / "none")
    assert not any(case.id.startswith(("tau", "client")) for case in cases)
    requests = sum(case.requests for case in cases if isinstance(case, Case))
    assert requests > 4000
    assert sum(case.requests for case in cases if not isinstance(case, Case)) >= 300


def test_a_quick_run_has_cases_of_every_family(tmp_path: Path) -> None:
    cases = list_cases(tmp_path / "none")
    some = select_cases(cases, only=None, requests=600)
    assert 500 < sum(case.requests for case in some) < 700
    assert {"command", "fidelity", "generated", "reply", "odd"} <= {
        case.id.partition("-")[0] for case in some
    }
    assert {case.id for case in select_cases(cases, only="command-chat", requests=None)} == {
        case.id for case in cases if "command-chat" in case.id
    }


def test_every_case_is_in_one_group_of_its_profile(tmp_path: Path) -> None:
    cases = list_cases(tmp_path / "none")
    groups = make_groups(cases)
    assert sorted(case.id for group in groups for case in group.cases) == sorted(
        case.id for case in cases
    )
    for group in groups:
        profiles = {c.profile if isinstance(c, Case) else "command" for c in group.cases}
        assert len(profiles) == 1
    assert "bedrock" in format_matrix(groups)


def test_a_wheel_is_a_version(tmp_path: Path) -> None:
    wheel = tmp_path / "cllm-0.1.0-py3-none-any.whl"
    source = REPOSITORY / "src"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in (source / "cllm").rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(source))
        archive.writestr(
            "cllm-0.1.0.dist-info/METADATA",
            "Metadata-Version: 2.4\nName: cllm\nVersion: 0.1.0\n"
            'Requires-Dist: click>=8\nRequires-Dist: nobody-has-this; extra == "other"\n',
        )
    version = install(str(wheel), tmp_path / "cache", REPOSITORY)
    assert version.number.count(".") == 2


def test_only_missing_packages_are_installed_for_a_version() -> None:
    wanted = ["click>=8", "click>=9999", "nobody-has-this>=1; python_version > '3'"]
    assert list(find_missing(map(Requirement, wanted))) == ["click>=9999", "nobody-has-this>=1"]


def test_an_unknown_version_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VersionError, match="neither a wheel"):
        install("no-such-commit", tmp_path, REPOSITORY)
    with pytest.raises(VersionError, match="does not exist"):
        install(str(tmp_path / "none.whl"), tmp_path, REPOSITORY)

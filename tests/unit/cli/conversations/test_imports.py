import json

import pytest

from cllm.cli.conversations.imports import MAX_LINES, _print_report
from cllm.transfer.report import ImportReport


def test_a_long_report_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    report = ImportReport(imported=1, messages=1)
    for number in range(MAX_LINES + 3):
        report.skip("no", id=str(number))
    report.note("one thing")
    report.note("another")
    report.note("another")
    _print_report(report, as_json=False, dry_run=True)
    out, err = capsys.readouterr()
    assert out.startswith("Would import 1 conversation (1 message); ")
    assert "Skipped 3 more; list them with --json." in err
    assert "Note: one thing.\n" in err
    assert "Note: another (2 times).\n" in err


def test_a_report_for_programs_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    report = ImportReport()
    report.skip("no", id="x", damaged=True)
    report.skip_message("hidden")
    report.skip_message("hidden")
    _print_report(report, as_json=True, dry_run=False)
    fields = json.loads(capsys.readouterr().out)
    assert fields["skipped_conversations"] == [{"reason": "no", "damaged": True, "id": "x"}]
    assert fields["messages"] == {"imported": 0, "skipped": 2}

from cllm.transfer.report import MAX_REASONS, MAX_TEXT, OTHER_REASON, ImportReport


def test_the_reasons_of_a_report_have_a_limit() -> None:
    report = ImportReport()
    for number in range(2 * MAX_REASONS):
        report.note(f"a block of the type '{number}'")
        report.skip_message("x" * 5000)
    assert report.notes[OTHER_REASON] == MAX_REASONS
    assert sum(report.notes.values()) == 2 * MAX_REASONS
    assert report.skipped_messages == {"x" * MAX_TEXT: 2 * MAX_REASONS}


def test_names_that_are_not_utf_8_can_be_encoded() -> None:
    report = ImportReport()
    report.skip("no", path="\udcff.json", id=None)
    assert (report.skipped[0].path, report.skipped[0].id) == ("?.json", None)

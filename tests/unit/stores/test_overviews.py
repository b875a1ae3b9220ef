import pytest

from cllm.stores.overviews import MAX_LINE_LENGTH, read_line


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ('{"content": "One\\n two"}', "One two"),
        (
            '{"content": [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}]}',
            "One two",
        ),
        ('{"content": null}', ""),
        ('{"content": [{"type": "image"}, {"type": "text", "text": "cut \\u00e9', "cut é"),
        ('{"content": "cut \\', "cut"),
        ('{"input": "x', ""),
        ("not json", ""),
    ],
)
def test_the_line_is_the_text_of_the_message_also_if_its_json_is_cut(raw, line):
    assert read_line(raw) == line


def test_the_line_is_short():
    assert len(read_line('{"content": "' + "x" * 9000)) == MAX_LINE_LENGTH

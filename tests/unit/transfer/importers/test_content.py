import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from cllm.core.message import Document, Image
from cllm.transfer.importers.content import (
    build_attachment,
    build_placeholder,
    guess_media_type,
    parse_time,
    read_count,
    read_object,
    read_objects,
    read_text,
)


@pytest.mark.parametrize(
    ("data", "name", "declared", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n", "a.txt", "text/plain", "image/png"),
        (b"RIFF0000WEBP", None, None, "image/webp"),
        (b"RIFF0000AVI ", None, None, "application/octet-stream"),
        (b"x", "a.csv", None, "text/csv"),
        (b"x", "a.csv", "text/plain", "text/plain"),
    ],
)
def test_the_content_decides_about_the_media_type(
    data: bytes, name: str | None, declared: str | None, media_type: str
) -> None:
    assert guess_media_type(data, name, declared) == media_type


def test_an_attachment_is_an_image_or_a_document() -> None:
    data = base64.b64encode(b"GIF89a").decode()
    assert build_attachment(b"GIF89a") == Image(media_type="image/gif", data=data)
    document = build_attachment(b"x", name="a.txt")
    assert document == Document(media_type="text/plain", data="eA==", name="a.txt")
    assert build_placeholder("file", None).text == "[file]"


SECOND = datetime(2025, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (SECOND.timestamp(), SECOND),
        (int(SECOND.timestamp() * 1000), SECOND),
        ("2025-01-01T00:00:00Z", SECOND),
        ("2025-01-01 01:00:00+01:00", SECOND),
        ("2025-01-01", SECOND),
        ("soon", None),
        (True, None),
        (None, None),
        (1e300, None),
        (float("nan"), None),
    ],
)
def test_times_are_numbers_or_texts(value: Any, expected: datetime | None) -> None:
    assert parse_time(value) == expected


def test_fields_of_other_types_are_absent() -> None:
    assert read_text({"a": 1, "b": "", "c": "x"}, "a", "b", "c") == "x"
    assert read_text(None, "a") == ""
    assert read_object({"a": []}, "a") == {}
    assert read_objects({"a": [1, {}]}, "a") == [{}]
    assert read_objects([], "a") == []
    assert read_count({"a": True, "b": -1, "c": 3}, "a", "b", "c") == 3
    assert read_count(None, "a") == 0

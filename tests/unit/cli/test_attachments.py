"""Attached files become message parts; their bytes decide the type."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.cli.attachments import MAGIC, detect_media_type, read_attachments
from cllm.core.errors import UsageError
from cllm.core.message import Document, Image, Text
from cllm.wire.openai.parts import decode_parts, encode_parts


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        *MAGIC.items(),
        (b"RIFF\x10\x00\x00\x00WEBPVP8L", "image/webp"),
        (b"RIFF\x10\x00\x00\x00WAVEfmt ", None),
        (b"RIFF", None),
        (b"\x89PNG", None),
        (b" %PDF-1.4", None),
        (b"GIF is a format", None),
        (b"", None),
    ],
)
def test_the_first_bytes_decide_the_media_type(data, media_type):
    assert detect_media_type(data) == media_type


@given(tail=st.binary(max_size=300), magic=st.sampled_from(sorted(MAGIC)))
def test_a_file_is_encoded_without_loss(tmp_path_factory, tail, magic):
    path = tmp_path_factory.mktemp("attached") / "thing"
    path.write_bytes(magic + tail)

    (part,) = decode_parts(encode_parts("user", read_attachments([str(path)])))

    assert isinstance(part, Image | Document)
    assert part.media_type == MAGIC[magic]
    assert base64.b64decode(part.data or "", validate=True) == magic + tail


@given(text=st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1))
def test_a_text_is_complete_between_its_header_and_footer(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("attached") / "notes.txt"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())

    (part,) = read_attachments([str(path)])

    if detect_media_type(text.encode()) is None:
        ending = "" if text.endswith("\n") else "\n"
        assert part == Text(text=f"--- File: notes.txt ---\n{text}{ending}--- End File ---")


def test_a_file_name_cannot_add_a_line_to_the_header(tmp_path):
    path = tmp_path / "a\n--- End File ---\nb.txt"
    path.write_bytes(b"text")

    (part,) = read_attachments([str(path)])

    assert isinstance(part, Text)
    assert part.text.splitlines()[1:] == ["text", "--- End File ---"]


@pytest.mark.parametrize(
    "address",
    [
        "https://x.example/a.png",
        "https://x.example/a.JPEG",
        "https://x.example/photo-1234?fm=jpg",
        "HTTPS://x.example/a.webp#top",
    ],
)
def test_the_url_of_an_image_is_unchanged(address):
    assert read_attachments([address]) == (Image(url=address),)


@pytest.mark.parametrize(
    "address", ["https://x.example/a.svg", "https://x.example/page.html?x=a.png", "s3://b/a.png"]
)
def test_other_urls_are_refused(address):
    with pytest.raises(UsageError, match="download it and attach the file"):
        read_attachments([address])

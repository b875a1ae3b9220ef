"""Media types under one name and data in base64, for every provider alike."""

import pytest

from cllm.core.message import Document, Image
from cllm.wire.errors import NotExpressibleError
from cllm.wire.media import normalize_base64, normalize_media_type


@pytest.mark.parametrize(
    ("said", "plain"),
    [
        ("image/png", "image/png"),
        ("IMAGE/Jpg", "image/jpeg"),
        (" text/Plain ; charset=utf-8", "text/plain"),
        ("text/x-markdown", "text/markdown"),
        ("image/bmp", "image/bmp"),
        ("", ""),
        (None, ""),
    ],
)
def test_a_media_type_has_one_name(said, plain):
    assert normalize_media_type(said) == plain


def test_data_without_breaks_is_the_same_part():
    image = Image(media_type="image/png", data="aGk=")

    assert normalize_base64(image, "aGk=") is image


def test_breaks_in_data_are_left_out():
    assert normalize_base64(Document(data="aG\nk="), "aG\nk=").data == "aGk="


@pytest.mark.parametrize("data", ["", " ", "?", "abc", "aGk=aGk=", "é"])
def test_data_that_is_no_base64_is_an_error_that_names_its_kind(data):
    with pytest.raises(NotExpressibleError, match="data of the document"):
        normalize_base64(Document(data=data), data)

"""The HTTP/2 upgrade offer of a client is removed from the headers of its request."""

import pytest

from cllm.server.http.http_protocol import remove_h2c_upgrade

LINE = b"POST / HTTP/1.1\r\n"
OFFER = b"Upgrade: h2c\r\n"
REST = b"Host: localhost\r\n\r\n"


def test_the_offer_is_removed():
    assert remove_h2c_upgrade(LINE + OFFER + REST) == LINE + REST


def test_the_name_and_value_match_in_any_case():
    assert remove_h2c_upgrade(LINE + OFFER.upper() + REST) == LINE + REST


def test_headers_that_arrive_in_parts_are_checked_too():
    part = LINE + OFFER + b"Ho"

    assert remove_h2c_upgrade(part) == LINE + b"Ho"


@pytest.mark.parametrize(
    "data",
    [
        LINE + REST,
        LINE + b"Upgrade: websocket\r\n" + REST,
        LINE + b"X-Upgrade: h2c\r\n" + REST,
        LINE + REST + b"\r\nUpgrade: h2c\r\n",
    ],
)
def test_other_headers_and_the_body_are_unchanged(data: bytes):
    assert remove_h2c_upgrade(data) == data

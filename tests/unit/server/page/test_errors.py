"""Errors as HTML."""

from urllib.parse import unquote

import pytest

from cllm.core.errors import ConversationNotFoundError
from cllm.server.http.errors import ApiError
from cllm.server.page.errors import page_error_response


def test_an_error_is_a_page_with_the_message_and_a_link_back():
    status, headers, body = page_error_response(ConversationNotFoundError("<b>"))

    assert status == 404
    assert headers["X-Page-Code"] == "conversation_not_found"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    text = body.decode()
    assert '<a href="/">' in text
    assert "<b>" not in text
    assert unquote(headers["X-Page-Error"]).isprintable()


@pytest.mark.parametrize("code", ["missing_token", "invalid_token"])
def test_a_missing_or_wrong_key_is_a_form(code):
    status, _, body = page_error_response(ApiError(code, "Send a key."))

    assert status == 401
    assert b'<form id="key"' in body
    assert b"Send a key." in body
    assert b"without-script" in body


def test_a_message_with_line_ends_does_not_break_the_headers():
    _, headers, _ = page_error_response(ApiError("not_found", "a\r\nb: é"))

    assert headers["X-Page-Error"] == "a%0D%0Ab%3A%20%C3%A9"

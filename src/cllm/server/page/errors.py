"""Errors as HTML: a page with the message, or the form for an API key."""

from urllib.parse import quote

from cllm.server.http.errors import EncodedResponse, RequestError, report_error
from cllm.server.page.layout import HEADERS, render
from cllm.server.page.texts import TEXTS

HTML = "text/html; charset=utf-8"
NEEDS_KEY = ("missing_token", "invalid_token")
MAX_MESSAGE_LENGTH = 500


def page_error_response(error: RequestError) -> EncodedResponse:
    """Return the document; the scripts read the message and the code in the headers."""
    report = report_error(error)
    needs_key = report.code in NEEDS_KEY
    body = render(
        "key.html" if needs_key else "error.html",
        title=TEXTS["key_title" if needs_key else "error_title"],
        report=report,
    )
    headers = {
        **HEADERS,
        "Content-Type": HTML,
        "X-Page-Code": report.code,
        "X-Page-Error": quote(report.message[:MAX_MESSAGE_LENGTH]),
    }
    return report.status, headers, body.encode()

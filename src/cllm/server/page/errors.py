"""Errors as HTML: a page with the message, or the form for an API key."""

from cllm.server.http.errors import EncodedResponse, RequestError, report_error
from cllm.server.page.layout import HEADERS, render

HTML = "text/html; charset=utf-8"
NEEDS_KEY = ("missing_token", "invalid_token")


def page_error_response(error: RequestError) -> EncodedResponse:
    report = report_error(error)
    template = "key.html" if report.code in NEEDS_KEY else "error.html"
    body = render(template, report=report)
    return report.status, {**HEADERS, "Content-Type": HTML}, body.encode()

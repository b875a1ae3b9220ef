"""The OpenAPI description as HTML without scripts or external resources."""

import re
from collections.abc import Iterator
from functools import cache
from html import escape
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from cllm.server.openapi.description import build_description

POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
STYLE = """
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; }
h2 { margin: 2.5rem 0 .5rem; border-bottom: 1px solid #999; }
summary { cursor: pointer; padding: .4rem 0; }
code { font-family: ui-monospace, monospace; }
pre { background: #8881; padding: .75rem; overflow-x: auto; font-size: .875rem; }
table { border-collapse: collapse; margin: .5rem 0; }
td, th { text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0; }
:root { color-scheme: light dark; }
"""


async def get_docs(_request: Request) -> Response:
    """GET /docs."""
    return HTMLResponse(_render_page(), headers=HEADERS)


@cache
def _render_page() -> str:
    description = build_description()
    info = description["info"]
    body = "\n".join((*_render_routes(description), *_render_schemas(description)))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(info['title'])} API</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<h1>{escape(info['title'])} {escape(info['version'])}</h1>\n"
        f"<p>{escape(info['description'])} As OpenAPI: "
        '<a href="/openapi.json">openapi.json</a>.</p>\n'
        f"{body}\n</body>\n</html>\n"
    )


def _render_routes(description: dict[str, Any]) -> Iterator[str]:
    routes_by_tag: dict[str, list[str]] = {}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            routes_by_tag.setdefault(operation["tags"][0], []).append(
                _render_route(method, path, operation)
            )
    for tag, routes in routes_by_tag.items():
        yield f"<h2>{escape(tag)}</h2>"
        yield from routes


def _render_route(method: str, path: str, operation: dict[str, Any]) -> str:
    head = f"<code><b>{method.upper()}</b> {escape(path)}</code>"
    inner = "\n".join(
        (*_render_parameters(operation), *_render_body(operation), *_render_responses(operation))
    )
    name = escape(operation["operationId"])
    summary = f"<summary>{head} {_render_text(operation['summary'])}</summary>"
    return f'<details id="{name}">{summary}\n{inner}\n</details>'


def _render_parameters(operation: dict[str, Any]) -> Iterator[str]:
    rows = [
        f"<tr><td><code>{escape(one['name'])}</code></td>"
        f"<td>{escape(one['in'])}{', required' if one['required'] else ''}</td>"
        f"<td>{_render_schema(one['schema'])}</td></tr>"
        for one in operation["parameters"]
    ]
    if rows:
        yield f"<table>{''.join(rows)}</table>"


def _render_body(operation: dict[str, Any]) -> Iterator[str]:
    if "requestBody" in operation:
        for media, content in operation["requestBody"]["content"].items():
            yield f"<p>Body, {escape(media)}: {_render_schema(content['schema'])}</p>"


def _render_responses(operation: dict[str, Any]) -> Iterator[str]:
    rows = (
        f"<tr><td>{escape(status)}</td><td>{_render_text(response['description'])}</td>"
        f"<td>{', '.join(_render_contents(response))}</td></tr>"
        for status, response in operation["responses"].items()
    )
    yield f"<table>{''.join(rows)}</table>"


def _render_contents(response: dict[str, Any]) -> Iterator[str]:
    for media, content in response.get("content", {}).items():
        yield f"{escape(media)}: {_render_schema(content['schema'])}"


def _render_text(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _render_schema(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}"><code>{name}</code></a>'
    return f"<code>{escape(msgspec.json.encode(schema).decode())}</code>"


def _render_schemas(description: dict[str, Any]) -> Iterator[str]:
    yield "<h2>schemas</h2>"
    for name, schema in description["components"]["schemas"].items():
        text = msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()
        yield (
            f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>\n'
            f"<pre>{escape(text)}</pre></details>"
        )

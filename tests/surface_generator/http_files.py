"""Formats the observations of the servers: requests, response fields, metrics, logs, exports."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

from tests.fake_provider import Request
from tests.server_process import Response
from tests.surface_generator import routes, source
from tests.surface_generator.http_scenarios import Exchange, Observed
from tests.surface_generator.shapes import Shape
from tests.surface_generator.text import Normaliser, document, join_rows, section

STREAM = "text/event-stream"
JSON = "application/json"
HEADER = re.compile(r"(?:X-[A-Za-z-]+|x-[a-z-]+|(?:[A-Z][A-Za-z]+-)+[A-Z][A-Za-z]+)")
SAMPLE = re.compile(r"^(\w+?)(?:\{(.*)\})? [-+.\deEInfNa]+$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
FREE_FORM_PATHS = ("metadata",)
"""Described in conversation_file.txt, or defined by the client."""


def surface(observed: Observed, normalise: Normaliser) -> dict[str, str]:
    openapi = {"paths": {}, "components": {}} | json.loads(observed.body("description"))
    route_table = Routes(openapi)
    return {
        **routes.surface(openapi),
        "requests.txt": _requests(observed.exchanges, route_table, normalise),
        "responses.txt": _responses(observed.exchanges, route_table),
        "headers.txt": _headers(observed.exchanges),
        "metrics.txt": _metrics(observed.body("metrics").decode()),
        "exports.txt": _exports(observed, normalise),
    }


class Routes:
    """Finds the route of a path."""

    def __init__(self, openapi: dict[str, Any]) -> None:
        self._routes = [
            (template, re.compile(re.sub(r"\\\{\w+\\\}", r"[^/]+", re.escape(template))))
            for template in routes.templates(openapi)
        ]

    def find(self, path: str) -> str:
        plain = path.partition("?")[0]
        for template, pattern in self._routes:
            if pattern.fullmatch(plain):
                return template
        return "/v1/models/{model}" if plain.startswith("/v1/models/") else "(no route)"


def _requests(exchanges: list[Exchange], route_table: Routes, normalise: Normaliser) -> str:
    about = "One request of each kind: its status, the names of its headers, errors and notices."
    return document(
        about,
        *(section(one.name, _request(one, route_table, normalise)) for one in exchanges),
    )


def _request(exchange: Exchange, route_table: Routes, normalise: Normaliser) -> Iterator[str]:
    answer = exchange.answer
    query = normalise(unquote(exchange.path.partition("?")[2]))
    path = route_table.find(exchange.path) + (f"?{query}" if query else "")
    yield f"  {exchange.method} {path}"
    if exchange.sent_headers:
        yield f"  sent: {', '.join(sorted(exchange.sent_headers, key=str.lower))}"
    yield f"  {answer.status} {_media(answer)}".rstrip()
    yield f"  headers: {', '.join(sorted(answer.headers))}"
    for name in ("allow", "retry-after", "www-authenticate"):
        if name in answer.headers:
            yield f"  {name}: {answer.headers[name]}"
    yield from (
        f"  {name}: {value}"
        for name, value in sorted(answer.headers.items())
        if name.startswith("access-control")
    )
    yield from _stream(answer)
    yield from (f"  error: {line}" for line in _errors(answer, normalise))
    for notice in answer.notices:
        yield f"  notice: {notice['code']} at {notice['path']!r}: {normalise(notice['message'])}"


def _stream(answer: Response) -> Iterator[str]:
    """Yield the kinds of lines and events in a stream."""
    if _media(answer) == STREAM:
        lines = {line.partition(":")[0] or "comment" for line in answer.body.decode().split("\n")}
        yield f"  lines: {', '.join(sorted(lines - {'comment'}))}"
        yield f"  events: {', '.join(dict.fromkeys(name for name, _ in _events(answer.body)))}"


def _media(answer: Response) -> str:
    return answer.headers.get("content-type", "").partition(";")[0]


def _errors(answer: Response, normalise: Normaliser) -> Iterator[str]:
    """Yield the errors in a response or a stream."""
    bodies: Iterable[Any] = ()
    if answer.status >= 400 and answer.body:
        bodies = [answer.json]
    elif _media(answer) == STREAM:
        bodies = answer.events
    for body in bodies:
        if isinstance(body, dict) and "error" in body:
            message = body["error"].pop("message", "")
            yield normalise(f"{json.dumps(body, sort_keys=True)} {message}")


def _responses(exchanges: list[Exchange], route_table: Routes) -> str:
    """Format the fields of responses, grouped by equal fields."""
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one in exchanges:
        route = f"{one.method} {route_table.find(one.path)}, {one.answer.status}"
        for suffix, shape in _shapes(one.answer):
            lines = "\n".join(shape.lines())
            groups[f"{route}{suffix}"][lines].append(one.name)
    about = (
        "Fields of responses and their types; a `?` behind one that not all objects of its list "
        "have. Errors are in requests.txt."
    )
    return document(
        about,
        *(
            section(title, [*(f"  of: {name}" for name in names), *lines.split("\n")])
            for title, shapes in sorted(groups.items())
            for lines, names in sorted(shapes.items(), key=lambda item: item[1])
        ),
    )


def _shapes(answer: Response) -> Iterator[tuple[str, Shape]]:
    """Yield the fields of a response; for a stream, by event name."""
    if answer.status >= 400 or not answer.body:
        return
    if _media(answer) == JSON and b'"openapi"' not in answer.body[:20]:
        yield "", Shape([answer.json], without=FREE_FORM_PATHS)
    if _media(answer) == STREAM:
        events: dict[str, list[Any]] = defaultdict(list)
        for name, data in _events(answer.body):
            if isinstance(data, dict) and "error" not in data:
                events[name].append(data)
        for name, values in events.items():
            yield f", event {name}", Shape(values)


def _events(body: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the events of a stream with their names, or else the kind of their data."""
    for block in body.decode().split("\n\n"):
        lines = dict(line.partition(": ")[::2] for line in block.splitlines() if line[:1] != ":")
        if "data" not in lines:
            continue
        data = lines["data"] if lines["data"] == "[DONE]" else json.loads(lines["data"])
        kind = data.get("object", "error") if isinstance(data, dict) else "end"
        yield lines.get("event", kind), data


def _headers(exchanges: list[Exchange]) -> str:
    seen: dict[str, set[str]] = defaultdict(set)
    for one in exchanges:
        for name in one.answer.headers:
            seen[name].add(one.method)
    sent = {name for one in exchanges for name in one.sent_headers}
    named = {name for name in source.strings() if HEADER.fullmatch(name)}
    return document(
        "Headers: those of responses, those that the requests of requests.txt sent, and strings in "
        "the source that have the form of one.",
        section("responses", join_rows((name,) for name in sorted(seen))),
        section("requests", join_rows((name,) for name in sorted(sent, key=str.lower))),
        section("in the source", join_rows((name,) for name in sorted(named, key=str.lower))),
    )


def _metrics(text: str) -> str:
    kinds = re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)
    abouts = dict(re.findall(r"^# HELP (\w+) (.*)$", text, re.MULTILINE))
    samples = [match for line in text.splitlines() if (match := SAMPLE.match(line))]
    about = "Metrics of /metrics after the requests of requests.txt: samples, labels and values."
    return document(
        about,
        *(
            section(name, [f"  {kind}: {abouts.get(name)}", *_samples(name, samples)])
            for name, kind in sorted(kinds)
        ),
    )


def _samples(metric: str, samples: list[re.Match[str]]) -> Iterator[str]:
    labels: dict[str, set[str]] = defaultdict(set)
    values: dict[str, set[str]] = defaultdict(set)
    for sample in samples:
        if sample[1] == metric or sample[1].rpartition("_")[0] == metric:
            pairs = LABEL.findall(sample[2] or "")
            labels[sample[1]].update(name for name, _ in pairs)
            for name, value in pairs:
                values[name].add(value)
    for name in sorted(labels):
        yield f"  {name}{{{', '.join(sorted(labels[name]))}}}"
    for name in sorted(values):
        yield f"  label {name}"
        yield from (f"    {value}" for value in _order(values[name]))


def _order(values: set[str]) -> list[str]:
    try:
        return sorted(values, key=float)
    except ValueError:
        return sorted(values)


def log_sections(observed: Observed, normalise: Normaliser) -> Iterator[list[str]]:
    """Yield the fields of the servers' log records, other lines and the exit code."""
    records = [json.loads(line) for line in observed.logs if line.startswith("{")]
    others = [normalise(line) for line in observed.logs if not line.startswith("{")]
    yield from record_sections(records)
    outcomes = {str(record["outcome"]) for record in records if "outcome" in record}
    yield section("outcomes of requests", join_rows((name,) for name in sorted(outcomes)))
    yield section("other lines", [f"  {line}" for line in dict.fromkeys(others)])
    yield section("exit code of the server after SIGTERM", [f"  {observed.exit_code}"])


def record_sections(records: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield the fields of log records by logger, level and message."""
    shapes: dict[str, Shape] = defaultdict(Shape)
    for record in records:
        key = [str(record.get(name)) for name in ("logger", "level", "message")]
        shapes[": ".join(key)].add(record)
    for name, shape in sorted(shapes.items()):
        yield section(name, shape.lines())


def _exports(observed: Observed, normalise: Normaliser) -> str:
    markdown = normalise(observed.body("export, Markdown").decode()).splitlines()
    html = observed.body("export, HTML").decode()
    tags = sorted(set(re.findall(r"<(\w+(?: class=\"[\w -]+\")?)", html)))
    return document(
        "Exports of a conversation: the Markdown, and the elements of the HTML.",
        section("Markdown", [f"  {line}" for line in markdown]),
        section("HTML", join_rows((tag,) for tag in tags)),
    )


def sent_to_providers(requests: list[Request], about: str) -> Iterator[list[str]]:
    """Yield the header names and fields of requests to providers by path."""
    by_path: dict[str, list[Request]] = defaultdict(list)
    for request in requests:
        by_path[request.path].append(request)
    for path, sent in sorted(by_path.items()):
        headers = Shape(dict.fromkeys(request.headers, "") for request in sent).lines()
        names = [line.strip().partition(":")[0] for line in headers]
        fields = Shape(request.json for request in sent).lines()
        yield section(f"{about}: {path}", [*(f"  header {name}" for name in names), *fields])

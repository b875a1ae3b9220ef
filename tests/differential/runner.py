"""Runs groups of cases on both versions and compares the results.

Both servers of a group get the same requests in the same order, each from its own client and with
its own provider. The versions run a case in parallel; cases run one after another.
"""

import asyncio
import contextlib
import json
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.differential.client import Response
from tests.differential.comparison import Difference, Section, compare
from tests.differential.database import Database, Rows, format_rows, select_shared_columns
from tests.differential.model import (
    Call,
    Case,
    CommandCase,
    Join,
    Open,
    Run,
    Settle,
)
from tests.differential.normaliser import ID, Normaliser
from tests.differential.profiles import PROFILES, command_settings
from tests.differential.side import Side
from tests.differential.upstream import ReceivedRequest
from tests.differential.versions import Version

CONNECTION_HEADERS = {"connection", "keep-alive"}
NOTICE = "x-cllm-notice"
CONVERSATION = "x-conversation-id"
ROWS = "rows"
ROWS_SECONDS = 5.0
GROUP_ROWS_SECONDS = 30.0
"""How long rows that differ are read again: after a case, and in total for a group."""
SETTLE_SECONDS = 10.0
POLL_SECONDS = 0.03
TIMEOUT = "timeout"
MAX_TIMEOUTS = 5
"""The number of timeouts after which the group is aborted."""
NAME_ONLY_FOLDERS = ("tmp",)
"""Folders of which only the file names are compared."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Cases that share one server of each version, or runs of the command."""

    name: str
    cases: Sequence[Case | CommandCase]

    @property
    def requests(self) -> int:
        return sum(case.requests for case in self.cases if isinstance(case, Case))

    @property
    def runs(self) -> int:
        return sum(case.requests for case in self.cases if isinstance(case, CommandCase))


@dataclass
class Result:
    """The result of a group."""

    group: str
    requests: int = 0
    runs: int = 0
    upstream: int = 0
    rows: int = 0
    differences: list[Difference] = field(default_factory=list)


def run_group(group: Group, old: Version, new: Version, root: Path, *, rows: bool) -> Result:
    """Run a group in this process, in folders below the root."""
    return asyncio.run(_run_group(group, old, new, root, rows=rows))


async def _run_group(group: Group, old: Version, new: Version, root: Path, *, rows: bool) -> Result:
    folder, cache = root / group.name, root / "cache"
    sides = (Side(old, "old", folder, cache), Side(new, "new", folder, cache))
    result = Result(group.name)
    try:
        for side in sides:
            side.empty()
            await side.upstream.start()
        server_cases = [case for case in group.cases if isinstance(case, Case)]
        if server_cases:
            await _run_server_cases(server_cases, sides, result, rows=rows)
        for case in group.cases:
            if isinstance(case, CommandCase):
                await _run_commands(case, sides, result)
    finally:
        for side in sides:
            await side.close()
    return result


async def _run_server_cases(
    cases: list[Case], sides: tuple[Side, Side], result: Result, *, rows: bool
) -> None:
    profile = PROFILES[cases[0].profile]
    for side in sides:
        side.write_settings(profile.settings(side.upstream.root, side.nobody))
    await asyncio.gather(*(side.start_server(profile.arguments) for side in sides))
    comparison = _RowComparison(sides, deletes=profile.deletes) if rows else None
    timeouts = 0
    for case in cases:
        observed = await asyncio.gather(*(_run_case(case, side, result) for side in sides))
        result.requests += case.requests
        known = _sent_text(case)
        if comparison is None:
            result.differences += _compare_sections(case.id, sides, observed, known)
        else:
            result.differences += await comparison.compare(case.id, observed, known)
        timeouts += any(map(_is_timeout, (section for one in observed for section in one)))
        if timeouts >= MAX_TIMEOUTS:
            text = f"A server stopped responding; the group was aborted after {case.id}."
            abort = Section(aspect="server", step="timeouts", text=text)
            result.differences += compare(f"{result.group}/timeouts", [], [abort])
            break
    outputs = await asyncio.gather(*(side.stop_server() for side in sides))
    sections = [[Section(aspect="server", step="", text=text)] for text in outputs]
    if comparison is not None:
        for observed_sections, more in zip(sections, comparison.all_sections(), strict=True):
            observed_sections.extend(more)
        result.rows = comparison.count
    result.differences += _compare_sections(f"{result.group}/end", sides, sections, "")


class _RowComparison:
    """Compares the rows of both versions: new rows after each case, all rows at the end.

    With `deletes` it compares all rows after each case. Rows that differ are read again for a
    while, with a limit for a case and for the group.
    """

    def __init__(self, sides: tuple[Side, Side], *, deletes: bool) -> None:
        self._sides = sides
        self._databases = [side.database for side in sides]
        self._deletes = deletes
        self._seconds_left = GROUP_ROWS_SECONDS
        self.count = 0

    async def compare(
        self, case: str, observed: Sequence[list[Section]], known: str
    ) -> list[Difference]:
        """Compare the observations of a case and the rows after it."""
        clock = asyncio.get_running_loop().time
        start = clock()
        while True:
            rows, ends = self._read_rows()
            sections = [[*one, more] for one, more in zip(observed, rows, strict=True)]
            differences = _compare_sections(case, self._sides, sections, known)
            differ = any(difference.aspect == ROWS for difference in differences)
            if not differ or clock() - start >= min(ROWS_SECONDS, self._seconds_left):
                break
            await asyncio.sleep(POLL_SECONDS)
        if differ:
            self._seconds_left -= clock() - start
        for database, seen in zip(self._databases, ends, strict=True):
            database.advance(seen)
        return differences

    def _read_rows(self) -> tuple[list[Section], list[dict[str, int]]]:
        if self._deletes:
            return self._sections([each.all_rows(late=False) for each in self._databases]), [{}, {}]
        reads = [each.new_rows() for each in self._databases]
        return self._sections([rows for rows, _ in reads]), [seen for _, seen in reads]

    def all_sections(self) -> list[list[Section]]:
        """Return the schema and all rows of each version."""
        rows = [database.all_rows() for database in self._databases]
        self.count = sum(len(table) for each in rows for table in each.values())
        schemas = [
            Section(aspect="schema", step="", text=_format_schema(database))
            for database in self._databases
        ]
        return [[*pair] for pair in zip(schemas, self._sections(rows), strict=True)]

    def _sections(self, rows: list[Rows]) -> list[Section]:
        """Format the rows, without tables and columns that only one version has."""
        one, other = self._databases
        return [
            Section(aspect=ROWS, step="", text=format_rows(select_shared_columns(tables, schema)))
            for tables, schema in zip(rows, (other.schema, one.schema), strict=True)
        ]


def _format_schema(database: Database) -> str:
    return f"{format_rows(database.revision())}\n{json.dumps(database.schema, indent=1)}"


def _is_timeout(section: Section) -> bool:
    return section.aspect == "status" and section.text.endswith(TIMEOUT)


def _compare_sections(
    case: str, sides: tuple[Side, Side], sections: Sequence[list[Section]], known: str
) -> list[Difference]:
    normalised = []
    for side, observed in zip(sides, sections, strict=True):
        normalise = side.normaliser(known)
        normalised.append([_normalise_section(section, normalise) for section in observed])
    return compare(case, *normalised)


def _normalise_section(section: Section, normalise: Normaliser) -> Section:
    """Replace values by tokens, also in the step: a file name may contain an ID."""
    step = normalise(section.aspect, section.step)
    text = normalise(f"{section.aspect} {step}".strip(), section.text)
    return Section(aspect=section.aspect, step=step, text=text)


def _sent_text(case: Case) -> str:
    texts = [
        f"{step.path} {dict(step.headers)} {(step.body or b'').decode('utf-8', 'replace')}"
        for step in case.steps
        if isinstance(step, Call)
    ]
    return "\n".join(texts)


class _CaseRun:
    """One case on one version."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.values: dict[str, str] = {}
        self.sections: list[Section] = []
        self.conversations: list[str] = []
        self._running: dict[str, tuple[str, Call, asyncio.Task[Response]]] = {}

    async def call(self, step: Call, number: str) -> None:
        upstream = self.side.upstream
        upstream.script(step.answers)
        before = len(upstream.received)
        if step.background is None:
            self.observe(step, number, await self._send(step))
            return
        started_event = asyncio.Event()
        task = asyncio.create_task(self._send(step, started_event))
        self._running[step.background] = (number, step, task)
        is_stream = step.body is not None and b'"stream":true' in step.body
        condition = started_event.wait() if is_stream else upstream.wait_for(before + 1)
        arrived = asyncio.ensure_future(condition)
        await asyncio.wait({task, arrived}, return_when=asyncio.FIRST_COMPLETED)
        arrived.cancel()

    async def join(self, name: str) -> None:
        number, step, task = self._running.pop(name)
        self.observe(step, number, await task)

    async def settle(self, path: str) -> None:
        deadline = asyncio.get_running_loop().time() + SETTLE_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            response = await self.side.client.send("GET", self._fill(path), self._key(), None)
            if b'"running"' not in response.body:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def finish(self) -> None:
        for name in list(self._running):
            await self.join(name)
        await self.side.upstream.settle()

    async def _send(self, step: Call, started_event: asyncio.Event | None = None) -> Response:
        client = self.side.client if step.background is None else self.side.new_client()
        headers = {name: self._fill(value) for name, value in step.headers.items()}
        body = step.body
        if body is not None:
            for name, value in self.values.items():
                body = body.replace(b"{%s}" % name.encode(), value.encode())
        if step.is_raw:
            response = await client.send_raw(body or b"", leave_after=step.leave_after)
        else:
            path = self._fill(step.path)
            response = await client.send(
                step.method,
                path,
                headers,
                body,
                leave_after=step.leave_after,
                started_event=started_event,
            )
        if client is not self.side.client:
            await client.close()
        return response

    def _fill(self, text: str) -> str:
        for name, value in self.values.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    def observe(self, step: Call, number: str, response: Response) -> None:
        for name, location in step.save.items():
            self.values[name] = _read_value(location, response)
        conversation = response.header(CONVERSATION)
        if conversation and conversation not in self.conversations:
            self.conversations.append(conversation)
        status = f"{response.status} {response.problem}".strip()
        self._add("status", number, status)
        self._add("headers", number, _format_headers(response.headers, response.body))
        if (notice := response.header(NOTICE)) is not None:
            self._add("notice", number, notice)
        self._add("body", number, response.body.decode("utf-8", "backslashreplace"))

    def observe_upstream(self) -> None:
        for number, received in enumerate(self.side.upstream.received, 1):
            self._add("upstream", str(number), _format_request(received))

    async def observe_conversations(self) -> None:
        """Read the conversations of the case through the public API."""
        for number, conversation in enumerate(self.conversations, 1):
            for name, query in (("", "?variants=true"), ("/export", "?format=json")):
                path = f"/v1/conversations/{conversation}{name}{query}"
                response = await self.side.client.send("GET", path, self._key(), None)
                text = f"{response.status}\n{response.body.decode('utf-8', 'backslashreplace')}"
                self._add("api", f"{number}{name}", text)

    def _key(self) -> dict[str, str]:
        return {"Authorization": self.values["key"]} if "key" in self.values else {}

    def _add(self, aspect: str, step: str, text: str) -> None:
        self.sections.append(Section(aspect=aspect, step=step, text=text))


async def _run_case(case: Case, side: Side, result: Result) -> list[Section]:
    side.upstream.start_case()
    run = _CaseRun(side)
    number = 0
    for step in case.steps:
        match step:
            case Call():
                number += 1
                if "Authorization" in step.headers:
                    run.values["key"] = step.headers["Authorization"]
                await run.call(step, str(number))
            case Open(gate):
                side.upstream.gate(gate).open()
            case Join(call):
                await run.join(call)
            case Settle(path):
                await run.settle(path)
    await run.finish()
    run.observe_upstream()
    result.upstream += len(side.upstream.received)
    await run.observe_conversations()
    return run.sections


def _read_value(location: str, response: Response) -> str:
    kind, _, path = location.partition(":")
    if kind == "header":
        return response.header(path) or "missing"
    if kind == "body":
        return response.body.decode("utf-8", "backslashreplace")
    try:
        value: Any = json.loads(response.body)
        for name in path.split("."):
            value = value[int(name)] if isinstance(value, list) else value[name]
    except (ValueError, KeyError, IndexError, TypeError):
        return "missing"
    return value if isinstance(value, str) else json.dumps(value)


def _format_headers(headers: Sequence[tuple[str, str]], body: bytes) -> str:
    """Return the headers sorted by name. A correct Content-Length becomes a token."""
    lines = []
    for name, value in headers:
        key = name.lower()
        if key in CONNECTION_HEADERS or key == NOTICE:
            continue
        is_correct = key == "content-length" and value == str(len(body))
        lines.append(f"{key}: {'<length of the body>' if is_correct else value}")
    return "\n".join(sorted(lines))


def _format_request(received: ReceivedRequest) -> str:
    body = received.body.decode("utf-8", "backslashreplace")
    headers = _format_headers(received.headers, received.body)
    first = f"{received.method} {received.path} ({received.outcome})"
    return f"{first}\n{headers}\n\n{body}"


async def _run_commands(case: CommandCase, sides: tuple[Side, Side], result: Result) -> None:
    for side in sides:
        side.empty()
        side.upstream.start_case()
        if case.settings is not None:
            settings = command_settings(side.upstream.root, side.nobody) | dict(case.settings)
            side.write_settings({k: v for k, v in settings.items() if v is not ...})
    observed: list[list[Section]] = [[], []]
    for number, run in enumerate(case.runs, 1):
        results = await asyncio.gather(*(_run_command(run, str(number), side) for side in sides))
        for sections, more in zip(observed, results, strict=True):
            sections.extend(more)
        result.runs += 1
    for side, sections in zip(sides, observed, strict=True):
        for number, received in enumerate(side.upstream.received, 1):
            text = _format_request(received)
            sections.append(Section(aspect="upstream", step=str(number), text=text))
        result.upstream += len(side.upstream.received)
        for path, text in _read_files(side).items():
            sections.append(Section(aspect="files", step=path, text=text))
    known = "\n".join(f"{run.arguments} {run.stdin!r} {run.files}" for run in case.runs)
    result.differences += _compare_sections(case.id, sides, observed, known)


async def _run_command(run: Run, number: str, side: Side) -> list[Section]:
    values = {"{provider}": side.upstream.root, "{nobody}": side.nobody, "{root}": str(side.root)}
    for name, content in run.files.items():
        _write(side.root / name, content, values)
    side.upstream.script(run.answers)
    arguments = tuple(_fill(argument, values) for argument in run.arguments)
    environment = {
        name: None if value is None else _fill(value, values)
        for name, value in run.environment.items()
    }
    code, out, err = await side.run(arguments, run.stdin, environment)
    await side.upstream.settle()
    texts = {"exit": str(code), "stdout": _decode(out), "stderr": _decode(err)}
    return [Section(aspect=name, step=number, text=text) for name, text in texts.items()]


def _fill(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def _write(path: Path, content: str | bytes | None, values: Mapping[str, str]) -> None:
    """Write a file, or delete it if the content is None."""
    if content is None:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        content = _fill(content, values).encode("utf-8", "surrogateescape")
    path.write_bytes(content)


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _read_files(side: Side) -> dict[str, str]:
    """Return every file with its mode and content; a database as its rows."""
    files: dict[str, str] = {}
    names: list[str] = []
    for path in sorted(side.root.rglob("*"), key=_sort_key):
        name = str(path.relative_to(side.root))
        if name.startswith(NAME_ONLY_FOLDERS):
            names += [name] if path.is_file() else []
        elif path.is_symlink():
            files[name] = f"link to {path.readlink()}"
        elif path.is_dir():
            files[name] = f"folder {stat.S_IMODE(path.stat().st_mode):o}"
        elif not name.endswith(("-wal", "-shm")):
            files[name] = f"mode {stat.S_IMODE(path.stat().st_mode):o}\n{_read_content(path)}"
    files["quiet folders"] = "\n".join(names)
    return files


def _sort_key(path: Path) -> tuple[str, int]:
    """Sort by name; names that are new IDs by the time of the last change."""
    return ID.sub("", str(path)), path.lstat().st_mtime_ns


def _read_content(path: Path) -> str:
    data = path.read_bytes()
    if data.startswith(b"SQLite format 3"):
        database = Database(path)
        rows = database.all_rows()
        return f"{_format_schema(database)}\n{format_rows(rows)}"
    return _decode(data)

"""Runs groups of cases on both versions and compares what comes of them.

Both servers of a group get the same requests in the same order, each from a client and with a
provider of its own. Within a case the versions run side by side; cases follow one another.
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
from tests.differential.compare import Difference, Section, compare
from tests.differential.database import Database, Rows, as_text, shared
from tests.differential.model import (
    Call,
    Case,
    CommandCase,
    Join,
    Open,
    Run,
    Settle,
)
from tests.differential.normalise import ID, Normaliser
from tests.differential.profiles import PROFILES, command_settings
from tests.differential.side import Side
from tests.differential.upstream import Received
from tests.differential.versions import Version

CONNECTION_HEADERS = {"connection", "keep-alive"}
NOTICE = "x-cllm-notice"
CONVERSATION = "x-conversation-id"
ROWS = "rows"
ROWS_SECONDS = 5.0
PATIENCE_SECONDS = 30.0
"""How long rows that differ are read again after a case, and in all after the cases of a group."""
SETTLING_SECONDS = 10.0
POLL_SECONDS = 0.03
TIMEOUT = "timeout"
MOST_TIMEOUTS = 5
"""Responses that never came, after which a group is given up."""
QUIET_FOLDERS = ("tmp",)
"""Folders of which only the names of the files are compared."""


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
    """What a group came to."""

    group: str
    requests: int = 0
    runs: int = 0
    upstream: int = 0
    rows: int = 0
    differences: list[Difference] = field(default_factory=list)


def run_group(group: Group, old: Version, new: Version, root: Path, *, rows: bool) -> Result:
    """Run a group to its end, in this process, in folders below the root."""
    return asyncio.run(_run_group(group, old, new, root, rows=rows))


async def _run_group(group: Group, old: Version, new: Version, root: Path, *, rows: bool) -> Result:
    folder, cache = root / group.name, root / "cache"
    sides = (Side(old, "old", folder, cache), Side(new, "new", folder, cache))
    result = Result(group.name)
    try:
        for side in sides:
            side.empty()
            await side.upstream.start()
        served = [case for case in group.cases if isinstance(case, Case)]
        if served:
            await _serve(served, sides, result, rows=rows)
        for case in group.cases:
            if isinstance(case, CommandCase):
                await _run_commands(case, sides, result)
    finally:
        for side in sides:
            await side.close()
    return result


async def _serve(
    cases: list[Case], sides: tuple[Side, Side], result: Result, *, rows: bool
) -> None:
    profile = PROFILES[cases[0].profile]
    for side in sides:
        side.write_settings(profile.settings(side.upstream.root, side.nobody))
    await asyncio.gather(*(side.start_server(profile.arguments) for side in sides))
    look = _Look(sides, deletes=profile.deletes) if rows else None
    timeouts = 0
    for case in cases:
        observed = await asyncio.gather(*(_play(case, side, result) for side in sides))
        result.requests += case.requests
        known = _sent_by(case)
        if look is None:
            result.differences += _compared(case.id, sides, observed, known)
        else:
            result.differences += await look.compare(case.id, observed, known)
        timeouts += any(map(_is_timeout, (section for one in observed for section in one)))
        if timeouts >= MOST_TIMEOUTS:
            text = f"A server stopped answering; the group was given up after {case.id}."
            given_up = Section(aspect="server", step="timeouts", text=text)
            result.differences += compare(f"{result.group}/timeouts", [], [given_up])
            break
    ended = await asyncio.gather(*(side.stop_server() for side in sides))
    sections = [[Section(aspect="server", step="", text=text)] for text in ended]
    if look is not None:
        for found, more in zip(sections, look.everything(), strict=True):
            found.extend(more)
        result.rows = look.count
    result.differences += _compared(f"{result.group}/end", sides, sections, "")


class _Look:
    """Looks at the rows of both versions, after each case at the new ones and at the end at all.

    With `deletes` it always looks at all of them. Rows that differ get some time to become equal,
    which is limited for a case and for all of them together.
    """

    def __init__(self, sides: tuple[Side, Side], *, deletes: bool) -> None:
        self._sides = sides
        self._databases = [side.database for side in sides]
        self._deletes = deletes
        self._patience = PATIENCE_SECONDS
        self.count = 0

    async def compare(
        self, case: str, observed: Sequence[list[Section]], known: str
    ) -> list[Difference]:
        """Compare what was observed in a case, and the rows after it."""
        clock = asyncio.get_running_loop().time
        started = clock()
        while True:
            rows, ends = self._look()
            sections = [[*found, more] for found, more in zip(observed, rows, strict=True)]
            found = _compared(case, self._sides, sections, known)
            differ = any(difference.aspect == ROWS for difference in found)
            if not differ or clock() - started >= min(ROWS_SECONDS, self._patience):
                break
            await asyncio.sleep(POLL_SECONDS)
        if differ:
            self._patience -= clock() - started
        for database, seen in zip(self._databases, ends, strict=True):
            database.advance(seen)
        return found

    def _look(self) -> tuple[list[Section], list[dict[str, int]]]:
        if self._deletes:
            return self._sections([each.all_rows(late=False) for each in self._databases]), [{}, {}]
        looks = [each.new_rows() for each in self._databases]
        return self._sections([rows for rows, _ in looks]), [seen for _, seen in looks]

    def everything(self) -> list[list[Section]]:
        """The schema and all rows of each version."""
        rows = [database.all_rows() for database in self._databases]
        self.count = sum(len(found) for each in rows for found in each.values())
        schemas = [
            Section(aspect="schema", step="", text=_schema_text(database))
            for database in self._databases
        ]
        return [[*pair] for pair in zip(schemas, self._sections(rows), strict=True)]

    def _sections(self, rows: list[Rows]) -> list[Section]:
        """Tables and columns that only one version has are in the schema alone."""
        one, other = self._databases
        return [
            Section(aspect=ROWS, step="", text=as_text(shared(found, schema)))
            for found, schema in zip(rows, (other.schema, one.schema), strict=True)
        ]


def _schema_text(database: Database) -> str:
    return f"{as_text(database.revision())}\n{json.dumps(database.schema, indent=1)}"


def _is_timeout(section: Section) -> bool:
    return section.aspect == "status" and section.text.endswith(TIMEOUT)


def _compared(
    case: str, sides: tuple[Side, Side], sections: Sequence[list[Section]], known: str
) -> list[Difference]:
    normalised = []
    for side, found in zip(sides, sections, strict=True):
        normalise = side.normaliser(known)
        normalised.append([_normal(section, normalise) for section in found])
    return compare(case, *normalised)


def _normal(section: Section, normalise: Normaliser) -> Section:
    """The section with tokens; its step may be the path of a file whose name is an id."""
    step = normalise(section.aspect, section.step)
    text = normalise(f"{section.aspect} {step}".strip(), section.text)
    return Section(aspect=section.aspect, step=step, text=text)


def _sent_by(case: Case) -> str:
    texts = [
        f"{step.path} {dict(step.headers)} {(step.body or b'').decode('utf-8', 'replace')}"
        for step in case.steps
        if isinstance(step, Call)
    ]
    return "\n".join(texts)


class _Play:
    """One case on one side."""

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
        begun = asyncio.Event()
        task = asyncio.create_task(self._send(step, begun))
        self._running[step.background] = (number, step, task)
        is_stream = step.body is not None and b'"stream":true' in step.body
        waiting = begun.wait() if is_stream else upstream.wait_for(before + 1)
        arrived = asyncio.ensure_future(waiting)
        await asyncio.wait({task, arrived}, return_when=asyncio.FIRST_COMPLETED)
        arrived.cancel()

    async def join(self, name: str) -> None:
        number, step, task = self._running.pop(name)
        self.observe(step, number, await task)

    async def settle(self, path: str) -> None:
        deadline = asyncio.get_running_loop().time() + SETTLING_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            response = await self.side.client.send("GET", self._filled(path), self._key(), None)
            if b'"running"' not in response.body:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def finish(self) -> None:
        for name in list(self._running):
            await self.join(name)
        await self.side.upstream.settle()

    async def _send(self, step: Call, begun: asyncio.Event | None = None) -> Response:
        client = self.side.client if step.background is None else self.side.new_client()
        headers = {name: self._filled(value) for name, value in step.headers.items()}
        body = step.body
        if body is not None:
            for name, value in self.values.items():
                body = body.replace(b"{%s}" % name.encode(), value.encode())
        if step.is_raw:
            response = await client.send_raw(body or b"", leave_after=step.leave_after)
        else:
            path = self._filled(step.path)
            response = await client.send(
                step.method, path, headers, body, leave_after=step.leave_after, begun=begun
            )
        if client is not self.side.client:
            await client.close()
        return response

    def _filled(self, text: str) -> str:
        for name, value in self.values.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    def observe(self, step: Call, number: str, response: Response) -> None:
        for name, where in step.save.items():
            self.values[name] = _value_at(where, response)
        named = response.header(CONVERSATION)
        if named and named not in self.conversations:
            self.conversations.append(named)
        status = f"{response.status} {response.problem}".strip()
        self._add("status", number, status)
        self._add("headers", number, _headers_text(response.headers, response.body))
        if (notice := response.header(NOTICE)) is not None:
            self._add("notice", number, notice)
        self._add("body", number, response.body.decode("utf-8", "backslashreplace"))

    def observe_upstream(self) -> None:
        for place, received in enumerate(self.side.upstream.received, 1):
            self._add("upstream", str(place), _upstream_text(received))

    async def observe_conversations(self) -> None:
        """Read the conversations of the case as the public interface shows them."""
        for place, conversation in enumerate(self.conversations, 1):
            for name, query in (("", "?variants=true"), ("/export", "?format=json")):
                path = f"/v1/conversations/{conversation}{name}{query}"
                response = await self.side.client.send("GET", path, self._key(), None)
                text = f"{response.status}\n{response.body.decode('utf-8', 'backslashreplace')}"
                self._add("api", f"{place}{name}", text)

    def _key(self) -> dict[str, str]:
        return {"Authorization": self.values["key"]} if "key" in self.values else {}

    def _add(self, aspect: str, step: str, text: str) -> None:
        self.sections.append(Section(aspect=aspect, step=step, text=text))


async def _play(case: Case, side: Side, result: Result) -> list[Section]:
    side.upstream.begin_case()
    play = _Play(side)
    number = 0
    for step in case.steps:
        match step:
            case Call():
                number += 1
                if "Authorization" in step.headers:
                    play.values["key"] = step.headers["Authorization"]
                await play.call(step, str(number))
            case Open(gate):
                side.upstream.gate(gate).open()
            case Join(call):
                await play.join(call)
            case Settle(path):
                await play.settle(path)
    await play.finish()
    play.observe_upstream()
    result.upstream += len(side.upstream.received)
    await play.observe_conversations()
    return play.sections


def _value_at(where: str, response: Response) -> str:
    kind, _, path = where.partition(":")
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


def _headers_text(headers: Sequence[tuple[str, str]], body: bytes) -> str:
    """The headers in order of their names; a length that is right is the body's business."""
    lines = []
    for name, value in headers:
        key = name.lower()
        if key in CONNECTION_HEADERS or key == NOTICE:
            continue
        is_right = key == "content-length" and value == str(len(body))
        lines.append(f"{key}: {'<length of the body>' if is_right else value}")
    return "\n".join(sorted(lines))


def _upstream_text(received: Received) -> str:
    body = received.body.decode("utf-8", "backslashreplace")
    headers = _headers_text(received.headers, received.body)
    first = f"{received.method} {received.path} ({received.outcome})"
    return f"{first}\n{headers}\n\n{body}"


async def _run_commands(case: CommandCase, sides: tuple[Side, Side], result: Result) -> None:
    for side in sides:
        side.empty()
        side.upstream.begin_case()
        if case.settings is not None:
            settings = command_settings(side.upstream.root, side.nobody) | dict(case.settings)
            side.write_settings({k: v for k, v in settings.items() if v is not ...})
    observed: list[list[Section]] = [[], []]
    for number, run in enumerate(case.runs, 1):
        found = await asyncio.gather(*(_run_command(run, str(number), side) for side in sides))
        for sections, more in zip(observed, found, strict=True):
            sections.extend(more)
        result.runs += 1
    for side, sections in zip(sides, observed, strict=True):
        for place, received in enumerate(side.upstream.received, 1):
            text = _upstream_text(received)
            sections.append(Section(aspect="upstream", step=str(place), text=text))
        result.upstream += len(side.upstream.received)
        for path, text in _files(side).items():
            sections.append(Section(aspect="files", step=path, text=text))
    known = "\n".join(f"{run.arguments} {run.stdin!r} {run.files}" for run in case.runs)
    result.differences += _compared(case.id, sides, observed, known)


async def _run_command(run: Run, number: str, side: Side) -> list[Section]:
    replaced = {"{provider}": side.upstream.root, "{nobody}": side.nobody, "{root}": str(side.root)}
    for name, content in run.files.items():
        _write(side.root / name, content, replaced)
    side.upstream.script(run.answers)
    arguments = tuple(_filled(argument, replaced) for argument in run.arguments)
    environment = {
        name: None if value is None else _filled(value, replaced)
        for name, value in run.environment.items()
    }
    code, out, err = await side.run(arguments, run.stdin, environment)
    await side.upstream.settle()
    texts = {"exit": str(code), "stdout": _text(out), "stderr": _text(err)}
    return [Section(aspect=name, step=number, text=text) for name, text in texts.items()]


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def _write(path: Path, content: str | bytes | None, values: Mapping[str, str]) -> None:
    """Write a file; without content, delete it. A path that ends in `/` is a folder."""
    if content is None:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        content = _filled(content, values).encode("utf-8", "surrogateescape")
    path.write_bytes(content)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _files(side: Side) -> dict[str, str]:
    """Every file that the runs left: its mode and content, a database as its rows."""
    found: dict[str, str] = {}
    quiet: list[str] = []
    for path in sorted(side.root.rglob("*"), key=_order):
        name = str(path.relative_to(side.root))
        if name.startswith(QUIET_FOLDERS):
            quiet += [name] if path.is_file() else []
        elif path.is_symlink():
            found[name] = f"link to {path.readlink()}"
        elif path.is_dir():
            found[name] = f"folder {stat.S_IMODE(path.stat().st_mode):o}"
        elif not name.endswith(("-wal", "-shm")):
            found[name] = f"mode {stat.S_IMODE(path.stat().st_mode):o}\n{_content(path)}"
    found["quiet folders"] = "\n".join(quiet)
    return found


def _order(path: Path) -> tuple[str, int]:
    """By name; those whose names are new ids, in the order in which they were last written."""
    return ID.sub("", str(path)), path.lstat().st_mtime_ns


def _content(path: Path) -> str:
    data = path.read_bytes()
    if data.startswith(b"SQLite format 3"):
        database = Database(path)
        rows = database.all_rows()
        return f"{_schema_text(database)}\n{as_text(rows)}"
    return _text(data)

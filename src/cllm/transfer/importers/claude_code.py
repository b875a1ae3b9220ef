"""Reads the sessions of Claude Code: a `.jsonl` file, a project, or the folder `projects`.

One reply is several lines with the same message ID. Sessions of sub-agents become side
conversations: those in files of their own, and those that older versions write into the same file.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from cllm.core.conversation import Branch
from cllm.core.message import Role
from cllm.core.reply import Usage
from cllm.transfer.archive import Archive, SourceFile
from cllm.transfer.importers.claude_code_results import StoredResults
from cllm.transfer.importers.content import (
    build_anthropic_message,
    parse_time,
    read_count,
    read_object,
    read_objects,
    read_text,
)
from cllm.transfer.importers.session_file import NO_MESSAGES, Line, read_records
from cllm.transfer.message_tree import ImportedConversation, ImportedNode
from cllm.transfer.report import ImportReport

SOURCE = "claude-code"
SYNTHETIC = "<synthetic>"
TITLES = ("customTitle", "aiTitle", "summary")
"""The fields with a title, the one that counts first."""


def read_conversations(archive: Archive, report: ImportReport) -> Iterator[ImportedConversation]:
    for file in archive.files:
        if not file.base.endswith(".jsonl"):
            continue
        lines = read_records(archive, file, report)
        if not any(line.get("type") in ("user", "assistant") for line in lines):
            if lines:
                report.skip(NO_MESSAGES, path=file.name)
            continue
        results = StoredResults(archive, file, report)
        session = _find_session(file, lines)
        for agent, own in _split_agents(lines).items():
            yield _Session(session, agent, own, results, report).read()


def _find_session(file: SourceFile, lines: Sequence[Line]) -> str:
    """Return the ID of a session. A resumed one can have lines of another, with its ID."""
    stem = file.base.removesuffix(".jsonl")
    refs = dict.fromkeys(filter(None, (read_text(line, "sessionId") for line in lines)))
    return stem if stem in refs or not refs else next(iter(refs))


def _split_agents(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Return the lines of the session, under an empty name, and those of each sub-agent."""
    roots: dict[str, str] = {}
    groups: dict[str, list[Line]] = {}
    for line in lines:
        agent = ""
        if line.get("isSidechain") is True:
            key, parent = read_text(line, "uuid"), read_text(line, "parentUuid")
            root = roots.setdefault(key, roots.get(parent, key))
            agent = read_text(line, "agentId") or root
        groups.setdefault(agent, []).append(line)
    return {
        agent: own
        for agent, own in groups.items()
        if any(line.get("type") in ("user", "assistant") for line in own)
    }


class _Session:
    """One session; `nodes` by the ID of their first line, since lines of one reply are joined."""

    def __init__(
        self,
        session: str,
        agent: str,
        lines: Sequence[Line],
        results: StoredResults,
        report: ImportReport,
    ) -> None:
        self._session = session
        self._agent = agent
        self._lines = lines
        self._results = results
        self._report = report
        self._blocks: dict[str, list[Any]] = {}
        self._first: dict[str, Line] = {}
        self._last: dict[str, Line] = {}
        self._parents: dict[str, str | None] = {}
        self._by_message: dict[str, str] = {}
        self._joined: dict[str, str] = {}
        self._results_of: dict[str, str] = {}
        """The first line with results of each reply."""
        self._answered: set[tuple[str, str]] = set()

    def read(self) -> ImportedConversation:
        seen: set[str] = set()
        titles: dict[str, str] = {}
        for line in self._lines:
            titles |= {name: text for name in TITLES if (text := read_text(line, name))}
            key = read_text(line, "uuid")
            if not key or key in seen:
                continue
            seen.add(key)
            self._add(key, read_text(line, "type"), line)
        details = {
            name: value
            for name in ("cwd", "gitBranch", "version")
            if (value := next(filter(None, (read_text(o, name) for o in self._lines)), ""))
        }
        session, agent = self._session, self._agent
        return ImportedConversation(
            source=SOURCE,
            id=f"{session}/{agent}" if agent else session,
            nodes=tuple(self._build_node(key) for key in self._first),
            title=next((titles[name] for name in TITLES if name in titles), None),
            created_at=parse_time(self._lines[0].get("timestamp")),
            is_side=bool(agent),
            parent=Branch(conversation=session, sequence=0, kind="side") if agent else None,
            metadata={SOURCE: details} if details else {},
        )

    def _add(self, key: str, kind: str, line: Line) -> None:
        parent = read_text(line, "parentUuid", "logicalParentUuid") or None
        message = read_object(line, "message")
        blocks = self._read_blocks(kind, line, message)
        message_id = read_text(message, "id") if kind == "assistant" else ""
        earlier = self._by_message.get(message_id) if message_id else None
        if earlier is not None:
            self._blocks[earlier] += blocks
            self._last[earlier] = line
            self._joined[key] = earlier
            return
        if message_id:
            self._by_message[message_id] = key
        elif kind == "user" and self._add_results(key, parent, blocks):
            return
        self._first[key] = self._last[key] = line
        self._blocks[key] = blocks
        self._parents[key] = parent

    def _add_results(self, key: str, parent: str | None, blocks: list[Any]) -> bool:
        """Add results of tools to the earlier ones of the same reply, as in Anthropic's API.

        The result of each of several calls is a line of its own, below the line of its call.
        """
        if parent is None or not blocks or any(one.get("type") != "tool_result" for one in blocks):
            return False
        reply = self._joined.get(parent, parent)
        earlier = self._results_of.setdefault(reply, key)
        calls = {(reply, read_text(block, "tool_use_id")) for block in blocks}
        is_known = bool(calls & self._answered)
        self._answered |= calls
        if earlier == key or is_known:
            return False
        self._blocks[earlier] += blocks
        self._joined[key] = earlier
        return True

    def _read_blocks(self, kind: str, line: Line, message: Line) -> list[Any]:
        if kind not in ("user", "assistant"):
            return []
        if line.get("isMeta") is True or line.get("isCompactSummary") is True:
            self._report.skip_message("message that Claude Code added")
            return []
        if read_text(message, "model") == SYNTHETIC:
            self._report.skip_message("notice of Claude Code")
            return []
        content = message.get("content")
        if isinstance(content, str):
            return [{"type": "text", "text": content}] if content.strip() else []
        blocks = read_objects(message, "content")
        return [
            self._results.complete(block)
            for block in blocks
            if block.get("type") != "text" or block.get("text")
        ]

    def _build_node(self, key: str) -> ImportedNode:
        line, last = self._first[key], self._last[key]
        message = read_object(line, "message")
        role: Role = "assistant" if line.get("type") == "assistant" else "user"
        blocks = self._blocks[key]
        parent = self._parents[key]
        messages = (build_anthropic_message(role, blocks),) if blocks else ()
        return ImportedNode(
            id=key,
            parent=None if parent is None else self._joined.get(parent, parent),
            messages=messages,
            at=parse_time(line.get("timestamp")),
            model=(read_text(message, "model") or None) if role == "assistant" else None,
            usage=_read_usage(read_object(read_object(last, "message"), "usage")),
        )


def _read_usage(usage: Line) -> Usage | None:
    if not usage:
        return None
    hour = read_count(read_object(usage, "cache_creation"), "ephemeral_1h_input_tokens")
    written = read_count(usage, "cache_creation_input_tokens")
    return Usage(
        input=read_count(usage, "input_tokens"),
        output=read_count(usage, "output_tokens"),
        cache_read=read_count(usage, "cache_read_input_tokens"),
        cache_write=written,
        cache_write_hour=min(hour, written),
    )

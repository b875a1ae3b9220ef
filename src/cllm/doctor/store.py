"""Checks of the files of a store, and of each conversation.

A conversation is checked by the rules of its model's provider, as if a user message followed.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cllm.core.conversation import INTERRUPTION, StoredConversation, Summary
from cllm.core.errors import CllmError, StoreError
from cllm.core.message import Dialect, plain_message
from cllm.core.ports import Page
from cllm.core.prompt import Prompt
from cllm.doctor import Finding, join_names, ok, os_error_reason, problem, report_fix, warning
from cllm.history.repair import RepairResult, repair
from cllm.history.rules import OPENAI, HistoryProfile, profile_for
from cllm.provider_factory import ProviderFactory
from cllm.providers.history import find_profile
from cllm.stores.json.folder import LOCK_FOLDER, SUFFIX
from cllm.stores.locks import is_locked
from cllm.stores.registry import store_location
from cllm.wire.convert import encode_anthropic, encode_bedrock, encode_openai
from cllm.wire.errors import MalformedError
from cllm.wire.messages import OutgoingMessage, RepairedHistory

CHECK = "store"
CHECK_CONTENT = "is checked by: cllm db check and cllm verify"
FOR_OTHERS = 0o077
LEFTOVER_SECONDS = 3600
LITTLE_SPACE = 100_000_000
NO_SPACE = 1_000_000
MEGABYTE = 1_000_000
HISTORIES = "conversations"
DIALECTS: dict[str, Dialect] = {"anthropic": "anthropic", "bedrock": "bedrock"}
NEXT = plain_message("user", "And now?")


def check_store(url: str, *, fix: bool, now: datetime) -> Iterator[Finding]:
    scheme, _, location = url.partition(":")
    try:
        if scheme == "json":
            yield from _check_folder(Path(location), fix=fix, now=now)
        elif scheme == "sqlite":
            yield from _check_database(Path(location.partition("?")[0]).expanduser())
        else:
            advice = "stores no files." if scheme == "memory" else CHECK_CONTENT
            yield ok(CHECK, f"{store_location(url)} {advice}")
    except OSError as error:
        yield problem(CHECK, f"cannot check {store_location(url)} ({os_error_reason(error)}).")


def _check_database(path: Path) -> Iterator[Finding]:
    if path.is_file():
        # SQLite writes other files next to the database.
        if not os.access(path, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK | os.X_OK):
            advice = "check the permissions of the file and its folder"
            yield problem(CHECK, f"{path} is not readable and writable; {advice}.")
            return
        yield ok(CHECK, f"{path} is readable and writable; it {CHECK_CONTENT}")
        yield _check_space(path.parent)
    elif os.path.lexists(path):
        yield problem(CHECK, f"{path} is not a file; name another file in the store URL.")
    else:
        yield _check_missing(path)


def _check_folder(folder: Path, *, fix: bool, now: datetime) -> Iterator[Finding]:
    if not folder.is_dir():
        if os.path.lexists(folder):
            advice = "move it, or choose another folder"
            yield problem(CHECK, f"{folder} is not a folder; {advice}.")
        else:
            yield _check_missing(folder)
        return
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield problem(CHECK, f"{folder} is not readable and writable; check its permissions.")
        return
    yield ok(CHECK, f"{folder} is readable and writable.")
    yield _check_space(folder)
    yield from _check_permissions(folder, fix=fix)
    yield from _check_leftovers(folder, fix=fix, now=now)


def _check_missing(path: Path) -> Finding:
    parent = next(one for one in path.absolute().parents if one.exists())
    if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
        return ok(CHECK, f"{path} does not exist yet; the first conversation creates it.")
    return problem(CHECK, f"{path} cannot be created in {parent}; choose another folder.")


def _check_space(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    text = f"{free / MEGABYTE:.0f} MB are free"
    if free < NO_SPACE:
        return problem("space", f"{text}, too little to save a turn; free some space.")
    if free < LITTLE_SPACE:
        return warning("space", f"{text}; free some space soon.")
    return ok("space", f"{text}.")


def _check_permissions(folder: Path, *, fix: bool) -> Iterator[Finding]:
    """Only the owner may read: the folder is 0700, the files 0600."""
    check = "permissions"
    folders = [str(folder)] if folder.stat().st_mode & FOR_OTHERS else []
    files = [
        entry.name
        for entry in _list_files(folder)
        if entry.name.endswith(SUFFIX) and entry.stat(follow_symlinks=False).st_mode & FOR_OTHERS
    ]
    if not folders and not files:
        yield ok(check, "only you can read the conversations.")
    elif not fix:
        names = join_names([*folders, *files])
        yield warning(check, f"other users can read {names}; repair with: cllm doctor --fix")
    else:
        yield from _fix(check, folders, lambda name: Path(name).chmod(0o700), "only you can read")
        yield from _fix(check, files, lambda name: _restrict(folder / name), "only you can read")


def _check_leftovers(folder: Path, *, fix: bool, now: datetime) -> Iterator[Finding]:
    """Temporary files of killed processes. A recent file may belong to a running process."""
    check, ending = "leftovers", f"{SUFFIX}.tmp"
    newest = now.timestamp() - LEFTOVER_SECONDS
    leftovers = [
        entry.name
        for entry in _list_files(folder)
        if entry.name.startswith(".")
        and entry.name.endswith(ending)
        and entry.stat(follow_symlinks=False).st_mtime < newest
        and not is_locked(folder / LOCK_FOLDER / f"{entry.name[1:].removesuffix(ending)}.lock")
    ]
    if not leftovers:
        yield ok(check, "no leftover temporary files.")
    elif fix:
        yield from _fix(check, leftovers, lambda name: (folder / name).unlink(), "removed")
    else:
        yield warning(
            check,
            f"leftover temporary files: {join_names(leftovers)}; delete with: cllm doctor --fix",
        )


def _fix(
    check: str, names: Sequence[str], repair_one: Callable[[str], None], done: str
) -> Iterator[Finding]:
    repaired = []
    for name in names:
        try:
            repair_one(name)
        except OSError as error:
            yield problem(check, f"cannot repair {name} ({os_error_reason(error)}).")
        else:
            repaired.append(name)
    if repaired:
        yield report_fix(
            check, f"{done} {join_names(repaired)}{' now' if done != 'removed' else ''}."
        )


def _list_files(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        files = [entry for entry in entries if entry.is_file(follow_symlinks=False)]
    return sorted(files, key=lambda entry: entry.name)


def _restrict(path: Path) -> None:
    """Do not follow a link that replaced the file."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


Load = Callable[[str], StoredConversation]


class Rules(NamedTuple):
    """The rules for the histories of a model."""

    dialect: Dialect
    model: str
    profile: HistoryProfile


class HistoryCheck:
    """Checks conversations. `model` applies to conversations without a model."""

    def __init__(self, opener: ProviderFactory, *, model: str) -> None:
        self._opener = opener
        self._model = model
        self._rules_for = cache(self._find_rules)

    def check(self, page: Page, summaries: Iterable[Summary], load: Load) -> Iterator[Finding]:
        for notice in page.notices:
            yield problem(HISTORIES, notice.message)
        good = 0
        for summary in summaries:
            findings = list(self._check_one(summary.id, load))
            good += not findings
            yield from findings
        total = len(page.items)
        if total:
            advice = "check their turns and digests with: cllm verify"
            yield ok(HISTORIES, f"{good} of {total} are readable and need no repair; {advice}")
        elif not page.notices:
            yield ok(HISTORIES, "no conversations yet.")

    def _check_one(self, ref: str, load: Load) -> Iterator[Finding]:
        try:
            conversation = load(ref)
        except StoreError as error:
            yield problem(HISTORIES, str(error))
            return
        last = conversation.turns[-1] if conversation.turns else None
        if last is not None and last.state == "failed" and last.failure == INTERRUPTION:
            yield warning(HISTORIES, f"'{ref}' ends with an interrupted turn without a reply.")
        rules = self._rules_for(conversation.model or self._model)
        if isinstance(rules, str):
            yield warning(HISTORIES, f"'{ref}' cannot be sent: {rules}")
            return
        try:
            result = _check_history(conversation, rules)
        except MalformedError as error:
            yield problem(HISTORIES, f"'{ref}' cannot be sent: {error}.")
            return
        if result is None:
            return
        if result.problems:
            first = result.problems[0]
            yield problem(HISTORIES, f"'{ref}' cannot be sent: {first.path}: {first.message}.")
        elif result.notices:
            first_notice = result.notices[0].message
            yield warning(HISTORIES, f"'{ref}' is repaired when it is sent: {first_notice}")

    def _find_rules(self, model: str) -> Rules | str:
        """Return the rules of a model, or the error if they are unknown."""
        try:
            resolved = self._opener.resolve(model)
            access = self._opener.get_endpoint(resolved.provider)
            dialect = DIALECTS.get(access.kind, "openai")
            if access.profile is not None:
                return Rules(dialect, resolved.name, find_profile(access.profile))
        except CllmError as error:
            return str(error)
        return Rules(dialect, resolved.name, profile_for(dialect, resolved.name))


def _check_history(
    conversation: StoredConversation, rules: Rules
) -> RepairResult[OutgoingMessage] | None:
    """Encode the history as the next turn does; None if it needs no repair."""
    results: list[RepairResult[OutgoingMessage]] = []

    def record_repair(messages: Sequence[OutgoingMessage]) -> RepairedHistory:
        result = repair(
            messages,
            rules.profile,
            make=lambda role, parts: OutgoingMessage(role=role, parts=parts),
            positions=[message.prompt_index for message in messages],
        )
        results.append(result)
        return RepairedHistory(messages=result.messages, notices=result.notices)

    turns = (turn for turn in conversation.turns if turn.is_history)
    messages = (*(message for turn in turns for message in turn.messages), NEXT)
    prompt = Prompt(model=rules.model, messages=messages, stream=False)
    match rules.dialect:
        case "anthropic":
            encode_anthropic(prompt, default_max_tokens=1, repair=record_repair)
        case "bedrock":
            encode_bedrock(prompt, repair=record_repair)
        case _:
            can_skip = rules.profile is OPENAI
            encode_openai(prompt, repair=record_repair, can_skip_repair=can_skip)
    return results[0] if results else None

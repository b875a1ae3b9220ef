"""The folder of the conversation files, and each conversation in it.

A conversation is checked by the rules of its model's provider (`assembly.profiles`), as if the
user sent something next. Nothing stored is repaired: that happens when it is sent.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from cllm.assembly.repair import Repaired, repair
from cllm.assembly.validity import Profile, profile_for
from cllm.core.conversation import Conversation, Summary
from cllm.core.errors import CllmError, StoreError
from cllm.core.message import AnyPart, Dialect, Role, plain_message
from cllm.core.ports import Page
from cllm.doctoring.finding import Finding, fixed, ok, problem, reason_of, some, warning
from cllm.opening import ProviderOpener
from cllm.providers.fitting import named_profile
from cllm.stores.json_folder import LOCKS, SUFFIX
from cllm.stores.locks import is_held
from cllm.wire.malformed import MalformedError
from cllm.wire.spoken import Spoken
from cllm.wire.translate import spoken_for

CHECK = "store"
JSON = "json:"
FOR_OTHERS = 0o077
LEFT_OVER_SECONDS = 3600
LITTLE_SPACE = 100_000_000
NO_SPACE = 1_000_000
MEGABYTE = 1_000_000
HISTORIES = "conversations"
DIALECTS: dict[str, Dialect] = {"anthropic": "anthropic", "bedrock": "bedrock"}
NEXT = spoken_for(plain_message("user", "And now?"), "openai")


def check_store(url: str, *, fix: bool, now: datetime) -> Iterator[Finding]:
    """Look at the folder; what a store of another kind keeps is not looked at."""
    if not url.startswith(JSON):
        scheme = url.partition(":")[0]
        looked = "keeps no files" if scheme == "memory" else "is looked at with: cllm db check"
        yield ok(CHECK, f"the store '{scheme}:' {looked}.")
        return
    folder = Path(url.removeprefix(JSON))
    try:
        if not folder.is_dir():
            yield _missing(folder)
            return
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            yield problem(CHECK, f"{folder} cannot be read and written; check its permissions.")
            return
        yield ok(CHECK, f"{folder} can be read and written.")
        yield _space(folder)
        yield from _permissions(folder, fix=fix)
        yield from _left_over(folder, fix=fix, now=now)
    except OSError as error:
        yield problem(CHECK, f"{folder} cannot be looked at ({reason_of(error)}).")


def _missing(folder: Path) -> Finding:
    if os.path.lexists(folder):
        return problem(CHECK, f"{folder} is no folder; move it away, or choose another one.")
    above = next(path for path in folder.absolute().parents if path.exists())
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        return ok(CHECK, f"{folder} is not there yet; the first conversation makes it.")
    return problem(CHECK, f"{folder} cannot be made in {above}; choose another folder.")


def _space(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    said = f"{free / MEGABYTE:.0f} MB are free there"
    if free < NO_SPACE:
        return problem("space", f"{said}: too little to keep a turn; free some.")
    if free < LITTLE_SPACE:
        return warning("space", f"{said}; free some soon.")
    return ok("space", f"{said}.")


def _permissions(folder: Path, *, fix: bool) -> Iterator[Finding]:
    """What was said is for its owner's eyes: the folder 0700, the files 0600."""
    check = "permissions"
    files = [entry for entry in _files(folder) if entry.name.endswith(SUFFIX)]
    open_files = [entry.name for entry in files if _is_open(entry.stat(follow_symlinks=False))]
    open_folder = _is_open(folder.stat())
    if not open_folder and not open_files:
        yield ok(check, "only you can read the conversations.")
        return
    found = [str(folder)] if open_folder else []
    found += open_files
    if not fix:
        yield warning(check, f"others can read {some(found)}; mend it with: cllm doctor --fix")
        return
    if open_folder:
        yield from _mended(check, [str(folder)], _close_folder, "only you can read")
    if open_files:
        yield from _mended(
            check, open_files, lambda name: _close_file(folder / name), "only you can read"
        )


def _left_over(folder: Path, *, fix: bool, now: datetime) -> Iterator[Finding]:
    """Files that a killed process was writing. A young one may be somebody's who is at work."""
    check = "leftovers"
    oldest = now.timestamp() - LEFT_OVER_SECONDS
    left = [
        entry.name
        for entry in _files(folder)
        if entry.name.startswith(".")
        and entry.name.endswith(f"{SUFFIX}.tmp")
        and entry.stat(follow_symlinks=False).st_mtime < oldest
        and not is_held(folder / LOCKS / f"{_key(entry.name)}.lock")
    ]
    if not left:
        yield ok(check, "no half-written files lie about.")
    elif fix:
        yield from _mended(check, left, lambda name: (folder / name).unlink(), "removed")
    else:
        yield warning(
            check, f"half-written files lie about: {some(left)}; remove them: cllm doctor --fix"
        )


def _mended(
    check: str, names: Sequence[str], mend: Callable[[str], None], done: str
) -> Iterator[Finding]:
    mended = []
    for name in names:
        try:
            mend(name)
        except OSError as error:
            yield problem(check, f"{name} cannot be mended ({reason_of(error)}).")
        else:
            mended.append(name)
    if mended:
        yield fixed(check, f"{done} {some(mended)}{' now' if done != 'removed' else ''}.")


def _files(folder: Path) -> list[os.DirEntry[str]]:
    """The files of the folder, links not followed, by name."""
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if entry.is_file(follow_symlinks=False)]
    return sorted(found, key=lambda entry: entry.name)


def _is_open(status: os.stat_result) -> bool:
    return bool(status.st_mode & FOR_OTHERS)


def _key(temporary: str) -> str:
    return temporary.removeprefix(".").removesuffix(f"{SUFFIX}.tmp")


def _close_folder(folder: str) -> None:
    Path(folder).chmod(0o700)


def _close_file(path: Path) -> None:
    """Take it from others' eyes; a link that took its place meanwhile is not followed."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


Load = Callable[[str], Conversation]
Count = Callable[[Iterable[Summary], int], Iterable[Summary]]


class _Rules(msgspec.Struct, frozen=True):
    """How a model takes histories."""

    dialect: Dialect
    profile: Profile


class HistoryCheck:
    """Looks at conversations one by one. `model` is for those that name none."""

    def __init__(self, opener: ProviderOpener, *, model: str, store: str) -> None:
        self._opener = opener
        self._model = model
        self._locks = Path(store.removeprefix(JSON)) / LOCKS if store.startswith(JSON) else None
        self._rules: dict[str, _Rules | str] = {}

    def check(self, page: Page, load: Load, *, counted: Count) -> Iterator[Finding]:
        """A line for each conversation with which something is wrong, and one for all others."""
        for notice in page.notices:
            yield problem(HISTORIES, notice.message)
        good = 0
        for summary in counted(page.items, len(page.items)):
            found = list(self._look(summary.id, load))
            good += not found
            yield from found
        total = len(page.items)
        if total:
            yield ok(HISTORIES, f"{good} of {total} can be read and sent as they are.")
        elif not page.notices:
            yield ok(HISTORIES, "there are none yet.")

    def _look(self, ref: str, load: Load) -> Iterator[Finding]:
        try:
            conversation = load(ref)
        except StoreError as error:
            yield problem(HISTORIES, str(error))
            return
        if self._was_interrupted(conversation):
            said = "has a turn that was interrupted; the next turn marks it so."
            yield warning(HISTORIES, f"'{ref}' {said}")
        rules = self._rules_for(conversation.model or self._model)
        if isinstance(rules, str):
            yield warning(HISTORIES, f"'{ref}' cannot be sent now: {rules}")
            return
        try:
            judged = _judge(conversation, rules)
        except MalformedError as error:
            yield problem(HISTORIES, f"'{ref}' cannot be sent: {error}.")
            return
        if judged.problems:
            first = judged.problems[0]
            yield problem(HISTORIES, f"'{ref}' cannot be sent: {first.path}: {first.message}.")
        elif judged.notices:
            said = judged.notices[0].message
            yield warning(HISTORIES, f"'{ref}' will be mended when it is sent: {said}")

    def _was_interrupted(self, conversation: Conversation) -> bool:
        turns = conversation.turns + conversation.variants
        if self._locks is None or all(turn.state != "running" for turn in turns):
            return False
        return not is_held(self._locks / f"{conversation.id}.lock")

    def _rules_for(self, model: str) -> _Rules | str:
        """The rules of a model, or why there are none."""
        if model not in self._rules:
            self._rules[model] = self._find_rules(model)
        return self._rules[model]

    def _find_rules(self, model: str) -> _Rules | str:
        try:
            served = self._opener.find(model)
            access = self._opener.access(served.provider)
            dialect = DIALECTS.get(access.kind, "openai")
            if access.profile is not None:
                return _Rules(dialect, named_profile(access.profile))
        except CllmError as error:
            return str(error)
        return _Rules(dialect, profile_for(dialect, served.name))


def _judge(conversation: Conversation, rules: _Rules) -> Repaired[Spoken]:
    said = [message for turn in conversation.turns if turn.is_history for message in turn.messages]
    # A system message among the others is put with the system prompt where it may not stay.
    moved = rules.profile.system in ("nowhere", "after_user")
    spoken = [
        spoken_for(message, rules.dialect, place=place)
        for place, message in enumerate(said)
        if not (moved and message.role == "system")
    ]
    places = [*(message.place for message in spoken), len(said)]
    return repair([*spoken, NEXT], rules.profile, make=_make, places=places)


def _make(role: Role, parts: tuple[AnyPart, ...]) -> Spoken:
    return Spoken(role=role, parts=parts)

"""All cases, in groups that share a server, and the part of them that a quick run takes."""

import fnmatch
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.differential.catalogue import conversations, real, recorded, routes
from tests.differential.catalogue.commands import command_cases
from tests.differential.execute import Group
from tests.differential.model import Case, CommandCase

GROUP_REQUESTS = 450
GROUP_RUNS = 24


def all_cases(data: Path) -> list[Case | CommandCase]:
    """Every case; without the data beside the repository those that are made of it are missing."""
    found: Iterable[Case | CommandCase] = itertools.chain(
        command_cases(),
        conversations.conversation_cases(),
        routes.route_cases(),
        recorded.fidelity_cases(),
        recorded.generated_cases(),
        real.tau_cases(data) if data.is_dir() else (),
        real.client_cases(data) if data.is_dir() else (),
    )
    return list(_named_once(found))


def _named_once(cases: Iterable[Case | CommandCase]) -> Iterator[Case | CommandCase]:
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise ValueError(f"Two cases are called {case.id}.")
        seen.add(case.id)
        yield case


def chosen(
    cases: list[Case | CommandCase], *, only: str | None, requests: int | None
) -> list[Case | CommandCase]:
    """The cases whose id contains or matches `only`; of these, spread, about as many requests."""
    if only:
        pattern = only if "*" in only else f"*{only}*"
        cases = [case for case in cases if fnmatch.fnmatchcase(case.id, pattern)]
    total = sum(case.requests for case in cases)
    if requests is None or total <= requests:
        return cases
    kept, passed, taken = [], 0, 0
    for case in cases:
        passed += case.requests
        if taken * total < passed * requests:
            kept.append(case)
            taken += case.requests
    return kept


def groups_of(cases: Iterable[Case | CommandCase]) -> list[Group]:
    """Cases of one profile and family together, in pieces of a bearable size."""
    pools: dict[tuple[str, str], list[Case | CommandCase]] = {}
    for case in cases:
        family = case.id.split("-")[0].split("/")[0]
        profile = "commands" if isinstance(case, CommandCase) else case.profile
        shared = family if family in {"fidelity", "generated", "tau", "client"} else "other"
        pools.setdefault((profile, shared), []).append(case)
    found = []
    for (profile, family), members in pools.items():
        most = GROUP_RUNS if profile == "commands" else GROUP_REQUESTS
        for number, part in enumerate(_parts(members, most), 1):
            found.append(Group(name=f"{profile}-{family}-{number}", cases=part))
    # The longest first, so that no worker is left with one at the end.
    return sorted(found, key=_cost, reverse=True)


def _cost(group: Group) -> int:
    waits = sum(case.profile == "impatient" for case in group.cases if isinstance(case, Case))
    return group.requests + 10 * group.runs + 50 * waits


def _parts(cases: list[Case | CommandCase], most: int) -> Iterator[list[Case | CommandCase]]:
    part: list[Case | CommandCase] = []
    for case in cases:
        part.append(case)
        if sum(each.requests for each in part) >= most:
            yield part
            part = []
    if part:
        yield part

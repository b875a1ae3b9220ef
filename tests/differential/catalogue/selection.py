"""Lists all cases, selects some for a quick run, and groups those that share a server."""

import fnmatch
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.differential.catalogue import conversations, real_data, recorded_requests, routes
from tests.differential.catalogue.commands import command_cases
from tests.differential.model import Case, CommandCase
from tests.differential.runner import Group

GROUP_REQUESTS = 450
GROUP_RUNS = 24


def list_cases(data: Path) -> list[Case | CommandCase]:
    """Return all cases, without those that need the recorded data if it does not exist."""
    cases: Iterable[Case | CommandCase] = itertools.chain(
        command_cases(),
        conversations.conversation_cases(),
        routes.route_cases(),
        recorded_requests.fidelity_cases(),
        recorded_requests.generated_cases(),
        real_data.tau_cases(data) if data.is_dir() else (),
        real_data.client_cases(data) if data.is_dir() else (),
    )
    return list(_check_ids(cases))


def _check_ids(cases: Iterable[Case | CommandCase]) -> Iterator[Case | CommandCase]:
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise ValueError(f"Two cases have the ID {case.id}.")
        seen.add(case.id)
        yield case


def select_cases(
    cases: list[Case | CommandCase], *, only: str | None, requests: int | None
) -> list[Case | CommandCase]:
    """Return the cases whose ID contains or matches `only`, reduced to about `requests`."""
    if only:
        pattern = only if "*" in only else f"*{only}*"
        cases = [case for case in cases if fnmatch.fnmatchcase(case.id, pattern)]
    total = sum(case.requests for case in cases)
    if requests is None or total <= requests:
        return cases
    selected, seen, taken = [], 0, 0
    for case in cases:
        seen += case.requests
        if taken * total < seen * requests:
            selected.append(case)
            taken += case.requests
    return selected


def make_groups(cases: Iterable[Case | CommandCase]) -> list[Group]:
    """Group cases of the same profile and family, with a maximum size."""
    pools: dict[tuple[str, str], list[Case | CommandCase]] = {}
    for case in cases:
        family = case.id.split("-")[0].split("/")[0]
        profile = "commands" if isinstance(case, CommandCase) else case.profile
        shared = family if family in {"fidelity", "generated", "tau", "client"} else "other"
        pools.setdefault((profile, shared), []).append(case)
    groups = []
    for (profile, family), members in pools.items():
        limit = GROUP_RUNS if profile == "commands" else GROUP_REQUESTS
        for number, part in enumerate(_split(members, limit), 1):
            groups.append(Group(name=f"{profile}-{family}-{number}", cases=part))
    # The longest first, so that no worker runs a long group at the end.
    return sorted(groups, key=_cost, reverse=True)


def _cost(group: Group) -> int:
    waits = sum(case.profile == "short-timeout" for case in group.cases if isinstance(case, Case))
    return group.requests + 10 * group.runs + 50 * waits


def _split(cases: list[Case | CommandCase], limit: int) -> Iterator[list[Case | CommandCase]]:
    part: list[Case | CommandCase] = []
    for case in cases:
        part.append(case)
        if sum(each.requests for each in part) >= limit:
            yield part
            part = []
    if part:
        yield part

"""The process that holds replies against a schema: `python -m cllm.schemas.child`.

A pattern can take for ever to match and references can multiply without end, so the work is done
where it can be stopped. The schema comes as the first line of standard input, every further line
is a reply as a JSON text; each is answered with one line. It ends with its input, opens no file
and asks no address: a reference that leads out of the schema is an error.
"""

import contextlib
import json
import resource
import sys
from typing import Any

from cllm.schemas.findings import Finding, find_in_reply, find_in_schema, summary

MEMORY_BYTES = 2 * 1024 * 1024 * 1024
CPU_SECONDS = 60


def main() -> None:
    """Answer until standard input ends."""
    _limit()
    schema = json.loads(sys.stdin.buffer.readline())
    finding = find_in_schema(schema)
    _answer(finding, summary(schema) if finding is None else None)
    if finding is not None:
        return
    for line in sys.stdin.buffer:
        _answer(find_in_reply(schema, json.loads(line)), None)


def _limit() -> None:
    """Bound what a schema can take, also when nobody is left to end this process."""
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (most, most))


def _answer(finding: Finding | None, about: dict[str, Any] | None) -> None:
    answer = {"finding": None if finding is None else finding._asdict(), "about": about}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

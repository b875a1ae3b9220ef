from collections.abc import Iterator
from tests.differential.model import CommandCase
def command_cases() -> Iterator[CommandCase]:
    yield from ()

"""What comes in as a parameter because it is never the same twice: the time, and new ids."""

from collections.abc import Callable
from datetime import datetime

Clock = Callable[[], datetime]
NewId = Callable[[], str]

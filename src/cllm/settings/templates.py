"""Templates, rendered in a sandbox. Knows Jinja2, and nothing of settings."""

from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import StrictUndefined, TemplateError, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_NUMBER = 10**18
MAX_STEPS = 10_000


class TemplateProblemError(ValueError):
    """A template that cannot be rendered; the text says why."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """A sandbox whose expressions cannot grow: no long products, no powers, no formatting."""

    intercepted_binops = frozenset({"*", "**", "%", "+", "~"})

    def __init__(self, limit: int) -> None:
        super().__init__(undefined=StrictUndefined, autoescape=False)
        self._limit = limit
        self.globals.clear()

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            raise TemplateProblemError("a template cannot raise to a power")
        if operator == "%" and isinstance(left, str):
            raise TemplateProblemError("a template cannot format with %")
        if operator == "*" and not (_is_small(left) and _is_small(right)):
            raise TemplateProblemError("a template can multiply small numbers only")
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # noqa: ARG002
        """No attribute at all but the methods of texts that cannot grow them."""
        safe = ("lower", "upper", "strip", "lstrip", "rstrip", "title", "split", "startswith")
        return isinstance(obj, str) and attr in (*safe, "endswith", "replace")


def _is_small(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < MAX_NUMBER


def render(
    template: str,
    values: Mapping[str, Any],
    *,
    filters: Mapping[str, Callable[..., str]],
    limit: int,
) -> str:
    """The template with these values; TemplateProblemError if that cannot be."""
    sandbox = _Sandbox(limit)
    kept = ("default", "lower", "upper", "trim", "replace", "title", "int", "float", "length")
    sandbox.filters = {name: sandbox.filters[name] for name in kept} | dict(filters)
    try:
        parsed = sandbox.from_string(template)
        pieces: list[str] = []
        size = 0
        for step, piece in enumerate(parsed.generate(**values)):
            size += len(piece)
            if size > limit or step > MAX_STEPS:
                raise TemplateProblemError(f"a template gives more than {limit} characters")
            pieces.append(piece)
    except UndefinedError as error:
        raise TemplateProblemError(
            f"{error.message}; declare it under `variables`, or give it with --var"
        ) from error
    except TemplateError as error:
        raise TemplateProblemError(f"a template cannot be read: {error.message}") from error
    except (ArithmeticError, TypeError, ValueError, LookupError, RecursionError) as error:
        if isinstance(error, TemplateProblemError):
            raise
        raise TemplateProblemError(f"a template cannot be filled in: {error}") from error
    return "".join(pieces)

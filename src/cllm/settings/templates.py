"""Templates in a Jinja2 sandbox, bounded in size and steps."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any

from jinja2 import StrictUndefined, TemplateError, Undefined, UndefinedError, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from cllm.settings.cllmfile import INVALID_CHARACTERS

MAX_NUMBER = 10**18
MAX_STEPS = 10_000
MAX_LOOPS = 3
FILTERS = ("default", "lower", "upper", "trim", "replace", "title", "int", "float", "length")
METHODS = (
    *("endswith", "lower", "lstrip", "rstrip", "split", "startswith", "strip", "title", "upper"),
)
LOOP = ("first", "index", "index0", "last")
STATEMENTS = (nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.Assign)
FORBIDDEN = (nodes.Dict, nodes.Pow)
# Names that no template can contain, for the filters that cllm adds before rendering.
COUNT_STEPS, CONCATENATE, SCALAR = "#counted", "#joined", "#scalar"


class TemplateProblemError(ValueError):
    """The text is the reason."""


class _AttributeRefusedError(SecurityError):
    pass


class _Sandbox(ImmutableSandboxedEnvironment):
    """A sandbox whose expressions cannot grow."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self, limit: int) -> None:
        super().__init__(undefined=StrictUndefined, autoescape=False, finalize=_require_scalar)
        self._limit = limit
        self._steps = 0
        builtin = self.filters
        self.globals.clear()
        self.filters = {name: _for_scalars(builtin[name]) for name in FILTERS if name != "default"}
        self.filters["default"] = builtin["default"]
        self.filters["replace"] = self._replace
        self.filters |= {
            COUNT_STEPS: self._step_counter(),
            CONCATENATE: self._concatenate,
            SCALAR: _require_scalar,
        }

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            raise TemplateProblemError("a template cannot use **")
        if operator == "%" and isinstance(left, str):
            raise TemplateProblemError("a template cannot format with %")
        if operator == "*" and not (_is_small(left) and _is_small(right)):
            raise TemplateProblemError("a template can multiply only small numbers")
        if operator == "+":
            self._check_size(_length(left) + _length(right))
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # noqa: ARG002
        if isinstance(obj, LoopContext):
            return attr in LOOP
        return isinstance(obj, str) and attr in METHODS

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        return self.undefined(
            f"a template must not use the attribute '{attribute}'; use the variable itself",
            name=attribute,
            obj=obj,
            exc=_AttributeRefusedError,
        )

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, str) and attribute == "replace":
            return lambda old, new: self._replace(obj, old, new)
        return super().getattr(obj, attribute)

    def wrap_str_format(self, value: Any) -> None:
        """Formatting is disabled: a width can be a billion."""

    def _check_size(self, size: int) -> None:
        if size > self._limit:
            raise TemplateProblemError(
                f"the result of a template is longer than {self._limit} characters"
            )

    def _replace(self, value: Any, old: Any, new: Any) -> str:
        text, old, new = (str(_require_scalar(part)) for part in (value, old, new))
        self._check_size(len(text) + text.count(old) * len(new))
        return text.replace(old, new)

    def _concatenate(self, values: Iterable[Any]) -> str:
        texts = [str(_require_scalar(value)) for value in values]
        self._check_size(sum(map(len, texts)))
        return "".join(texts)

    def _step_counter(self) -> Callable[[Any, Iterable[Any]], Iterator[Any]]:
        @pass_context
        def count_steps(_context: Any, items: Iterable[Any]) -> Iterator[Any]:
            for item in items:
                self._steps += 1
                if self._steps > MAX_STEPS:
                    raise TemplateProblemError(f"a template needs more than {MAX_STEPS} steps")
                yield item

        return count_steps


class _Bounds(NodeTransformer):
    """Adds limits to a parsed template and rejects everything else."""

    def __init__(self, filters: Iterable[str]) -> None:
        self._filters = sorted(filters)
        self._loops = 0

    def visit_Filter(self, node: nodes.Filter) -> nodes.Filter:  # noqa: N802
        if node.name not in self._filters:
            raise TemplateProblemError(
                f"a template uses the unknown filter '{node.name}'; use one of "
                f"{', '.join(self._filters)}"
            )
        self.generic_visit(node)
        return node

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - name required by Jinja2
        self._loops += 1
        if node.recursive or self._loops > MAX_LOOPS:
            raise TemplateProblemError(
                f"a template can have at most {MAX_LOOPS} loops, none recursive"
            )
        self.generic_visit(node)
        node.iter = _apply_filter(node.iter, COUNT_STEPS)
        return node

    def visit_Assign(self, node: nodes.Assign) -> nodes.Assign:  # noqa: N802
        if not isinstance(node.target, nodes.Name):
            raise TemplateProblemError("a template can set only plain names")
        self.generic_visit(node)
        node.node = _apply_filter(node.node, SCALAR)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _apply_filter(nodes.List(node.nodes, lineno=node.lineno), CONCATENATE)

    def generic_visit(self, node: nodes.Node, *args: Any, **options: Any) -> nodes.Node:
        statement = isinstance(node, nodes.Stmt) and not isinstance(node, STATEMENTS)
        if statement or isinstance(node, FORBIDDEN):
            kind = type(node).__name__.lower()
            raise TemplateProblemError(
                f"`{kind}` is not allowed in a template; use variables, `if`, `for` and `set` only"
            )
        return super().generic_visit(node, *args, **options)


def _apply_filter(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _require_scalar(value: Any) -> Any:
    """Reject lists, which could contain themselves many times."""
    if isinstance(value, str | int | float | Undefined) or value is None:
        return value
    raise TemplateProblemError("a template can output only texts and numbers")


def _for_scalars(filter_: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(filter_)
    def call_with_scalars(*args: Any, **options: Any) -> Any:
        for value in args:
            if isinstance(value, list | tuple | dict):
                _require_scalar(value)
        return filter_(*args, **options)

    return call_with_scalars


def _is_small(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < MAX_NUMBER


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple) else 0


def render(
    template: str,
    values: Mapping[str, Any],
    *,
    filters: Mapping[str, Callable[..., str]],
    limit: int,
) -> str:
    sandbox = _Sandbox(limit)
    sandbox.filters |= {name: _for_scalars(filter_) for name, filter_ in filters.items()}
    try:
        bounds = _Bounds((*FILTERS, *filters))
        parsed = sandbox.from_string(bounds.visit(sandbox.parse(template)))
        return _join_limited(parsed.generate(dict(values)), limit)
    except UndefinedError as error:
        raise TemplateProblemError(
            f"{error.message}; declare it under `variables`, or set it with --var"
        ) from error
    except _AttributeRefusedError as error:
        raise TemplateProblemError(error.message) from error
    except TemplateError as error:
        raise TemplateProblemError(f"a template is invalid: {error.message}") from error
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise TemplateProblemError("a template is too deep or too large") from error
    except (ArithmeticError, AttributeError, TypeError, ValueError, LookupError) as error:
        if isinstance(error, TemplateProblemError):
            raise
        raise TemplateProblemError(f"a template cannot be rendered: {error}") from error


def _join_limited(pieces: Iterable[str], limit: int) -> str:
    parts: list[str] = []
    size = 0
    for step, piece in enumerate(pieces):
        size += len(piece)
        if size > limit or step > MAX_STEPS:
            raise TemplateProblemError(
                f"the result of a template is longer than {limit} characters"
            )
        parts.append(piece)
    text = "".join(parts)
    if INVALID_CHARACTERS.search(text):
        raise TemplateProblemError("the result of a template contains invalid characters")
    return text

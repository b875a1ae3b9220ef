"""Describes the public Python names: signatures of functions, fields and methods of classes.

Types are written without their modules, the same on every version of Python. Classes that a public
name uses and that are in no public module are in a section at the end.
"""

import ast
import collections.abc
import importlib
import inspect
import pkgutil
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
from tests.surface_generator.text import document, section

MODULES = (
    "cllm",
    "cllm.core.message",
    "cllm.core.reply",
    "cllm.core.errors",
    "cllm.core.ports",
    "cllm.providers.third_party",
)
PACKAGES = ("cllm.testing",)
PACKAGE = "cllm"
# Python 3.14 adds `__annotate_func__` to every class.
SPECIAL = (
    *("__init__", "__new__", "__repr__", "__post_init__", "__subclasshook__"),
    "__annotate_func__",
)


def surface() -> dict[str, str]:
    modules = [*MODULES, *(name for package in PACKAGES for name in _submodules(package))]
    describer = Describer()
    sections = [
        section(name, list(describer.module(importlib.import_module(name)))) for name in modules
    ]
    reached = section("types that these use", list(describer.reached()))
    about = (
        "Public Python names. A module without __all__ has the names that it defines itself. The "
        "tests of contract suites are left out."
    )
    return {"python.txt": document(about, *sections, reached)}


def _submodules(package: str) -> list[str]:
    modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return [package, *sorted(f"{package}.{module.name}" for module in modules)]


def public_names(module: types.ModuleType) -> list[str]:
    """Return `__all__`, or the names that the module defines."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return sorted(name for name in set(_list_definitions(module)) if not name.startswith("_"))


def _list_definitions(module: types.ModuleType) -> Iterator[str]:
    for node in ast.parse(inspect.getsource(module)).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))


class Describer:
    """Describes names, and collects the classes of cllm that they use."""

    def __init__(self) -> None:
        self._names: dict[type, str] = {}
        self._described: set[type] = set()
        self._reached: dict[type, None] = {}

    def module(self, module: types.ModuleType) -> Iterator[str]:
        names = public_names(module)
        for name in names:
            value = getattr(module, name)
            if inspect.isclass(value):
                self._names.setdefault(value, name)
        for name in names:
            yield from self._value(name, getattr(module, name))

    def reached(self) -> Iterator[str]:
        """Yield the used classes that are not described yet, and the classes that these use."""
        lines: dict[str, list[str]] = {}
        while pending := [kind for kind in self._reached if kind not in self._described]:
            for kind in pending:
                lines.setdefault(kind.__name__, []).extend(self._class(kind.__name__, kind))
        for name in sorted(lines):
            yield from lines[name]

    def _value(self, name: str, value: Any) -> Iterator[str]:
        if inspect.isclass(value):
            if value in self._described:
                yield f"  class {name}: as {self._names[value]} above"
                return
            yield from self._class(name, value)
        elif inspect.isroutine(value):
            yield f"  {self._function(name, value)}"
        elif name == "__version__":
            yield f"  {name}: str"
        elif isinstance(value, type(typing.Any)) or typing.get_origin(value) is not None:
            yield f"  {name} = {self.type(value)}"
        else:
            yield f"  {name} = {_value(value)}"

    def _class(self, name: str, kind: type) -> Iterator[str]:
        self._described.add(kind)
        bases = [self.type(base) for base in kind.__bases__ if base not in (object, msgspec.Struct)]
        yield f"  class {name}({', '.join(bases)})" if bases else f"  class {name}"
        yield from (f"    {line}" for line in self._fields(kind))
        if not issubclass(kind, msgspec.Struct) and _is_ours(_init_of(kind)):
            yield f"    {self._signature(kind)}"
            yield from (f"    .{attribute}" for attribute in sorted(set(_attributes(kind))))
        yield from (f"    {line}" for line in sorted(self._members(kind)))

    def _fields(self, kind: type) -> Iterator[str]:
        if issubclass(kind, msgspec.Struct):
            hints = _hints(kind)
            defaults = _defaults(kind)
            for name in kind.__struct_fields__:
                default = f" = {defaults[name]}" if name in defaults else ""
                yield f"{name}: {self.type(hints.get(name))}{default}"
            return
        for name, hint in sorted(_hints(kind).items()):
            if not name.startswith("_"):
                yield f"{name}: {self.type(hint)}"

    def _members(self, kind: type) -> Iterator[str]:
        for name in dir(kind):
            is_special = name.startswith("__") and name.endswith("__")
            hidden = name.startswith(("_", "test_")) and not is_special
            if name in SPECIAL or hidden:
                continue
            member = inspect.getattr_static(kind, name)
            function = getattr(member, "__func__", member)
            match member:
                case property(fget=getter) if _is_ours(getter):
                    yield f"{name}: {self._return_type(getter)} (property)"
                case _ if hasattr(member, "func") and _is_ours(member.func):
                    yield f"{name}: {self._return_type(member.func)} (property)"
                case _ if inspect.isfunction(function) and _is_ours(function):
                    word = {classmethod: "class ", staticmethod: "static "}.get(type(member), "")
                    yield f"{word}{self._function(name, function)}"

    def _function(self, name: str, function: Any) -> str:
        if not _is_ours(function):
            return f"{name}(...)"
        prefix = "async " if inspect.iscoroutinefunction(function) else ""
        return f"{prefix}{name}{self._signature(function)}"

    def _return_type(self, getter: Any) -> str:
        return self.type(_hints(getter).get("return"))

    def _signature(self, function: Any) -> str:
        signature = inspect.signature(function)
        hints = _hints(_init_of(function) if inspect.isclass(function) else function)
        parameters = []
        for parameter in signature.parameters.values():
            if parameter.name in ("self", "cls"):
                continue
            hint = hints.get(parameter.name, parameter.annotation)
            annotation = (
                inspect.Parameter.empty
                if hint is inspect.Parameter.empty
                else _Repr(self.type(hint))
            )
            default = parameter.default
            if default is not inspect.Parameter.empty:
                default = _Repr(_value(default))
            parameters.append(parameter.replace(annotation=annotation, default=default))
        return_type = "" if inspect.isclass(function) else f" -> {self.type(hints.get('return'))}"
        return f"{inspect.Signature(parameters)}{return_type}"

    def type(self, hint: Any) -> str:
        """Return the name of a type."""
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            return " | ".join(map(self.type, arguments))
        if origin is typing.Literal:
            return f"Literal[{', '.join(map(repr, arguments))}]"
        if origin is typing.Annotated:
            return self.type(arguments[0])
        if origin is not None:
            return f"{self.type(origin)}[{', '.join(map(self.type, arguments))}]"
        return self._plain_type(hint)

    def _plain_type(self, hint: Any) -> str:
        match hint:
            case None | types.NoneType:
                return "None"
            case str():
                return hint.strip("\"'")
            case list():
                return f"[{', '.join(map(self.type, hint))}]"
            case typing.ForwardRef():
                return hint.__forward_arg__
            case type():
                if _is_ours(hint):
                    self._reached.setdefault(hint)
                return self._names.get(hint, hint.__name__)
        name = "..." if hint is Ellipsis else str(hint).removeprefix("typing.")
        return getattr(hint, "__name__", None) or name


class _Repr:
    """An object with a fixed `repr`, for a signature."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).split(".")[0] == PACKAGE


def _init_of(kind: Any) -> Any:
    return inspect.getattr_static(kind, "__init__")


def _hints(value: Any) -> dict[str, Any]:
    """Return the annotations, evaluated if possible."""
    try:
        return typing.get_type_hints(value)
    except (NameError, TypeError):
        return dict(getattr(value, "__annotations__", {}))


def _defaults(kind: type[msgspec.Struct]) -> dict[str, str]:
    defaults = kind.__struct_defaults__
    names = kind.__struct_fields__[len(kind.__struct_fields__) - len(defaults) :]
    return {
        name: _value(default)
        for name, default in zip(names, defaults, strict=True)
        if default is not msgspec.NODEFAULT
    }


def _attributes(kind: type) -> Iterator[str]:
    """Yield the public attributes that `__init__` sets."""
    for one in kind.__mro__:
        init = one.__dict__.get("__init__")
        if not _is_ours(one) or init is None or not inspect.isfunction(init):
            continue
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(init)))):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    if not name.startswith("_"):
                        yield name


def _value(value: Any) -> str:
    """Format a constant or a default, without addresses of objects."""
    value = getattr(value, "factory", value)
    match value:
        case str() | bytes() | bool() | int() | float() | None:
            return repr(value)
        case tuple() | list() | frozenset() | set():
            items = ", ".join(
                map(_value, sorted(value, key=str) if isinstance(value, set | frozenset) else value)
            )
            return f"{type(value).__name__}({items})"
        case collections.abc.Mapping():
            items = ", ".join(f"{_value(key)}: {_value(one)}" for key, one in value.items())
            return f"{{{items}}}"
        case _ if inspect.isclass(value) or inspect.isroutine(value):
            return str(value.__name__)
        case _ if value is msgspec.UNSET:
            return "UNSET"
    return f"{type(value).__name__}()"

"""`--schema`: loads a JSON schema, requests an answer by it, and checks the answer."""

import msgspec

from cllm.cli import output
from cllm.cli.inputs import current_environment
from cllm.cli.trust import load_trusted_settings
from cllm.core.errors import UsageError
from cllm.engine.request import TurnRequest
from cllm.provider_factory import find_model_cache
from cllm.schemas.checker import SchemaChecker, SchemaOutline, response_format
from cllm.schemas.loader import SchemaCache, SchemaReader
from cllm.schemas.source import SchemaSource, schema_rules
from cllm.settings.load import CommandLine, Environment

FOLDER = "schemas"
MAX_NAMES = 10


def open_checker(source: SchemaSource, env: Environment) -> SchemaChecker:
    """The caller closes the checker."""
    reader = SchemaReader(rules=schema_rules(env.environment), cache=_cache(env))
    schema = reader.read(source)
    for notice in schema.notices:
        output.warn(notice)
    return SchemaChecker(schema, env.environment)


def require_schema(checker: SchemaChecker, request: TurnRequest) -> TurnRequest:
    """The reply must fit the schema; an interrupted one is discarded."""
    form = response_format(checker.schema.content)
    parameters = {**request.target.parameters, "response_format": form}
    target = msgspec.structs.replace(request.target, parameters=parameters)
    request = msgspec.structs.replace(request, target=target)
    return request.with_policy(accept=checker.accept, on_interrupt="discard")


def validate_schema(line: CommandLine) -> None:
    settings = load_trusted_settings(current_environment(), line)
    if settings.schema is None:
        raise UsageError("There is no schema to check; give --json-schema or --json-schema-file.")
    with open_checker(settings.schema, settings.env) as checker:
        output.print_line("Schema is valid")
        output.print_line(f"Source: {checker.schema.source}")
        output.print_line(f"Draft: {checker.about.draft}")
        output.print_line(f"Asks for: {_outline_text(checker.about)}")


def clear_schema_cache() -> None:
    count = _cache(current_environment()).clear()
    output.print_line(f"Deleted {count} cached schema{'' if count == 1 else 's'}.")


def _cache(env: Environment) -> SchemaCache:
    return SchemaCache(find_model_cache(env).root / FOLDER)


def _outline_text(about: SchemaOutline) -> str:
    kinds = [about.type] if isinstance(about.type, str) else about.type or []
    asked = " or ".join(kinds) or "any JSON"
    if not about.properties:
        return asked
    names = [
        f"{name} (required)" if name in about.required else name
        for name in about.properties[:MAX_NAMES]
    ]
    more = len(about.properties) - len(names)
    return f"{asked} with {', '.join(names)}{f' and {more} more' if more else ''}"

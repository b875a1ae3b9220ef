"""`--json-schema`: loads a JSON schema, requires it in a request, and checks the reply."""

import msgspec

from cllm.app import DEFAULT_MODEL
from cllm.cli import output
from cllm.cli.inputs import OptionError, current_environment
from cllm.cli.trust import load_trusted_settings
from cllm.core.errors import ReplySchemaError
from cllm.core.reply import ReplyFinished
from cllm.engine.request import TurnRequest
from cllm.provider_factory import find_model_cache
from cllm.schemas.checker import SchemaChecker, SchemaOutline, response_format
from cllm.schemas.loader import SchemaCache, SchemaReader
from cllm.schemas.source import SchemaSource, schema_rules
from cllm.settings.load import CommandLine, Environment

FOLDER = "schemas"
MAX_NAMES = 10
TOO_SMALL = (
    f"{DEFAULT_MODEL} is too small for this schema; choose a larger model, for example: "
    "-m openai/gpt-4o"
)


def open_checker(source: SchemaSource, env: Environment) -> SchemaChecker:
    """Load a schema; the caller closes the checker."""
    reader = SchemaReader(rules=schema_rules(env.environment), cache=_cache(env))
    schema = reader.read(source)
    for notice in schema.notices:
        output.warn(notice)
    return SchemaChecker(schema, env.environment)


def require_schema(checker: SchemaChecker, request: TurnRequest) -> TurnRequest:
    """Require a reply that matches the schema; discard an interrupted one."""
    format_ = response_format(checker.schema.content)
    parameters = {**request.target.parameters, "response_format": format_}
    target = msgspec.structs.replace(request.target, parameters=parameters)
    request = msgspec.structs.replace(request, target=target)

    def accept(reply: ReplyFinished) -> None:
        try:
            checker.accept(reply)
        except ReplySchemaError as error:
            if reply.model != DEFAULT_MODEL.partition("/")[2]:
                raise
            # The same prompt gives the same reply again.
            raise ReplySchemaError(error.problem, place=error.place, advice=TOO_SMALL) from error

    return request.with_storage(accept=accept, on_interrupt="discard")


def validate_schema(line: CommandLine) -> None:
    settings = load_trusted_settings(current_environment(), line)
    if settings.schema is None:
        raise OptionError("No schema to check; use --json-schema or --json-schema-file.")
    with open_checker(settings.schema, settings.env) as checker:
        output.print_line("Schema is valid")
        output.print_line(f"Source: {checker.schema.source}")
        output.print_line(f"Draft: {checker.about.draft}")
        output.print_line(f"Expects: {_outline_text(checker.about)}")


def clear_schema_cache() -> None:
    count = _cache(current_environment()).clear()
    output.print_line(f"Deleted {count} cached schema{'' if count == 1 else 's'}.")


def _cache(env: Environment) -> SchemaCache:
    return SchemaCache(find_model_cache(env).root / FOLDER)


def _outline_text(outline: SchemaOutline) -> str:
    kinds = [outline.type] if isinstance(outline.type, str) else outline.type or []
    kind = " or ".join(kinds) or "any JSON"
    if not outline.properties:
        return kind
    names = [
        f"{name} (required)" if name in outline.required else name
        for name in outline.properties[:MAX_NAMES]
    ]
    more = len(outline.properties) - len(names)
    return f"{kind} with {', '.join(names)}{f' and {more} more' if more else ''}"

"""What a Converse request asks for beside its messages, read into no protocol's words.

Reads and decides nothing: a field that has no name here stays in `extra` under its own.
"""

from typing import Any

import msgspec

from cllm.core.message import CacheMark
from cllm.core.options import AnyTool, ForeignTool, Options, Reasoning, Tool, ToolChoice
from cllm.wire.bedrock_blocks import Block
from cllm.wire.malformed import MalformedError

MATCHED_STOP = "/stop_sequence"
"""Where Claude says at which stop sequence it stopped; our encoder asks for it by itself."""


class _Inference(msgspec.Struct, rename="camel"):
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop_sequences: tuple[str, ...] | None = None


class _InputSchema(msgspec.Struct):
    json: dict[str, Any]


class _ToolSpec(msgspec.Struct, rename="camel"):
    name: str
    input_schema: _InputSchema
    description: str | None = None
    strict: bool | None = None


class _Tool(msgspec.Struct, rename="camel"):
    tool_spec: _ToolSpec | None = None
    system_tool: dict[str, Any] | None = None
    cache_point: CacheMark | None = None


class _ChosenTool(msgspec.Struct):
    name: str


class _Choice(msgspec.Struct):
    auto: dict[str, Any] | None = None
    any: dict[str, Any] | None = None
    tool: _ChosenTool | None = None


class _ToolConfig(msgspec.Struct, rename="camel"):
    tools: list[_Tool] = msgspec.field(default_factory=list)
    tool_choice: _Choice | None = None


class _Request(msgspec.Struct, rename="camel"):
    inference_config: _Inference = msgspec.field(default_factory=_Inference)
    tool_config: _ToolConfig | None = None
    additional_model_request_fields: dict[str, Any] = msgspec.field(default_factory=dict)


def decode_options(parameters: dict[str, Any]) -> Options:
    """The fields of a Converse request beside its messages, in no protocol's words."""
    try:
        request = msgspec.convert(parameters, _Request)
    except (msgspec.ValidationError, RecursionError) as error:
        raise MalformedError(f"not a request of Converse's: {error}") from error
    said = request.inference_config
    config = request.tool_config
    own = dict(request.additional_model_request_fields)
    return Options(
        max_tokens=said.max_tokens,
        temperature=said.temperature,
        top_p=said.top_p,
        top_k=own.pop("top_k") if isinstance(own.get("top_k"), int) else None,
        stop=said.stop_sequences,
        tools=None if config is None else _decode_tools(config.tools),
        tool_choice=None if config is None else _decode_choice(config.tool_choice),
        reasoning=_decode_reasoning(own),
        extra=_decode_extra(parameters, own),
    )


def _decode_tools(tools: list[_Tool]) -> tuple[AnyTool, ...]:
    decoded: list[AnyTool] = []
    for tool in tools:
        last = decoded[-1] if decoded else None
        if tool.tool_spec is not None:
            decoded.append(_decode_tool(tool.tool_spec))
        elif tool.system_tool is not None:
            name = str(tool.system_tool.get("name", ""))
            raw = {"systemTool": tool.system_tool}
            decoded.append(ForeignTool(dialect="bedrock", name=name, raw=raw))
        elif tool.cache_point is not None and isinstance(last, Tool):
            decoded[-1] = msgspec.structs.replace(last, cache=tool.cache_point)
    return tuple(decoded)


def _decode_tool(spec: _ToolSpec) -> Tool:
    return Tool(
        name=spec.name,
        description=spec.description,
        schema=spec.input_schema.json,
        strict=spec.strict,
    )


def _decode_choice(choice: _Choice | None) -> ToolChoice | None:
    if choice is None:
        return None
    if choice.tool is not None:
        return ToolChoice(kind="tool", name=choice.tool.name)
    return ToolChoice(kind="auto" if choice.any is None else "any")


def _decode_reasoning(own: Block) -> Reasoning | None:
    thinking = own.get("thinking")
    if not isinstance(thinking, dict):
        return None
    budget = thinking.get("budget_tokens")
    return Reasoning(
        enabled=thinking.get("type") != "disabled",
        budget_tokens=budget if isinstance(budget, int) else None,
        dialect="bedrock",
        raw=own.pop("thinking"),
    )


def _decode_extra(parameters: Block, own: Block) -> Block:
    named = ("inferenceConfig", "toolConfig", "additionalModelRequestFields")
    extra = {key: value for key, value in parameters.items() if key not in named}
    if "anthropic_beta" in own:
        extra["betas"] = own.pop("anthropic_beta")
    if extra.get("additionalModelResponseFieldPaths") == [MATCHED_STOP]:
        del extra["additionalModelResponseFieldPaths"]
    return extra | ({"additionalModelRequestFields": own} if own else {})

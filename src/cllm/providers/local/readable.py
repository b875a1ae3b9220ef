"""What the local model can read of a prompt: text, and tools if its template shows them.

What it would not be shown is left out and told, or refused where the question is about it. It does
not ask the model anything.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from cllm.core.errors import StrictError, UnsendableError
from cllm.core.notice import Notice
from cllm.core.prompt import Prompt
from cllm.wire.media import asked_about

TOOLS = "tools"
ABOUT_TOOLS = frozenset(
    (TOOLS, "tool_choice", "parallel_tool_calls", "functions", "function_call", "toolConfig")
)
TOOLS_LEFT_OUT = Notice(
    code="tools_left_out",
    path=TOOLS,
    message="The local model is too small to use tools; it is not shown any and calls none.",
)


def readable(
    prompt: Prompt, *, provider: str, sees_tools: bool
) -> tuple[Prompt, tuple[Notice, ...]]:
    """The prompt as the model can read it, and what it is not shown; an error if that is all."""
    _check_is_text(prompt, provider)
    if sees_tools or ABOUT_TOOLS.isdisjoint(prompt.parameters):
        return prompt, ()
    kept = {name: said for name, said in prompt.parameters.items() if name not in ABOUT_TOOLS}
    if not _offers_tools(prompt.parameters):
        return replace(prompt, parameters=kept), ()
    if prompt.strict:
        raise StrictError(provider=provider, notices=(TOOLS_LEFT_OUT,))
    return replace(prompt, parameters=kept), (TOOLS_LEFT_OUT,)


def _offers_tools(parameters: Mapping[str, Any]) -> bool:
    """Whether there is a tool, in any protocol's words; a choice among none is nothing."""
    of_bedrock = parameters.get("toolConfig")
    offered = of_bedrock.get(TOOLS) if isinstance(of_bedrock, dict) else None
    return bool(offered or parameters.get(TOOLS) or parameters.get("functions"))


def _check_is_text(prompt: Prompt, provider: str) -> None:
    """The child has a model for words, and none that sees what it is asked about."""
    found = asked_about(prompt)
    if found is not None:
        path, what = found
        raise UnsendableError(
            f"The local model reads text only, and it was given {what}; ask another model, as in: "
            "-m openai/gpt-4o",
            provider=provider,
            path=path,
        )

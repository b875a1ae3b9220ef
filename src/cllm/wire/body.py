"""A prompt as the body of a request: as it is where nothing has to change, else translated.

One function for each protocol. What a target cannot say comes back as notices. Decides nothing
about what is sent; what a history has to be like is the business of the `mend` that is passed
through to the codec.
"""

from operator import is_
from typing import Any

import msgspec

from cllm.core.message import Dialect, Message
from cllm.core.notice import Notice
from cllm.core.prompt import Prompt
from cllm.wire.notes import Notes
from cllm.wire.openai.functions import is_legacy, with_ids_of_calls
from cllm.wire.openai.models import knows_developer
from cllm.wire.openai.notices import SENTENCES
from cllm.wire.openai.options import check_parameters, fit_parameters
from cllm.wire.openai.passthrough import (
    check_contents,
    is_ordinary,
    splice_request,
    without_developer,
)
from cllm.wire.reasoning import AS_SENT, ReasoningRule, fit_reasoning
from cllm.wire.spoken import Encoded, Mend, unmended
from cllm.wire.translate import Mark, call_ids, request_codec, translate, unmarked


def encode_openai(
    prompt: Prompt,
    *,
    mend: Mend = unmended,
    takes_texts_as_they_are: bool = True,
    reasoning: ReasoningRule = AS_SENT,
) -> Encoded:
    """A chat completion's body, spliced from the messages' own bytes where all are OpenAI's.

    With `takes_texts_as_they_are` a history whose calls are answered in order is not looked into:
    all but the strictest servers take it, whatever else is said in it. `reasoning` says what the
    server takes of past reasoning.
    """
    if prompt.strict:
        reasoning = msgspec.structs.replace(reasoning, blank=None)
    check_contents(prompt.messages)
    if prompt.dialect == "openai":
        check_parameters(prompt.parameters)
    prompt = _for_model(_with_ids(prompt))
    own = prompt.dialect == "openai" and {m.dialect for m in prompt.all_messages} <= {"openai"}
    plain = takes_texts_as_they_are and own and is_ordinary(prompt.messages)
    # What the client asks for is judged by its own messages, not by those that are sent.
    parameters, unfit = _fitted(prompt)
    prompt, unsent = _with_fitted_reasoning(prompt, reasoning)
    notices = (*unsent, *unfit)
    if plain or (own and is_legacy(prompt.messages)):
        body = _original_for_openai(prompt) or splice_request(prompt, parameters)
        return Encoded(body=body, notices=notices)
    said = translate(prompt, "openai")
    encoded = request_codec("openai").encode_request(
        model=prompt.model,
        system=said.system,
        system_raw=said.system_raw,
        messages=said.messages,
        parameters=parameters if prompt.dialect == "openai" else said.parameters,
        stream=prompt.stream,
        mend=mend,
        own_names=prompt.dialect == "openai",
        reasoning=reasoning,
    )
    return _untouched(with_notices(encoded, (*said.notices, *notices)), prompt, "openai")


def _with_fitted_reasoning(
    prompt: Prompt, rule: ReasoningRule
) -> tuple[Prompt, tuple[Notice, ...]]:
    """The prompt with the past reasoning that the server takes, in messages of OpenAI's own."""
    notes = Notes(SENTENCES)
    messages = list(prompt.messages)
    for place, message in enumerate(messages):
        if message.role != "assistant" or message.dialect != "openai":
            continue
        fitted = fit_reasoning(message.raw, rule, is_foreign=place in prompt.foreign)
        if fitted.lost is not None:
            notes.tell("reasoning", f"messages[{place}].{fitted.lost}")
        if fitted.filled:
            notes.tell("blank", f"messages[{place}]")
        if fitted.raw is not message.raw:
            messages[place] = Message(role=message.role, raw=fitted.raw)
    if all(map(is_, messages, prompt.messages)):
        return prompt, ()
    return msgspec.structs.replace(prompt, messages=tuple(messages)), notes.notices()


def _with_ids(prompt: Prompt) -> Prompt:
    """The prompt with answers of functions under the ids of their calls, where these have any."""
    messages = tuple(with_ids_of_calls(prompt.messages, call_ids))
    same = all(map(is_, messages, prompt.messages))
    return prompt if same else msgspec.structs.replace(prompt, messages=messages)


def _for_model(prompt: Prompt) -> Prompt:
    """The prompt in roles that its model knows."""
    if knows_developer(prompt.model):
        return prompt
    messages = tuple(map(without_developer, prompt.messages))
    system = prompt.system and without_developer(prompt.system)
    same = system is prompt.system and all(map(is_, messages, prompt.messages))
    return prompt if same else msgspec.structs.replace(prompt, messages=messages, system=system)


def _fitted(prompt: Prompt) -> tuple[dict[str, Any], tuple[Notice, ...]]:
    """Parameters in OpenAI's words as the model takes them; a client's own request keeps its own.

    What is said of a stream is left out where there is none.
    """
    parameters = prompt.parameters
    if prompt.dialect != "openai":
        return parameters, ()
    if prompt.original is not None and prompt.original.says(prompt):
        return parameters, ()
    if not prompt.stream and "stream_options" in parameters:
        parameters = {k: v for k, v in parameters.items() if k != "stream_options"}
    return fit_parameters(parameters, model=prompt.model)


def _original_for_openai(prompt: Prompt) -> bytes | None:
    """The client's own body, if the one that is spliced would say the same."""
    original = prompt.original
    if original is None or original.dialect != "openai" or not original.says(prompt):
        return None
    options = original.parameters.get("stream_options")
    if original.stream and not (isinstance(options, dict) and "include_usage" in options):
        return None
    return original.body


def encode_responses(prompt: Prompt, *, mend: Mend = unmended) -> Encoded:
    """A body for OpenAI's Responses API, which is sent the whole history and keeps none."""
    said = translate(prompt, "responses")
    encoded = request_codec("responses").encode_request(
        model=prompt.model,
        system=said.system,
        messages=said.messages,
        parameters=said.parameters,
        stream=prompt.stream,
        mend=mend,
        own_names=prompt.dialect == "responses",
    )
    return _untouched(with_notices(encoded, said.notices), prompt, "responses")


def encode_anthropic(
    prompt: Prompt,
    *,
    default_max_tokens: int,
    mend: Mend = unmended,
    mark: Mark = unmarked,
) -> Encoded:
    """A body for the Messages API, which wants a limit on the answer."""
    said = mark(translate(prompt, "anthropic"))
    given = said.parameters
    if "max_tokens" in given and given["max_tokens"] is None:
        given = {name: value for name, value in given.items() if name != "max_tokens"}
    encoded = request_codec("anthropic").encode_request(
        model=prompt.model,
        system=said.system,
        system_raw=said.system_raw,
        messages=said.messages,
        parameters={"max_tokens": default_max_tokens, **given},
        stream=prompt.stream,
        mend=mend,
    )
    if "max_tokens" not in given or said.marked:
        encoded = msgspec.structs.replace(encoded, own=False)
    return _untouched(with_notices(encoded, said.notices), prompt, "anthropic")


def encode_bedrock(prompt: Prompt, *, mend: Mend = unmended, mark: Mark = unmarked) -> Encoded:
    """A body for Converse; the model is named in the address."""
    said = mark(translate(prompt, "bedrock"))
    encoded = request_codec("bedrock").encode_request(
        model=prompt.model,
        system=said.system,
        messages=said.messages,
        parameters=said.parameters,
        mend=mend,
    )
    return with_notices(encoded, said.notices)


def with_notices(encoded: Encoded, more: tuple[Notice, ...]) -> Encoded:
    """The same request, with what was noticed before it was encoded."""
    return msgspec.structs.replace(encoded, notices=(*more, *encoded.notices)) if more else encoded


def _untouched(encoded: Encoded, prompt: Prompt, target: Dialect) -> Encoded:
    """The client's own body, if it is in the target's words and says all that is to be said."""
    original = prompt.original
    if original is None or original.dialect != target or not original.says(prompt):
        return encoded
    if encoded.notices or encoded.names or encoded.ids:
        return encoded
    if not encoded.own and _meaning(original.body) != _meaning(encoded.body):
        return encoded
    return msgspec.structs.replace(encoded, body=original.body)


def _meaning(body: bytes) -> dict[str, Any]:
    """What a body says; not to stream, and no system prompt, are said by silence too."""
    fields: dict[str, Any] = msgspec.json.decode(body)
    return {k: v for k, v in fields.items() if v or k not in ("stream", "system")}

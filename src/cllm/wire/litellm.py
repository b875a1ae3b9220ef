"""LiteLLM's format: OpenAI's, with additions for thinking and caches.

Fields that could redirect LiteLLM are dropped. Signed thinking is stored as `reasoning_details`.
"""

from typing import Any

import msgspec

from cllm.core.message import Message, RedactedThinking, Unknown
from cllm.core.notice import Notice
from cllm.core.prompt import Prompt
from cllm.core.reply import PartAdded, ReplyEvent, ReplyFinished, ThinkingDelta, Usage
from cllm.wire.convert import encode_openai
from cllm.wire.errors import FieldError, MalformedError
from cllm.wire.messages import NoticeMerger, Repair, no_repair
from cllm.wire.openai import response_decoder as openai_decoder
from cllm.wire.openai.options import CONVERTED_FIELDS, OWN_FIELDS, SENTENCES
from cllm.wire.reasoning import DETAILS, SIGNED_BLOCKS, TAKES_REASONING_CONTENT, ReasoningRule

SENT_THINKING = "thinking_blocks"
# Fields that LiteLLM adds to messages and calls.
ADDED_FIELDS = ("provider_specific_fields", SENT_THINKING)
ADDED_CALL_FIELDS = ("index", "provider_specific_fields")
# An allow list: other fields could make LiteLLM call another server.
REQUEST_FIELDS = (OWN_FIELDS | CONVERTED_FIELDS | {"messages", "model", "stream", "thinking"}) - {
    "metadata",
    "moderation",
    "prompt_cache_options",
    "prompt_cache_retention",
}


class LitellmRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request as LiteLLM's keyword arguments."""

    fields: dict[str, Any]
    notices: tuple[Notice, ...] = ()


def encode_request(
    prompt: Prompt,
    *,
    repair: Repair = no_repair,
    can_skip_repair: bool = True,
    reasoning: ReasoningRule = TAKES_REASONING_CONTENT,
) -> LitellmRequest:
    """Encode a prompt; raises MalformedError for a model name with a URL.

    `reasoning` defines which past reasoning the service behind LiteLLM accepts, in addition to
    signed thinking.
    """
    if "://" in prompt.model:
        raise FieldError("model", "the name of a model contains no URL")
    rule = msgspec.structs.replace(
        reasoning, fields=reasoning.fields | {DETAILS}, signed_blocks=True
    )
    encoded = encode_openai(prompt, repair=repair, can_skip_repair=can_skip_repair, reasoning=rule)
    body: dict[str, Any] = msgspec.json.decode(encoded.body)
    unknown = sorted(body.keys() - REQUEST_FIELDS)
    fields = {name: value for name, value in body.items() if name in REQUEST_FIELDS}
    notices = (
        *encoded.notices,
        *_restore_thinking(fields["messages"]),
        *map(_omitted_parameter, unknown),
    )
    return LitellmRequest(fields=fields, notices=notices)


def _omitted_parameter(name: str) -> Notice:
    return Notice(
        code="parameter_left_out",
        path=name,
        message=f"`{name}` is not sent: it is not a field of the Chat Completions API. "
        "Set parameters of LiteLLM itself under providers.litellm.",
    )


def _restore_thinking(messages: list[dict[str, Any]]) -> tuple[Notice, ...]:
    notes = NoticeMerger(SENTENCES)
    for index, fields in enumerate(messages):
        details = fields.pop(DETAILS, None)
        blocks = _blocks(details)
        if blocks:
            fields[SENT_THINKING] = blocks
        elif details:
            notes.report("reasoning", f"messages[{index}].{DETAILS}")
    return notes.notices()


def _blocks(value: Any) -> list[dict[str, Any]]:
    items = value if isinstance(value, list) else []
    return [b for b in items if isinstance(b, dict) and b.get("type") in SIGNED_BLOCKS]


class _Details(msgspec.Struct):
    cache_creation_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Delta(msgspec.Struct):
    thinking_blocks: list[dict[str, Any]] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None


_chunk_decoder = msgspec.json.Decoder(_Chunk)


def decode_answer(body: bytes) -> list[ReplyEvent]:
    *deltas, finished = _drop_added_fields(openai_decoder.decode_answer(body))
    if not isinstance(finished, ReplyFinished):
        raise MalformedError("a chat completion without an end")
    fields = finished.message.json()
    blocks = [
        {name: value for name, value in block.items() if name != "index" and value is not None}
        for block in _blocks(fields.get(SENT_THINKING))
    ]
    usage = _checked_usage(finished.usage, msgspec.json.decode(body).get("usage"))
    message = _build_message(fields, blocks)
    if blocks:
        deltas = [event for event in deltas if not isinstance(event, ThinkingDelta)]
        thinking = (_block_event(block, index) for index, block in enumerate(blocks))
        deltas = [*(event for event in thinking if event is not None), *deltas]
    return [*deltas, msgspec.structs.replace(finished, message=message, usage=usage)]


def _drop_added_fields(events: list[ReplyEvent]) -> list[ReplyEvent]:
    return [
        event
        for event in events
        if not isinstance(event, PartAdded)
        or not isinstance(event.part, Unknown)
        or event.part.field not in ADDED_FIELDS
    ]


def _block_event(block: dict[str, Any], index: int) -> ReplyEvent | None:
    if block["type"] == "redacted_thinking":
        return PartAdded(part=RedactedThinking(data=str(block.get("data") or "")), index=index)
    text, signature = str(block.get("thinking") or ""), block.get("signature") or None
    if not text and signature is None:
        return None
    return ThinkingDelta(text=text, signature=signature, index=index)


def _build_message(fields: dict[str, Any], blocks: list[dict[str, Any]]) -> Message:
    message_fields = {name: value for name, value in fields.items() if name not in ADDED_FIELDS}
    calls = message_fields.get("tool_calls")
    if isinstance(calls, list):
        message_fields["tool_calls"] = [
            {name: value for name, value in call.items() if name not in ADDED_CALL_FIELDS}
            if isinstance(call, dict)
            else call
            for call in calls
        ]
    if blocks:
        message_fields[DETAILS] = blocks
    return Message(role="assistant", raw=msgspec.json.encode(message_fields))


def _checked_usage(usage: Usage | None, reported: Any) -> Usage | None:
    """Add the cache writes to the counts; zeros mean that there were no counts."""
    try:
        more = msgspec.convert(reported, _Usage | None)
    except msgspec.ValidationError:
        return usage
    if usage is None or more is None or not more.prompt_tokens:
        return None
    details = more.prompt_tokens_details or _Details()
    cache_write = details.cache_creation_tokens or details.cache_write_tokens or 0
    return msgspec.structs.replace(
        usage, input=max(usage.input - cache_write, 0), cache_write=min(cache_write, usage.input)
    )


class LitellmStreamDecoder:
    def __init__(self) -> None:
        self._openai = openai_decoder.OpenAIStreamDecoder()
        self._blocks: list[dict[str, Any]] = []
        self._texts: list[list[str]] = []
        self._indexes: dict[int, int] = {}
        self._usage: Any = None

    @property
    def reported_model(self) -> str | None:
        return self._openai.reported_model

    def decode(self, data: bytes) -> list[ReplyEvent]:
        events = _drop_added_fields(self._openai.decode(data))
        if b'"thinking_blocks"' not in data and b'"usage"' not in data:
            return events
        try:
            chunk = _chunk_decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise MalformedError(f"not a chunk of a chat completion: {error}") from error
        self._usage = chunk.usage or self._usage
        deltas = [choice.delta for choice in chunk.choices or [] if choice.delta is not None]
        pieces = [piece for delta in deltas for piece in _blocks(delta.thinking_blocks)]
        if not pieces:
            return events
        others = [event for event in events if not isinstance(event, ThinkingDelta)]
        thinking = [self._thinking(piece) for piece in pieces]
        return [*(event for event in thinking if event is not None), *others]

    def _thinking(self, piece: dict[str, Any]) -> ReplyEvent | None:
        index = self._block_index(piece)
        if index == len(self._blocks):
            self._blocks.append({"type": piece["type"]})
            self._texts.append([])
        block = self._blocks[index]
        if piece.get("thinking"):
            block.setdefault("thinking", "")
            self._texts[index].append(piece["thinking"])
        block.update({k: piece[k] for k in ("signature", "data") if piece.get(k)})
        return _block_event(piece, index)

    def _block_index(self, piece: dict[str, Any]) -> int:
        number = piece.get("index")
        if isinstance(number, int):
            return self._indexes.setdefault(number, len(self._blocks))
        last = self._blocks[-1] if self._blocks else {"signature": "none is open"}
        is_open = piece["type"] == last.get("type") == "thinking" and "signature" not in last
        return len(self._blocks) - 1 if is_open else len(self._blocks)

    def finish(self) -> ReplyFinished | None:
        """Return the last event, or None if the reply is incomplete."""
        finished = self._openai.finish()
        if finished is None:
            return None
        usage = _checked_usage(finished.usage, self._usage)
        for block, pieces in zip(self._blocks, self._texts, strict=True):
            if pieces:
                block["thinking"] = "".join(pieces)
        message = _build_message(finished.message.json(), self._blocks)
        return msgspec.structs.replace(finished, message=message, usage=usage)

"""Prompts to the real model, its replies, and its slot files."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cllm.core.errors import PromptTooLongError
from cllm.core.message import Message, plain_message
from cllm.core.prompt import Prompt
from cllm.core.reply import Noticed, ReplyFinished
from cllm.providers.http.transport import Timeouts
from cllm.providers.local.models import (
    DEFAULT_MODEL,
    KNOWN_MODELS,
    THINKING_OFF,
    CachePaths,
)
from cllm.providers.local.slots import SlotFiles

OWN_SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM<|im_end|>\n"
HELLO = (plain_message("user", "Say hello to Luna, my cat, and to all of her many friends."),)


def prompt(*messages: Message, key: str | None = None, **changes: Any) -> Prompt:
    parameters = {"temperature": 0, "max_tokens": 40}
    options: dict[str, Any] = {"parameters": parameters, "cache_key": key} | changes
    return Prompt(model="smollm2-135m", messages=messages, **options)


async def finish(provider: Any, request: Prompt) -> ReplyFinished:
    events = [event async for event in provider.ask(request)]
    assert isinstance(events[-1], ReplyFinished)
    return events[-1]


async def render(provider: Any, *messages: dict[str, Any]) -> str:
    """Return the prompt that llama.cpp renders from the messages."""
    await provider._connect()
    child = provider._child
    response = await child._http.post(
        f"{child.process.address}/apply-template",
        headers={"Authorization": f"Bearer {child.process.key}", "Connection": "close"},
        body=json.dumps({"messages": messages}).encode(),
        provider="local",
        timeouts=Timeouts(),
    )
    text: str = json.loads(await response.read())["prompt"]
    return text


async def test_a_known_model_passes_arguments_to_its_template(
    local_model: Path, make_provider: Any
):
    """As those that turn off the thinking of Qwen3."""
    known = msgspec.structs.replace(
        KNOWN_MODELS[DEFAULT_MODEL],
        template="{{ 'off' if enable_thinking is false else 'a b c d e f g h' }}",
        parameters=THINKING_OFF,
    )
    provider = make_provider()
    provider._model = msgspec.structs.replace(provider._model, known=known)
    await provider._connect()

    off = await provider._child.count(prompt(*HELLO))
    on = await provider._child.count(
        prompt(*HELLO, parameters={"chat_template_kwargs": {"enable_thinking": True}})
    )

    assert off < on


def slot_files(paths: CachePaths) -> list[Path]:
    return sorted(paths.slots.iterdir())


@pytest.mark.parametrize("stream", [True, False])
async def test_the_model_answers_from_the_history(stream: bool, make_provider: Any):
    provider = make_provider()
    statement = plain_message("user", "My cat is called Luna.")
    options: dict[str, Any] = {"parameters": {}, "stream": stream}
    first = await finish(provider, prompt(statement, **options))
    question = plain_message("user", "What is my cat called?")
    second = await finish(provider, prompt(statement, first.message, question, **options))
    assert "Luna" in second.message.text


async def test_without_a_system_prompt_the_model_gets_its_own(make_provider: Any):
    text = await render(make_provider(), {"role": "user", "content": "Hello"})
    assert text == OWN_SYSTEM + "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


async def test_a_greeting_is_answered_with_a_greeting(make_provider: Any):
    reply = await finish(make_provider(), prompt(plain_message("user", "hi"), parameters={}))
    assert reply.message.text.startswith("Hello")


async def test_the_two_questions_of_the_readme_are_answered(make_provider: Any):
    provider = make_provider()
    france = plain_message("user", "What is the capital of France?")
    first = await finish(provider, prompt(france, parameters={}))
    italy = plain_message("user", "And of Italy?")
    second = await finish(provider, prompt(france, first.message, italy, parameters={}))
    assert "Paris" in first.message.text
    assert "Rome" in second.message.text


async def test_a_system_prompt_is_sent_exactly_once(make_provider: Any):
    text = await render(
        make_provider(),
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
    )
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_content_in_parts_and_content_that_is_null_are_rendered(make_provider: Any):
    text = await render(
        make_provider(),
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "c"},
    )
    assert text == OWN_SYSTEM + (
        "<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
        "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_a_model_file_without_a_chat_template_is_reported(
    make_provider: Any, local_model: Path, tmp_path: Path
):
    content = local_model.read_bytes().replace(
        b"tokenizer.chat_template", b"tokenizer.chat_templatX"
    )
    bare = tmp_path / "bare.gguf"
    bare.write_bytes(content)
    codes = []
    for path in (bare, local_model):
        events = [event async for event in make_provider(path).ask(prompt(*HELLO))]
        codes.append([event.notice.code for event in events if isinstance(event, Noticed)])
    assert codes == [["chat_template_missing"], []]


async def test_variants_of_a_reply_differ(make_provider: Any):
    provider = make_provider()
    story = plain_message("user", "Tell me a story about a cat.")
    options: dict[str, Any] = {"parameters": {"max_tokens": 30}, "is_variant": True}
    texts = {(await finish(provider, prompt(story, **options))).message.text for _ in range(3)}
    assert len(texts) > 1


async def test_the_callers_max_tokens_applies(make_provider: Any):
    reply = await finish(make_provider(), prompt(*HELLO, parameters={"max_tokens": 3}))
    assert reply.usage is not None
    assert (reply.stop_reason, reply.usage.output) == ("length", 3)


async def test_a_prompt_that_does_not_fit_raises_prompt_too_long(make_provider: Any):
    long = plain_message("user", "word " * 9000)
    with pytest.raises(PromptTooLongError):
        await finish(make_provider(), prompt(long))


async def test_the_models_own_context_length_is_a_limit(
    make_provider: Any, local_model: Path, tmp_path: Path
):
    content = bytearray(local_model.read_bytes())
    field = b"llama.context_length"
    value = content.index(field) + len(field) + 4
    content[value : value + 4] = (512).to_bytes(4, "little")
    short = tmp_path / "short.gguf"
    short.write_bytes(content)
    with pytest.raises(PromptTooLongError, match="512"):
        await finish(make_provider(short), prompt(plain_message("user", "word " * 900)))


async def test_the_next_process_reads_the_history_from_the_slot_file(
    make_provider: Any, paths: CachePaths
):
    first = await finish(make_provider(), prompt(*HELLO, key="a"))
    assert first.usage is not None
    assert [file.stat().st_mode & 0o777 for file in slot_files(paths)] == [0o600]
    more = plain_message("user", "And now say good night.")
    second = await finish(make_provider(), prompt(*HELLO, first.message, more, key="a"))
    assert second.usage is not None
    # The last token of a reply is generated but not yet evaluated.
    assert second.usage.cache_read >= first.usage.total - 1
    assert len(slot_files(paths)) == 1


async def test_conversations_that_alternate_in_one_child_have_separate_slots(make_provider: Any):
    provider = make_provider()
    other = plain_message("user", "What is the capital of France, and what of Italy?")
    first = await finish(provider, prompt(*HELLO, key="a"))
    await finish(provider, prompt(other, key="b"))
    more = plain_message("user", "And now say good night.")
    second = await finish(provider, prompt(*HELLO, first.message, more, key="a"))
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.cache_read >= first.usage.total - 1


async def test_without_a_cache_key_no_slot_file_is_saved(make_provider: Any, paths: CachePaths):
    await finish(make_provider(), prompt(*HELLO))
    assert slot_files(paths) == []


async def test_a_deleted_conversation_leaves_no_slot_file(make_provider: Any, paths: CachePaths):
    await finish(make_provider(), prompt(*HELLO, key="a"))
    SlotFiles(folder=paths.slots).delete_conversation("a")
    assert slot_files(paths) == []


async def test_a_slot_file_that_kills_the_child_does_not_fail_the_turn(
    make_provider: Any, paths: CachePaths
):
    """llama.cpp aborts on a truncated state, here with a valid checksum."""
    first = await finish(make_provider(), prompt(*HELLO, key="a"))
    (file,) = slot_files(paths)
    truncated = file.read_bytes()[: file.stat().st_size // 2]
    slots = SlotFiles(folder=paths.slots)
    (paths.slots / "half.saving").write_bytes(truncated)
    provider = make_provider()
    await provider._connect()
    damaged = slots.commit("half.saving", "a", provider._child.identity)
    assert damaged is not None
    again = await finish(provider, prompt(*HELLO, key="a"))
    assert again.message.text == first.message.text
    assert not damaged.exists()


async def test_a_turn_succeeds_when_slot_files_cannot_be_written(
    make_provider: Any, paths: CachePaths
):
    paths.root.mkdir(parents=True)
    paths.slots.write_text("not a folder", encoding="utf-8")
    reply = await finish(make_provider(), prompt(*HELLO, key="a"))
    assert reply.message.text


async def test_tool_calls_in_the_history_are_rendered_as_text(make_provider: Any):
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"}'}}
    text = await render(
        make_provider(),
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "I look.", "tool_calls": [call, call]},
        {"role": "tool", "tool_call_id": "a", "content": "Blue."},
    )

    called = 'look({"at": "x"})'
    assert f"<|im_start|>assistant\nI look.\n{called}\n{called}<|im_end|>\n" in text
    assert "<|im_start|>tool\nBlue.<|im_end|>\n" in text

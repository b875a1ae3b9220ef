"""Invalid UTF-8 in answers is a MalformedError in every protocol."""

import pytest

from cllm.wire.anthropic import response_decoder as anthropic_decoder
from cllm.wire.bedrock import response_decoder as bedrock_decoder
from cllm.wire.errors import MalformedError
from cllm.wire.openai import response_decoder as openai_decoder
from cllm.wire.responses import response_decoder as responses_decoder

BLOCKS = [
    b'{"type":"text","text":"\xff"}',
    b'{"type":"new","field":"\xff"}',
    b'{"type":"tool_use","id":"i","name":"f","input":{"a":"\xff"}}',
]
ITEMS = [
    b'{"type":"message","role":"assistant","content":[{"type":"output_text","text":"\xff"}]}',
    b'{"type":"new","field":"\xff"}',
    b'{"type":"function_call","call_id":"\xff","name":"f","arguments":"{}"}',
    b'{"type":"reasoning","id":"r","summary":[],"encrypted_content":"\xff"}',
]
CONVERSE_BLOCKS = [
    b'{"text":"\xff"}',
    b'{"new":"\xff"}',
    b'{"toolUse":{"toolUseId":"i","name":"f","input":{"a":"\xff"}}}',
]


@pytest.mark.parametrize("block", BLOCKS)
def test_an_anthropic_answer_with_invalid_utf8_is_malformed(block):
    body = b'{"type":"message","content":[' + block + b'],"stop_reason":"end_turn"}'
    start = b'{"type":"content_block_start","index":0,"content_block":' + block + b"}"

    with pytest.raises(MalformedError):
        anthropic_decoder.decode_answer(body)
    with pytest.raises(MalformedError):
        anthropic_decoder.AnthropicStreamDecoder().decode("", start)


@pytest.mark.parametrize("item", ITEMS)
def test_a_responses_answer_with_invalid_utf8_is_malformed(item):
    body = b'{"object":"response","status":"completed","output":[' + item + b"]}"
    done = b'{"type":"response.output_item.done","output_index":0,"item":' + item + b"}"
    end = b'{"type":"response.completed","response":' + body + b"}"

    with pytest.raises(MalformedError):
        responses_decoder.decode_answer(body)
    for event in (done, end):
        with pytest.raises(MalformedError):
            responses_decoder.ResponsesStreamDecoder().decode(event)


@pytest.mark.parametrize("block", CONVERSE_BLOCKS)
def test_a_bedrock_answer_with_invalid_utf8_is_malformed(block):
    message = b'{"role":"assistant","content":[' + block + b"]}"
    body = b'{"output":{"message":' + message + b'},"stopReason":"end_turn"}'

    with pytest.raises(MalformedError):
        bedrock_decoder.decode_answer(body)


@pytest.mark.parametrize("field", [b'"model":"\xff"', b'"new":"\xff"'])
def test_a_chat_completion_with_invalid_utf8_is_malformed(field):
    with pytest.raises(MalformedError):
        openai_decoder.decode_answer(b"{" + field + b',"choices":[{"message":{"content":"a"}}]}')


def test_a_streamed_chat_completion_with_invalid_utf8_is_malformed():
    decoder = openai_decoder.OpenAIStreamDecoder()
    decoder.decode(b'{"id":"\xff","choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}')

    with pytest.raises(MalformedError):
        decoder.finish()

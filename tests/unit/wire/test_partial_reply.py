from cllm.core.reply import Usage
from cllm.wire.partial_reply import decode_partial_reply

CHUNK = b'id: %d\ndata: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n'
STARTED = (
    b'id: 1\nevent: message_start\ndata: {"type":"message_start","message":{"role":"assistant",'
    b'"content":[],"usage":{"input_tokens":777,"output_tokens":1}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    b'"content_block":{"type":"text","text":""}}\n\n'
)
DELTA = (
    b'id: 2\nevent: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"Half"}}\n\n'
)


def test_the_chunks_of_a_chat_completion_are_joined():
    reply = decode_partial_reply([CHUNK % (1, b"Half "), CHUNK % (2, b"of it")])
    assert (reply.text, reply.usage) == ("Half of it", None)


def test_the_events_of_a_message_have_text_and_the_reported_usage():
    reply = decode_partial_reply([STARTED, DELTA])
    assert (reply.text, reply.usage) == ("Half", Usage(input=777, output=1))


def test_the_events_of_a_response_have_text():
    delta = b'{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"delta":"%b"}'
    events = [
        b'id: 1\nevent: response.created\ndata: {"type":"response.created","response":{}}\n\n',
        b"id: 2\nevent: response.output_text.delta\ndata: %b\n\n" % (delta % b"Half "),
        b"id: 3\nevent: response.output_text.delta\ndata: %b\n\n" % (delta % b"of it"),
    ]

    assert decode_partial_reply(events).text == "Half of it"


def test_the_text_before_an_invalid_event_is_kept():
    reply = decode_partial_reply([CHUNK % (1, b"Half"), b"data: {\n\n", CHUNK % (3, b"lost")])
    assert reply.text == "Half"


def test_no_events_have_no_text():
    assert decode_partial_reply([]).text == ""

"""A provider on loopback that is quick enough to be no part of what is measured.

Speaks just enough HTTP: any POST is answered with the same few words, as a whole or as a stream,
in OpenAI's protocol or, under `/v1/messages`, in Anthropic's; streams are long if the request has
the word LONG in it. Runs as a process of its own: `upstream.py PORT`.
"""

import asyncio
import json
import sys

from loopback import USAGE, WORDS

LAST_CHUNK = b"\r\n0\r\n\r\n"
LONG = "LONG"
LONG_STREAM = 500


def _chat_stream(words: list[str]) -> bytes:
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}

    def chunk(delta: dict[str, str], reason: str | None = None) -> dict[str, object]:
        return frame | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    chunks = [chunk({"role": "assistant", "content": ""})]
    chunks += [chunk({"content": word}) for word in words]
    chunks += [chunk({}, "stop"), frame | {"choices": [], "usage": USAGE}]
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks) + (
        b"data: [DONE]\n\n"
    )


def _chat_whole() -> bytes:
    message = {"role": "assistant", "content": "".join(WORDS), "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return json.dumps(
        {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-4o"}
        | {"choices": [choice], "usage": USAGE}
    ).encode()


def _message() -> dict[str, object]:
    usage = {"input_tokens": USAGE["prompt_tokens"], "output_tokens": USAGE["completion_tokens"]}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": "".join(WORDS)}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }


def _message_stream(words: list[str]) -> bytes:
    begun = _message() | {"content": [], "stop_reason": None}
    opened = {"type": "content_block_start", "index": 0}
    events: list[dict[str, object]] = [
        {"type": "message_start", "message": begun},
        opened | {"content_block": {"type": "text", "text": ""}},
    ]
    for word in words:
        delta = {"type": "text_delta", "text": word}
        events.append({"type": "content_block_delta", "index": 0, "delta": delta})
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    usage = {"output_tokens": USAGE["completion_tokens"]}
    events += [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": usage},
        {"type": "message_stop"},
    ]
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events
    )


def _response(body: bytes, kind: str) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


LONG_WORDS = (WORDS * LONG_STREAM)[:LONG_STREAM]
STREAM = "text/event-stream"
CHAT = _response(_chat_whole(), "application/json")
MESSAGE = _response(json.dumps(_message()).encode(), "application/json")
# By whether it is Anthropic's protocol, streamed, and long.
ANSWERS = {
    (False, False): (CHAT, CHAT),
    (False, True): tuple(_response(_chat_stream(words), STREAM) for words in (WORDS, LONG_WORDS)),
    (True, False): (MESSAGE, MESSAGE),
    (True, True): tuple(_response(_message_stream(words), STREAM) for words in (WORDS, LONG_WORDS)),
}


class _Connection(asyncio.Protocol):
    """One connection; requests may come in pieces and one after another."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.pending = b""

    def data_received(self, data: bytes) -> None:
        self.pending += data
        while (end := self.pending.find(b"\r\n\r\n")) >= 0:
            head = self.pending[:end].lower()
            stop = self._end_of_body(head, end + 4)
            if stop is None or len(self.pending) < stop:
                return
            body = self.pending[end + 4 : stop]
            self.pending = self.pending[stop:]
            streamed = b'"stream":true' in body.replace(b" ", b"")
            is_message = b"/messages" in head.split(b"\r\n")[0]
            self.transport.write(ANSWERS[is_message, streamed][LONG.encode() in body])

    def _end_of_body(self, head: bytes, start: int) -> int | None:
        if b"transfer-encoding: chunked" in head:
            last = self.pending.find(LAST_CHUNK, start)
            return None if last < 0 else last + len(LAST_CHUNK)
        fields = (line.partition(b":") for line in head.split(b"\r\n"))
        return start + next((int(said) for name, _, said in fields if name == b"content-length"), 0)


async def main(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))

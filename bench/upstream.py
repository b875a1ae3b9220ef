"""A provider on loopback that is quick enough to be no part of what is measured.

Speaks just enough HTTP: any POST is answered with the same few words, as a whole or as a stream,
in OpenAI's protocol or, under `/v1/messages`, in Anthropic's. A stream can be asked for in so many
words (`wanted`): as from a model, one word after another, each in a write of its own, all of them
within `PACED_SECONDS`; or at once. Runs as a process of its own: `upstream.py PORT`.
"""

import asyncio
import json
import re
import sys
from functools import lru_cache

from loopback import USAGE, WORDS

LAST_CHUNK = b"\r\n0\r\n\r\n"
LAST_PIECE = b"0\r\n\r\n"
WANTED = re.compile(rb"in (\d+) words( at once)?")
PACED_SECONDS = 4.0


def wanted(words: int, *, at_once: bool) -> str:
    """What a request says that wants so many words, one by one or all at once."""
    return f"Answer in {words} words{' at once' * at_once}."


def _chat_events(words: list[str]) -> list[bytes]:
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}

    def chunk(delta: dict[str, str], reason: str | None = None) -> dict[str, object]:
        return frame | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    chunks = [chunk({"role": "assistant", "content": ""})]
    chunks += [chunk({"content": word}) for word in words]
    chunks += [chunk({}, "stop"), frame | {"choices": [], "usage": USAGE}]
    events = [b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks]
    return [*events, b"data: [DONE]\n\n"]


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


def _message_events(words: list[str]) -> list[bytes]:
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
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def _response(body: bytes, kind: str) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


STREAM = "text/event-stream"
CHUNKED_HEAD = (
    f"HTTP/1.1 200 OK\r\nContent-Type: {STREAM}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
)
# By whether it is Anthropic's protocol, and streamed.
ANSWERS = {
    (False, False): _response(_chat_whole(), "application/json"),
    (False, True): _response(b"".join(_chat_events(WORDS)), STREAM),
    (True, False): _response(json.dumps(_message()).encode(), "application/json"),
    (True, True): _response(b"".join(_message_events(WORDS)), STREAM),
}


@lru_cache(maxsize=10)
def _pieces(count: int, *, is_message: bool) -> list[bytes]:
    """The chunks of a stream of so many words, an event in each."""
    words = (WORDS * count)[:count]
    events = _message_events(words) if is_message else _chat_events(words)
    return [b"%x\r\n%b\r\n" % (len(event), event) for event in events]


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
            found = WANTED.search(body) if streamed else None
            if found is None:
                self.transport.write(ANSWERS[is_message, streamed])
                continue
            pieces = _pieces(int(found[1]), is_message=is_message)
            if found[2] is None:
                self._send_paced(pieces)
            else:
                self.transport.write(b"".join((CHUNKED_HEAD, *pieces, LAST_PIECE)))

    def _send_paced(self, pieces: list[bytes]) -> None:
        """Write one piece after another, at equal distances; the first at once."""
        loop = asyncio.get_running_loop()
        began, pause = loop.time(), PACED_SECONDS / len(pieces)
        self.transport.write(CHUNKED_HEAD)

        def send(number: int) -> None:
            if self.transport.is_closing():
                return
            if number == len(pieces):
                self.transport.write(LAST_PIECE)
                return
            self.transport.write(pieces[number])
            loop.call_at(began + (number + 1) * pause, send, number + 1)

        send(0)

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

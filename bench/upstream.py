"""A fast provider on loopback, a separate process, for `server.py`: `upstream.py PORT`.

A minimal HTTP server. Every POST gets the same short reply, complete or streamed, in Anthropic's
protocol at `/v1/messages`, in that of the Responses API at `/v1/responses`, and in that of chat
completions elsewhere. The text of a request can set the number of
words of a stream (`request_words`): paced, one write per word within some seconds, as from a
model; or a burst, all words in one write.
"""

import asyncio
import json
import re
import sys
from functools import lru_cache

from loopback import USAGE, WORDS

END_OF_CHUNKED_BODY = b"\r\n0\r\n\r\n"
END_OF_STREAM = b"0\r\n\r\n"
WORD_COUNT = re.compile(rb"in (\d+) words within (\d+) seconds")
PACED_SECONDS = 4
FIRST_WORD = WORDS[0].encode()


def request_words(words: int, seconds: int) -> str:
    """Return the text that makes the server stream this number of words; a burst in 0 seconds."""
    return f"Answer in {words} words within {seconds} seconds."


def _chat_events(words: list[str]) -> list[bytes]:
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}

    def chunk(delta: dict[str, str], reason: str | None = None) -> dict[str, object]:
        return frame | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    chunks = [chunk({"role": "assistant", "content": ""})]
    chunks += [chunk({"content": word}) for word in words]
    chunks += [chunk({}, "stop"), frame | {"choices": [], "usage": USAGE}]
    events = [b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks]
    return [*events, b"data: [DONE]\n\n"]


def _chat_response() -> bytes:
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
    message = _message() | {"content": [], "stop_reason": None}
    block = {"type": "content_block_start", "index": 0}
    events: list[dict[str, object]] = [
        {"type": "message_start", "message": message},
        block | {"content_block": {"type": "text", "text": ""}},
    ]
    for word in words:
        delta = {"type": "text_delta", "text": word}
        events.append({"type": "content_block_delta", "index": 0, "delta": delta})
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    usage = {"output_tokens": USAGE["completion_tokens"]}
    events += [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": usage},
        {"type": "message_stop"},
    ]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def _response(words: list[str]) -> dict[str, object]:
    block = {"type": "output_text", "text": "".join(words), "annotations": [], "logprobs": []}
    head = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant"}
    usage = {"input_tokens": USAGE["prompt_tokens"], "output_tokens": USAGE["completion_tokens"]}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "gpt-4o",
        "output": [head | {"content": [block]}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage | {"total_tokens": USAGE["total_tokens"]},
    }


def _response_events(words: list[str]) -> list[bytes]:
    response = _response(words)
    initial = response | {"status": "in_progress", "output": [], "usage": None}
    position = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    item = response["output"][0]  # type: ignore[index]
    block = item["content"][0]
    delta = {"type": "response.output_text.delta", **position, "logprobs": []}
    added = {"output_index": 0, "item": item | {"content": [], "status": "in_progress"}}
    events = [
        {"type": "response.created", "response": initial},
        {"type": "response.in_progress", "response": initial},
        {"type": "response.output_item.added", **added},
        {"type": "response.content_part.added", **position, "part": block | {"text": ""}},
        *(delta | {"delta": word} for word in words),
        {"type": "response.output_text.done", **position, "text": block["text"], "logprobs": []},
        {"type": "response.content_part.done", **position, "part": block},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]
    numbered = (event | {"sequence_number": number} for number, event in enumerate(events))
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in numbered]


def _encode_response(body: bytes, kind: str) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


STREAM = "text/event-stream"
CHUNKED_HEAD = (
    f"HTTP/1.1 200 OK\r\nContent-Type: {STREAM}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
)
CHAT, MESSAGES, RESPONSES = "completions", "messages", "responses"
EVENTS = {CHAT: _chat_events, MESSAGES: _message_events, RESPONSES: _response_events}
BODIES = {
    CHAT: _chat_response(),
    MESSAGES: json.dumps(_message()).encode(),
    RESPONSES: json.dumps(_response(WORDS)).encode(),
}
# Keys: the last segment of the path, and whether the response is streamed.
REPLIES = {
    **{(path, False): _encode_response(body, "application/json") for path, body in BODIES.items()},
    **{
        (path, True): _encode_response(b"".join(encode(WORDS)), STREAM)
        for path, encode in EVENTS.items()
    },
}


@lru_cache(maxsize=10)
def _encode_chunks(count: int, *, path: str) -> list[bytes]:
    """Return the HTTP chunks of a stream with this number of words, one event per chunk."""
    events = EVENTS[path]((WORDS * count)[:count])
    return [b"%x\r\n%b\r\n" % (len(event), event) for event in events]


def _read_path(head: bytes) -> str:
    """Return the protocol: the last segment of the path, without its query."""
    line = head.split(b"\r\n")[0]
    return next((path for path in (MESSAGES, RESPONSES) if f"/{path}".encode() in line), CHAT)


class _Connection(asyncio.Protocol):
    """One keep-alive connection. Requests may arrive in several reads."""

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
            path = _read_path(head)
            match = WORD_COUNT.search(body) if streamed else None
            if match is None:
                self.transport.write(REPLIES[path, streamed])
                continue
            chunks = _encode_chunks(int(match[1]), path=path)
            if seconds := int(match[2]):
                self._send_paced(chunks, seconds)
            else:
                self.transport.write(b"".join((CHUNKED_HEAD, *chunks, END_OF_STREAM)))

    def _send_paced(self, chunks: list[bytes], seconds: int) -> None:
        """Write the chunks up to the first word immediately, the others at equal intervals."""
        loop = asyncio.get_running_loop()
        first = next(index for index, chunk in enumerate(chunks) if FIRST_WORD in chunk)
        self.transport.write(b"".join((CHUNKED_HEAD, *chunks[:first])))
        chunks = chunks[first:]
        start, pause = loop.time(), seconds / len(chunks)

        def send(number: int) -> None:
            if self.transport.is_closing():
                return
            if number == len(chunks):
                self.transport.write(END_OF_STREAM)
                return
            self.transport.write(chunks[number])
            loop.call_at(start + (number + 1) * pause, send, number + 1)

        send(0)

    def _end_of_body(self, head: bytes, start: int) -> int | None:
        if b"transfer-encoding: chunked" in head:
            last = self.pending.find(END_OF_CHUNKED_BODY, start)
            return None if last < 0 else last + len(END_OF_CHUNKED_BODY)
        fields = (line.partition(b":") for line in head.split(b"\r\n"))
        return start + next(
            (int(value) for name, _, value in fields if name == b"content-length"), 0
        )


async def main(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))

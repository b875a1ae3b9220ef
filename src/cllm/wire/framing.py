"""Request bodies around their histories: what an agent sends again with every request but the end.

Tools, system prompt and parameters are the same from request to request, and so is what is made of
them for a target. A frame is a body with a place for the history in it; it follows from all that it
is remembered by. What it is made of is for the caller to say.
"""

from collections.abc import Callable, Hashable

import msgspec

from cllm.core.prompt import Prompt
from cllm.wire.history import History, size_of
from cllm.wire.memo import Memo
from cllm.wire.spoken import Encoded

FRAMES_BYTES = 1_000_000
FRAME_BYTES = 1_500
"""What a frame takes beside all that can be of any length."""
PLACE = b'"(the place of the history)"'

_frames: Memo[Hashable, tuple[Encoded, bytes, bytes]] = Memo(FRAMES_BYTES)


def framed(
    prompt: Prompt, history: History, encode: Callable[[History], Encoded], *, kind: Hashable
) -> Encoded:
    """The request with this history in it, as `encode` would write it.

    It may look at the prompt without its messages, and at the history without its words, and does
    the same with these for everybody who names the same `kind`.
    """
    parameters = msgspec.json.encode(prompt.parameters)
    about = (prompt.model, prompt.dialect, prompt.stream, prompt.system, parameters)
    key = (kind, about, history.lead, history.ends, history.called, history.own)
    frame = _frames.get(key)
    if frame is None:
        encoded = encode(msgspec.structs.replace(history, said=(PLACE,)))
        if encoded.names or encoded.ids or encoded.body.count(PLACE) != 1:
            return encode(history)
        before, _, after = encoded.body.partition(PLACE)
        frame = encoded, before, after
        before_it = history.lead if prompt.system is None else (prompt.system, *history.lead)
        size = FRAME_BYTES + encoded.size + len(encoded.body) + len(parameters)
        _frames.put(key, frame, size + size_of(before_it) + history.size_beside)
    encoded, before, after = frame
    body = b"".join((before, *history.said, after))
    return msgspec.structs.replace(encoded, body=body, names={}, ids={})

"""A fake provider on loopback that records its requests and returns queued responses.

It runs on an event loop in a thread of the test process. A test queues responses (`queue_reply`,
`queue_error`, `queue_steps`), runs the command and checks `requests`. Without a queued response the
provider repeats the newest user text. Protocols are rows in `PROTOCOLS`: each converts a `Reply` to
the steps of a response, and the server executes the steps. With a `cache` it reports the cached
tokens of a prompt. Nothing here waits for a clock: a `Gate` holds a response until the test opens
it.
"""

from tests.fake_provider.bedrock import error_frame, event_frame, exception_frame, frame
from tests.fake_provider.model import (
    WAIT,
    Cut,
    Gate,
    Head,
    Hold,
    Reply,
    Request,
    Send,
    Silence,
    Step,
    ToolCall,
    WireProtocol,
)
from tests.fake_provider.openai import OpenAIChat
from tests.fake_provider.protocols import PROTOCOLS, find_protocol
from tests.fake_provider.server import FakeProvider, closed_port
from tests.fake_provider.steps import response_steps

__all__ = [
    "PROTOCOLS",
    "WAIT",
    "Cut",
    "FakeProvider",
    "Gate",
    "Head",
    "Hold",
    "OpenAIChat",
    "Reply",
    "Request",
    "Send",
    "Silence",
    "Step",
    "ToolCall",
    "WireProtocol",
    "closed_port",
    "error_frame",
    "event_frame",
    "exception_frame",
    "find_protocol",
    "frame",
    "response_steps",
]

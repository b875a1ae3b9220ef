"""Conversations with every kind of content, for the browser tests of messages."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from tests.hostile_texts import HOSTILE_TEXTS, PIXEL
from tests.server_app import openai_messages

from cllm.core.conversation import (
    StoredConversation,
    SystemRecord,
    Turn,
    TurnFailure,
    WindowRecord,
)
from cllm.core.message import plain_message
from cllm.core.notice import Notice
from cllm.core.reply import Usage

START = datetime(2026, 11, 16, 12, tzinfo=UTC)
LONG, SAMPLE, VARIANTS, HOSTILE = (
    f"00000000-0000-4000-8000-00000000000{number}" for number in range(4)
)
LONG_TURNS = 1000
CODE = 'def find(items: list[str]) -> str | None:\n    """Return the first."""\n    # Why: order\n'
WIDE_CODE = f"{CODE}    return {' + '.join(f'value_{n}' for n in range(30))}\n"
ARGUMENTS = '{"command":"ls -la src/cllm/server/page","timeout":10}'
PLAN = """Here is the **plan** for `find`, see https://docs.example/find for more.

## Steps

1. Read the *items*
2. Compare them

| Step | Time | Cost |
|:-----|-----:|-----:|
| one  | 1.2  | 0.01 |
| two  | 12.4 | 0.2  |

> A remark about the order of items.

```python
{code}```

![A diagram](https://images.example/diagram.png)
"""
ARABIC = "مرحبا بالعالم، هذا سؤال طويل عن البرمجة باللغة العربية with English words."
CHINESE = "请解释一下这个函数的作用。并给出一个例子。日本語のテキストも含みます。한국어도 있습니다."


def build_turn(name: str, *raws: dict[str, Any], minute: int = 0, **fields: Any) -> Turn:
    started = START + timedelta(minutes=minute)
    defaults = {
        "place": name,
        "state": "complete",
        "ended_at": started + timedelta(seconds=1.2),
        "model": "openai/gpt-4o",
        "provider": "openai",
        "usage": Usage(input=900, output=312, cache_read=2048),
        "cost": 0.0042,
    }
    return Turn(
        id=name, messages=openai_messages(*raws), started_at=started, **{**defaults, **fields}
    )


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def reply(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def build_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def build(conversation: str, title: str, *turns: Turn, **fields: Any) -> StoredConversation:
    defaults = {"model": "openai/gpt-4o", "system_record": SystemRecord(policy="dynamic")}
    return StoredConversation(
        id=conversation,
        created_at=START,
        updated_at=START,
        title=title,
        turns=turns,
        **{**defaults, **fields},
    )


def build_sample() -> StoredConversation:
    """Return a conversation with every kind of content."""
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    call = build_call("call-1", "run_command", ARGUMENTS)
    failing = build_call("call-2", "read_file", '{"path":"missing.txt"}')
    failure = TurnFailure(
        code="rate_limited",
        message="The provider refuses the request: rate limit reached; try again in 20 seconds.",
    )
    system = plain_message(
        "system", "Be brief.\n\n--- Context: date ---\nMonday\n--- End Context ---"
    )
    return build(
        SAMPLE,
        "A long title that explains in detail why the flaky test of the connection pool fails on "
        "Fridays, and what to do about it before the release",
        build_turn("turn-1", user("How do I find an item?"), reply(PLAN.format(code=WIDE_CODE))),
        build_turn(
            "turn-2",
            user([{"type": "text", "text": "List the files."}, image]),
            reply(None, reasoning_content="I should *look*.", tool_calls=[call, failing]),
            {"role": "tool", "tool_call_id": "call-1", "content": "total 0\n-rw-r--r-- page.py"},
            {"role": "tool", "tool_call_id": "call-2", "content": "No such file"},
            reply("There is one file: `page.py`."),
            minute=2,
            notices=(Notice(code="x", message="A field is not sent.", path="messages[0].name"),),
        ),
        build_turn(
            "turn-3",
            user("And now?"),
            minute=4,
            state="failed",
            failure=failure,
            usage=None,
            cost=None,
        ),
        build_turn("turn-4", user(ARABIC), reply(ARABIC), minute=6),
        build_turn(
            "turn-5",
            user(CHINESE),
            reply(CHINESE),
            minute=8,
            window=WindowRecord(
                first_sequence=3, sent_messages=8, left_out_messages=2, counted=3_100
            ),
        ),
        system=system,
        system_record=SystemRecord(policy="captured", source="settings"),
    )


def build_long() -> StoredConversation:
    """Return a conversation of 2,000 messages."""
    turns = (
        build_turn(
            f"long-{number}",
            user(f"Question {number}: how do I do **this**?"),
            reply(f"Answer {number}\n\n```python\n{CODE}```\n\n- one\n- two\n"),
            minute=number,
        )
        for number in range(LONG_TURNS)
    )
    return build(LONG, "Two thousand messages", *turns)


def build_variants() -> StoredConversation:
    first, second, third = (
        build_turn(f"variant-{n}", user("Tell a joke."), reply(f"Joke {n}."), minute=n)
        for n in range(3)
    )
    place = {"place": first.id}
    second, third = (msgspec.structs.replace(turn, **place) for turn in (second, third))
    last = build_turn("after", user("Another one."), reply("No."), minute=9)
    return build(VARIANTS, "Jokes", second, last, variants=(first, third))


def build_hostile() -> StoredConversation:
    """Return a conversation whose fields are all hostile."""
    turns = []
    for number, text in enumerate(text.replace("\0", "") for text in HOSTILE_TEXTS):
        name = text[:100]
        call = build_call(f"call-{number}", name, msgspec.json.encode({name: text[:5000]}).decode())
        turns.append(
            build_turn(
                f"hostile-{number}",
                user(text),
                reply(text, reasoning_content=text[:5000], tool_calls=[call]),
                {"role": "tool", "tool_call_id": f"call-{number}", "content": text[:5000]},
                state="failed" if number % 2 else "complete",
                failure=TurnFailure(code="x", message=name) if number % 2 else None,
                model=name,
                notices=(Notice(code="x", message=name, path=name),),
            )
        )
    title = " ".join(HOSTILE_TEXTS[27].split())
    return build(HOSTILE, title, *turns, model=HOSTILE_TEXTS[0])


def build_all() -> list[StoredConversation]:
    return [build_sample(), build_long(), build_variants(), build_hostile()]

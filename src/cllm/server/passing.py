"""A stateless request that wants its answer in one piece: asked here and now, in its own task.

There is nothing to keep, so there is nobody to go on for when the client leaves.
"""

import asyncio
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive

from cllm.core.notice import NoticeCollector
from cllm.core.reply import Noticed
from cllm.engine.turn import TurnBegan, TurnEnded
from cllm.server.asking import Asked
from cllm.server.idempotency import Claim
from cllm.server.leaving import Watch
from cllm.server.limits import in_time
from cllm.server.refusal import RefusedError
from cllm.server.request_log import RequestRecord
from cllm.server.running import (
    JSON,
    count_call,
    encode_notices,
    events_of,
    record_end,
    too_long,
)
from cllm.server.serving import Serving
from cllm.server.voices import Voice
from cllm.server.wish import NOTICE


async def pass_on(
    asked: Asked,
    voice: Voice,
    *,
    serving: Serving,
    claim: Claim,
    record: RequestRecord,
    receive: Receive,
) -> Response:
    """The answer; the call ends when the client leaves."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - every request is answered in a task
    watch = Watch(receive, serving.patience.leaving, task.cancel)
    late = too_long(serving.settings.limits)
    try:
        ended, notices = await in_time(_taken(asked, serving), serving.patience.turns, late)
    except asyncio.CancelledError:
        if watch.left and task.uncancel() == 0:
            raise RefusedError("request_timeout", "The client left.") from None
        raise
    finally:
        watch.end()
    record_end(ended, record)
    count_call(ended, asked, serving)
    body = voice.whole(ended.reply)
    headers = {NOTICE: encode_notices(notices)} if notices else {}
    if claim.keeps:
        await claim.keep({"Content-Type": JSON, **headers}, body)
    return Response(body, headers=headers, media_type=JSON)


async def _taken(asked: Asked, serving: Serving) -> tuple[TurnEnded, NoticeCollector]:
    notices = NoticeCollector(asked.notices)
    async with aclosing(events_of(asked, serving)) as events:
        async for event in events:
            if isinstance(event, TurnEnded):
                return event, notices
            if isinstance(event, TurnBegan):
                notices.extend(event.prompt.notices)
            elif isinstance(event, Noticed):
                notices.append(event.notice)
    raise AssertionError("a turn ends with an answer or an error")

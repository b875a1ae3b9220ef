"""Logs the events of a turn: model, sizes and cost; with -vvv the messages as well."""

import logging
from collections.abc import Callable
from time import monotonic

from cllm.core.reply import Noticed
from cllm.engine.request import TurnEnded, TurnEvent, TurnQueued, TurnStarted
from cllm.engine.tool_rounds import ToolRoundEnded
from cllm.logs import TRACE, configure, log
from cllm.settings.load import Settings
from cllm.stores.registry import redact_password


def start_logging(settings: Settings) -> Callable[[], Callable[[TurnEvent], None]]:
    """Configure logging; return a function that creates the logger of one turn."""
    configure(
        verbosity=settings.verbosity,
        as_json=settings.json_logs,
        file=settings.log_file,
        secrets=settings.secrets(),
    )
    store = redact_password(settings.store)
    log("settings", logging.DEBUG, "settings read", store=store, model=settings.model)
    return lambda: _TurnLog().on_event


class _TurnLog:
    def __init__(self) -> None:
        self._started_at = monotonic()

    def on_event(self, event: TurnEvent) -> None:
        match event:
            case TurnQueued():
                log("turn", logging.INFO, "waiting", conversation=event.conversation)
            case TurnStarted():
                self._log_start(event)
            case Noticed():
                notice = event.notice
                log("turn", logging.WARNING, notice.message, code=notice.code, path=notice.path)
            case ToolRoundEnded():
                log("turn", logging.INFO, "tools used", calls=len(event.results))
            case TurnEnded():
                self._log_end(event)

    def _log_start(self, event: TurnStarted) -> None:
        prompt = event.prompt
        log(
            "turn",
            logging.INFO,
            "asking",
            model=event.model,
            conversation=event.conversation,
            messages=len(prompt.messages),
            system=prompt.system is not None,
            stream=prompt.stream,
        )
        log("turn", logging.DEBUG, "parameters", names=sorted(prompt.parameters))
        for number, message in enumerate(prompt.all_messages):
            log("prompt", TRACE, "message", number=number, role=message.role, text=message.text)

    def _log_end(self, event: TurnEnded) -> None:
        usage = event.reply.usage if event.turn is None else event.turn.usage
        counts = {} if usage is None else {"cached": usage.cache_read, "sent": usage.prompt}
        log(
            "turn",
            logging.INFO,
            "answered",
            model=event.model,
            stop_reason=event.reply.stop_reason,
            tokens="unknown" if usage is None else usage.total,
            **counts,
            cost="unknown" if event.cost is None else event.cost,
            seconds=round(monotonic() - self._started_at, 3),
        )
        log("reply", TRACE, "message", text=event.reply.message.text)

"""The log of a turn."""

import logging

import pytest

from cllm.cli.turn_log import _TurnLog
from cllm.core.message import plain_message
from cllm.core.notice import Notice
from cllm.core.prompt import Prompt
from cllm.core.reply import Noticed, ReplyFinished, Usage
from cllm.engine.request import TurnEnded, TurnQueued, TurnStarted
from cllm.logs import ROOT_LOGGER


@pytest.fixture
def records():
    """The records that cllm logs from INFO on."""
    logger = logging.getLogger(ROOT_LOGGER)
    handler = _ListHandler()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler.records
    logger.removeHandler(handler)
    logger.setLevel(before)


class _ListHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def test_the_start_and_the_end_of_a_turn_are_logged(records):
    log = _TurnLog()
    prompt = Prompt(model="m", system=None, messages=(plain_message("user", "Hello"),))
    reply = ReplyFinished(
        message=plain_message("assistant", "Hi."), stop_reason="end", usage=Usage(input=3)
    )

    log.on_event(TurnQueued(conversation="cats"))
    log.on_event(TurnStarted(conversation="cats", model="m", prompt=prompt))
    log.on_event(TurnEnded(reply=reply, turn=None, model="m"))

    assert [record.levelno for record in records] == [logging.INFO] * 3
    assert not any("Hello" in str(vars(record)) for record in records)


def test_a_notice_is_a_warning(records):
    _TurnLog().on_event(Noticed(notice=Notice(code="a", message="Old.")))

    assert records[-1].levelno == logging.WARNING
    assert "Old." in str(vars(records[-1]))

"""The tokens of each message of a log, from what the provider counted and what it did not.

The count of the last prompt is the truth for all that was in it, and the count of a reply for that
reply. Only the rest is estimated. Asks nobody, and changes no message.
"""

from collections.abc import Mapping, Sequence

import msgspec

from cllm.assembly.tokens import NOTHING, Learned, Weighed, share_out
from cllm.assembly.window.view import Span


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider counted in a prompt, and what was in it.

    `beside` is what went along with the messages: system prompt, tools, the context of that turn.
    """

    spans: tuple[Span, ...]
    tokens: int
    beside: Weighed = NOTHING


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of each message, of what stood beside them, and what can be learned from that."""

    messages: tuple[int, ...]
    beside: int
    learned: Learned


def count_messages(
    weighed: Sequence[Weighed],
    *,
    replies: Mapping[int, int],
    last: Report | None = None,
    beside: Weighed = NOTHING,
) -> Counted:
    """The tokens of a log whose messages weigh this much.

    `replies` are the counts of the replies by their positions. Reports of another model, and usage
    that was itself estimated, do not belong here.
    """
    if last is None:
        tokens = tuple(replies.get(n, one.tokens) for n, one in enumerate(weighed))
        return Counted(messages=tokens, beside=beside.tokens, learned=Learned())
    learned = Learned().after(_sent(weighed, last), last.tokens)
    covered, around = _covered(weighed, replies, last)
    messages = tuple(
        covered[n] if n in covered else replies.get(n, learned.expect(one))
        for n, one in enumerate(weighed)
    )
    now = around if beside == last.beside else learned.expect(beside)
    return Counted(messages=messages, beside=now, learned=learned)


def _sent(weighed: Sequence[Weighed], report: Report) -> Weighed:
    spoken = [one for start, stop in report.spans for one in weighed[start:stop]]
    plain = report.beside.plain + sum(one.plain for one in spoken)
    return Weighed(plain=plain, wide=report.beside.wide + sum(one.wide for one in spoken))


def _covered(
    weighed: Sequence[Weighed], replies: Mapping[int, int], report: Report
) -> tuple[dict[int, int], int]:
    """Shares of a report that add up to it: of each message, and of what stood beside them."""
    positions = [n for start, stop in report.spans for n in range(start, stop)]
    known = {n: replies[n] for n in positions if n in replies}
    rest = report.tokens - sum(known.values())
    if rest <= 0:
        known, rest = {}, report.tokens
    unknown = [n for n in positions if n not in known]
    weights = [report.beside.tokens, *(weighed[n].tokens for n in unknown)]
    around, *shares = share_out(rest, weights)
    return known | dict(zip(unknown, shares, strict=True)), around

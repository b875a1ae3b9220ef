"""Conversations as text: usage and cost, summaries, the last turns."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import quote

import msgspec

from cllm.app import App
from cllm.core.conversation import StandingSummary, StoredConversation, Summary, Turn
from cllm.core.reply import Usage
from cllm.providers.cached_models import CachedModels
from cllm.providers.local.models import list_models
from cllm.providers.registry import BUILTIN_PROVIDERS, LOCAL
from cllm.stores.registry import store_location
from cllm.terminal import align_columns, escape, local_time, one_line, pluralize
from cllm.window.cache_report import Amount, CacheReport, to_amount

SMALL_DOLLARS = 0.01
TAIL_TURNS = 3
TAIL_LINES = 12
MAX_TITLE = 60
SPEAKERS = {"user": "You", "assistant": "Model", "tool": "Tool", "system": "System"}


class SessionUsage(msgspec.Struct, frozen=True, kw_only=True):
    usage: Usage = Usage()
    cost: Amount = Amount()

    def plus(self, usage: Usage | None, cost: float | None) -> "SessionUsage":
        return SessionUsage(
            usage=self.usage if usage is None else self.usage + usage,
            cost=self.cost + to_amount(cost),
        )


def cost_of(conversation: StoredConversation | None) -> Amount:
    """Return the cost of turns, variants and summaries."""
    if conversation is None:
        return Amount()
    records: list[Turn | StandingSummary] = [*conversation.turns, *conversation.variants]
    summary = conversation.summary
    while summary is not None:
        records.append(summary)
        summary = summary.before
    amount = Amount()
    for record in records:
        if record.usage is not None:
            amount += to_amount(record.cost)
    return amount


def last_turn_with_usage(conversation: StoredConversation | None) -> Turn | None:
    turns = () if conversation is None else conversation.turns
    return next((turn for turn in reversed(turns) if turn.usage is not None), None)


def format_dollars(dollars: float) -> str:
    if dollars == 0:
        return "$0"
    sign = "-" if dollars < 0 else ""
    return f"{sign}${abs(dollars):.{6 if abs(dollars) < SMALL_DOLLARS else 4}f}"


def format_amount(amount: Amount) -> str:
    if amount.unknown == 0:
        return format_dollars(amount.dollars)
    if amount.known == 0:
        return "unknown"
    unknown = pluralize(amount.unknown, "reply", "replies")
    return f"{format_dollars(amount.dollars)} and {unknown} of unknown price"


def format_usage(usage: Usage) -> str:
    about = "about " if usage.estimated else ""
    cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
    received = usage.output + usage.reasoning
    return f"{about}{usage.prompt:,} tokens sent{cached}, {received:,} received"


def format_price(usage: Usage | None, cost: float | None) -> str:
    used = "tokens unknown" if usage is None else format_usage(usage)
    return f"{used} · {'cost unknown' if cost is None else format_dollars(cost)}"


def status_line(
    model: str, conversation: StoredConversation | None, *, is_saved: bool = True
) -> str:
    """Return the line below the prompt."""
    turns = 0 if conversation is None else len(conversation.turns)
    pieces = [model, *([] if is_saved else ["not saved"]), pluralize(turns, "turn")]
    turn = last_turn_with_usage(conversation)
    if turn is not None and turn.usage is not None:
        # The window counts the prompt of the last call, the usage those of all calls of the turn.
        in_window = None if turn.window is None else turn.window.counted
        sent = turn.usage.prompt if in_window is None else in_window
        pieces.append(f"{sent:,} tokens in the last prompt")
    pieces.append(f"cost {format_amount(cost_of(conversation))}")
    return " · ".join(pieces)


def stats_lines(
    conversation: StoredConversation | None, report: CacheReport, session_usage: SessionUsage
) -> Iterator[str]:
    turns = 0 if conversation is None else len(conversation.turns)
    messages = 0 if conversation is None else conversation.message_count
    yield f"This conversation: {pluralize(turns, 'turn')}, {pluralize(messages, 'message')}"
    yield from report_lines(report)
    replies = session_usage.cost.known + session_usage.cost.unknown
    yield f"Since the chat started: {pluralize(replies, 'reply', 'replies')}"
    yield from _token_lines(session_usage.usage)
    yield f"  cost             {format_amount(session_usage.cost)}"


def report_lines(report: CacheReport) -> Iterator[str]:
    yield from _token_lines(report.usage)
    if report.hit_ratio is not None:
        yield f"  read from cache  {report.hit_ratio:.1%} of the tokens sent"
    if report.missed:
        trimmed = f", {report.trimmed:,} of them after trimming" if report.trimmed else ""
        yield f"  missed           {pluralize(report.missed, 'token')}{trimmed}"
    if report.expired:
        yield f"  expired          {pluralize(report.expired, 'token')}"
    if report.summaries:
        yield f"  summaries        {report.summaries:,}"
    yield f"  cost             {format_amount(report.cost)}"
    if report.saved != Amount():
        yield f"  saved by cache   {format_amount(report.saved)}"
    if report.missed:
        yield f"  lost by misses   {format_amount(report.lost)}"


def _token_lines(usage: Usage) -> Iterator[str]:
    about = "about " if usage.estimated else ""
    yield f"  tokens sent      {about}{usage.prompt:,}"
    yield f"    from cache     {usage.cache_read:,}"
    yield f"    into cache     {usage.cache_write:,}"
    yield f"  tokens received  {about}{usage.output + usage.reasoning:,}"


def empty_list_lines(
    stores: Sequence[str], others: Mapping[str, int], *, advice: str
) -> Iterator[str]:
    """`advice` ends with a command; the URL of the store is appended."""
    yield f"No conversations in {' and '.join(map(store_location, stores))}."
    for other, number in others.items():
        count = f"{number:,} conversation{' is' if number == 1 else 's are'}"
        yield f"{count} in {store_location(other)}; {advice} {quote(other)}"


def tail_lines(conversation: StoredConversation) -> Iterator[str]:
    """Yield the last turns, with message numbers."""
    title = f" · {one_line(conversation.title)}" if conversation.title else ""
    yield f"{conversation.id}{title}"
    turns = conversation.turns[-TAIL_TURNS:]
    earlier = len(conversation.turns) - len(turns)
    if earlier:
        yield f"({pluralize(earlier, 'earlier turn')})"
    number = conversation.message_count - sum(len(turn.messages) for turn in turns)
    for turn in turns:
        for message in turn.messages:
            number += 1
            if message.text and message.role in ("user", "assistant"):
                yield ""
                text = f"{SPEAKERS[message.role]}: {escape(message.text)}"
                yield from _shorten(f"[{number}] {text}")
        if turn.state != "complete":
            yield f"({turn.state})"
    yield ""


def _shorten(text: str) -> Iterator[str]:
    lines = text.rstrip().split("\n")
    if len(lines) > TAIL_LINES:
        yield lines[0]
        yield f"  … {len(lines) - TAIL_LINES} lines …"
        lines = lines[1 - TAIL_LINES :]
    yield from lines


def format_list_lines(summaries: Iterable[Summary], columns: int | None = None) -> list[str]:
    """Aligned lines that fit a terminal; a narrow one shows no counts."""
    rows = [
        (
            summary.ref,
            local_time(summary.updated_at),
            pluralize(summary.message_count, "message"),
            one_line(summary.title or "", max_length=MAX_TITLE),
        )
        for summary in summaries
    ]
    return align_columns(rows, columns, optional=(2,))


def window_lines(conversation: StoredConversation | None) -> list[str]:
    turns = () if conversation is None else conversation.turns
    record = next((turn.window for turn in reversed(turns) if turn.window is not None), None)
    lines: list[str] = []
    if record is not None:
        lines.append(
            f"Window: {pluralize(record.sent_messages, 'message')} sent, from message "
            f"{record.first_sequence}; {record.left_out_messages:,} not sent."
        )
    return [*lines, *format_standing_summary(conversation), *pin_lines(conversation)]


def format_standing_summary(conversation: StoredConversation | None) -> list[str]:
    summary = None if conversation is None else conversation.summary
    if summary is None:
        return []
    text = one_line(summary.text, max_length=MAX_TITLE)
    return [f"summary of the messages up to {summary.through} ({summary.tokens:,} tokens): {text}"]


def pin_lines(conversation: StoredConversation | None) -> list[str]:
    if conversation is None:
        return []
    return [
        f"pinned: {number} {message.role}: {one_line(message.text, max_length=MAX_TITLE)}"
        for number, _, message in conversation.numbered_messages()
        if number in conversation.pins
    ]


def model_names(app: App) -> list[tuple[str, str]]:
    """Model names with a remark, without a call of a provider, and the prefixes of providers."""
    names = {f"{LOCAL}/{model.name}": "on this machine" for model in list_models(app.cache_paths)}
    names |= app.settings.aliases
    for provider, row in app.settings.providers.items():
        names |= {f"{provider}/{name}": "configured" for name in row.models}
    for name in sorted(CachedModels(app.cache_paths.root).list_names()):
        names.setdefault(name, "listed by the provider")
    return [*names.items(), *((f"{provider}/", "…") for provider in BUILTIN_PROVIDERS)]

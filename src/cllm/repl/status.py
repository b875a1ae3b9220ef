"""A conversation in words: its usage and cost, its last turns, all of it as Markdown.

Counts what turns record; calls nobody.
"""

from collections.abc import Iterable, Iterator
from shlex import quote

import msgspec

from cllm.app import App, OtherHistory
from cllm.assembly.cache_report import Amount, CacheReport
from cllm.core.conversation import Conversation, Turn
from cllm.core.reply import Usage
from cllm.providers.local.models import list_models
from cllm.providers.registry import LOCAL, ROWS
from cllm.stores.registry import without_password
from cllm.terminal import escape, one_line

SMALL = 0.01
PATHS = ("json", "sqlite")
TAIL_TURNS = 3
TAIL_LINES = 12
SPEAKERS = {"user": "You", "assistant": "Model", "tool": "Tool", "system": "System"}


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What some answers used and cost; `unknown` of them had a price that nobody knows."""

    answers: int = 0
    usage: Usage = Usage()
    cost: float = 0.0
    unknown: int = 0

    def plus(self, usage: Usage | None, cost: float | None) -> "Spent":
        """With one answer more."""
        return Spent(
            answers=self.answers + 1,
            usage=self.usage if usage is None else self.usage + usage,
            cost=self.cost + (cost or 0.0),
            unknown=self.unknown + (cost is None),
        )


def spent_on(turns: Iterable[Turn]) -> Spent:
    """What these turns used and cost, as far as they were answered."""
    spent = Spent()
    for turn in turns:
        if turn.usage is not None:
            spent = spent.plus(turn.usage, turn.cost)
    return spent


def spent_in(conversation: Conversation | None) -> Spent:
    """What a conversation used and cost: its turns, all their variants, and summaries of it."""
    if conversation is None:
        return Spent()
    spent = spent_on((*conversation.turns, *conversation.variants))
    summary = conversation.summary
    while summary is not None:
        if summary.usage is not None:
            spent = spent.plus(summary.usage, summary.cost)
        summary = summary.before
    return spent


def last_usage(conversation: Conversation | None) -> Usage | None:
    """What the newest answered turn used."""
    turn = _last_answered(conversation)
    return None if turn is None else turn.usage


def last_prompt(conversation: Conversation | None) -> int | None:
    """The tokens of the last prompt: of the last call, where a turn had several."""
    turn = _last_answered(conversation)
    if turn is None or turn.usage is None:
        return None
    counted_tokens = None if turn.window is None else turn.window.counted
    return turn.usage.prompt if counted_tokens is None else counted_tokens


def _last_answered(conversation: Conversation | None) -> Turn | None:
    turns = () if conversation is None else conversation.turns
    return next((turn for turn in reversed(turns) if turn.usage is not None), None)


def money(dollars: float) -> str:
    if dollars == 0:
        return "$0"
    sign = "-" if dollars < 0 else ""
    return f"{sign}${abs(dollars):.{6 if abs(dollars) < SMALL else 4}f}"


def amount_text(amount: Amount) -> str:
    """Dollars, and that they are unknown where they are."""
    if amount.unknown == 0:
        return money(amount.dollars)
    if amount.known == 0:
        return "unknown"
    return f"{money(amount.dollars)} and {counted(amount.unknown, 'answer')} of unknown price"


def cost_text(spent: Spent) -> str:
    """The cost, and that it is unknown where it is."""
    known = spent.answers - spent.unknown
    return amount_text(Amount(dollars=spent.cost, known=known, unknown=spent.unknown))


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def usage_text(usage: Usage) -> str:
    """The tokens of an answer: what was sent, how much of it was cached, what came back."""
    about = "about " if usage.estimated else ""
    cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
    received = usage.output + usage.reasoning
    return f"{about}{usage.prompt:,} tokens sent{cached}, {received:,} received"


def answer_line(usage: Usage | None, cost: float | None, seconds: float) -> str:
    """What one answer used, cost and took."""
    used = "tokens unknown" if usage is None else usage_text(usage)
    price = "cost unknown" if cost is None else money(cost)
    return f"{used} · {price} · {seconds:.1f} s"


def status_line(model: str, conversation: Conversation | None, *, saves: bool = True) -> str:
    """The line below the prompt: model, turns, tokens of the last prompt, cost so far."""
    turns = 0 if conversation is None else len(conversation.turns)
    sent = last_prompt(conversation)
    pieces = [model, *([] if saves else ["not saved"]), counted(turns, "turn")]
    if sent is not None:
        pieces.append(f"{sent:,} tokens in the last prompt")
    pieces.append(f"cost {cost_text(spent_in(conversation))}")
    return " · ".join(pieces)


def stats_lines(
    conversation: Conversation | None, report: CacheReport, sitting: Spent
) -> Iterator[str]:
    """The conversation's figures, and those of this chat since it was started."""
    turns = 0 if conversation is None else len(conversation.turns)
    messages = 0 if conversation is None else conversation.message_count
    yield f"This conversation: {counted(turns, 'turn')}, {counted(messages, 'message')}"
    yield from report_lines(report)
    yield f"Since the chat was started: {counted(sitting.answers, 'answer')}"
    yield from _token_lines(sitting.usage)
    yield f"  cost             {cost_text(sitting)}"


def report_lines(report: CacheReport) -> Iterator[str]:
    """What was used, what the cache did of it, and what that cost and saved."""
    yield from _token_lines(report.usage)
    if report.hit_ratio is not None:
        yield f"  read from cache  {report.hit_ratio:.1%} of the tokens sent"
    if report.missed:
        trimmed = f", {report.trimmed:,} of them after old messages left" if report.trimmed else ""
        yield f"  missed           {counted(report.missed, 'token')}{trimmed}"
    if report.expired:
        yield f"  expired          {counted(report.expired, 'token')}"
    if report.summaries:
        yield f"  summaries        {report.summaries:,}"
    yield f"  cost             {amount_text(report.cost)}"
    if report.saved != Amount():
        yield f"  saved by cache   {amount_text(report.saved)}"
    if report.missed:
        yield f"  lost by misses   {amount_text(report.lost)}"


def _token_lines(usage: Usage) -> Iterator[str]:
    about = "about " if usage.estimated else ""
    yield f"  tokens sent      {about}{usage.prompt:,}"
    yield f"    from cache     {usage.cache_read:,}"
    yield f"    into cache     {usage.cache_write:,}"
    yield f"  tokens received  {about}{usage.output + usage.reasoning:,}"


def empty_list_lines(store: str, others: Iterable[OtherHistory], *, advice: str) -> Iterator[str]:
    """A line for the store that is empty, and one for each that is not.

    `advice` is the command that shows another store, up to its URL.
    """
    yield f"No conversations in {location(store)}."
    for other in others:
        many = other.conversations != 1
        count = f"{other.conversations:,} conversation{'s are' if many else ' is'}"
        yield f"{count} in {location(other.store)}; {advice} {quote(other.store)}"


def location(store: str) -> str:
    """The path of a store in files, or the URL of another one without its password."""
    scheme, _, path = store.partition(":")
    return path if scheme in PATHS else without_password(store)


def tail_lines(conversation: Conversation) -> Iterator[str]:
    """The last turns with the numbers of their messages, long ones by their last lines."""
    title = f" · {one_line(conversation.title)}" if conversation.title else ""
    yield f"{conversation.id}{title}"
    turns = conversation.turns[-TAIL_TURNS:]
    left = len(conversation.turns) - len(turns)
    if left:
        yield f"({left} earlier turn{'' if left == 1 else 's'})"
    number = conversation.message_count - sum(len(turn.messages) for turn in turns)
    for turn in turns:
        for message in turn.messages:
            number += 1
            if message.text and message.role in ("user", "assistant"):
                yield ""
                said = f"{SPEAKERS[message.role]}: {escape(message.text)}"
                yield from _shortened(f"[{number}] {said}")
        if turn.state != "complete":
            yield f"({turn.state})"
    yield ""


def _shortened(text: str) -> Iterator[str]:
    lines = text.rstrip().split("\n")
    if len(lines) > TAIL_LINES:
        yield lines[0]
        yield f"  … {len(lines) - TAIL_LINES} lines …"
        lines = lines[1 - TAIL_LINES :]
    yield from lines


def as_markdown(conversation: Conversation) -> str:
    """All of it: title, system prompt and messages, each under who said it."""
    said = (
        f"## {SPEAKERS[message.role]}\n\n{message.text.strip()}"
        for message in conversation.messages
        if message.text
    )
    head = [f"# {one_line(conversation.title or conversation.id)}", *_pinned(conversation)]
    return "\n\n".join([*head, *said]) + "\n"


def _pinned(conversation: Conversation) -> Iterator[str]:
    """The system prompt of a conversation that keeps it beside its messages."""
    record = conversation.system_record
    if record is not None and record.prompt is not None:
        source = f", from {one_line(record.source)}" if record.source else ""
        yield f"## {SPEAKERS['system']} (pinned{source})\n\n{record.prompt.strip()}"


def model_names(app: App) -> list[tuple[str, str]]:
    """The names of known models with a remark, and the prefixes of all others."""
    names = [(f"{LOCAL}/{model.name}", "on this machine") for model in list_models(app.cache_paths)]
    for provider, row in app.settings.providers.items():
        names += [(f"{provider}/{name}", "configured") for name in row.models]
    return [*names, *((f"{provider}/", "…") for provider in ROWS)]

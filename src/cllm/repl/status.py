"""What a conversation has used and cost, in words. Counts what turns say; asks nobody."""

from collections.abc import Iterable, Iterator

import msgspec

from cllm.core.conversation import Conversation, Turn
from cllm.core.reply import Usage
from cllm.engine.keep import total_usage

SMALL = 0.01


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What some answers used and cost; `unknown` of them had a price that nobody knows."""

    answers: int = 0
    usage: Usage = Usage()
    cost: float = 0.0
    unknown: int = 0

    def plus(self, usage: Usage | None, cost: float | None) -> "Spent":
        """With one answer more."""
        used = [self.usage] if usage is None else [self.usage, usage]
        return Spent(
            answers=self.answers + 1,
            usage=total_usage(used) or Usage(),
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


def prompt_tokens(usage: Usage) -> int:
    """The tokens of what was sent, however they were read."""
    return usage.input + usage.cache_read + usage.cache_write


def last_usage(conversation: Conversation | None) -> Usage | None:
    """What the newest answered turn used."""
    turns = () if conversation is None else conversation.turns
    return next((turn.usage for turn in reversed(turns) if turn.usage is not None), None)


def money(dollars: float) -> str:
    if dollars == 0:
        return "$0"
    return f"${dollars:.6f}" if dollars < SMALL else f"${dollars:.4f}"


def cost_text(spent: Spent) -> str:
    """The cost, and that it is unknown where it is."""
    if spent.unknown == 0:
        return money(spent.cost)
    if spent.unknown == spent.answers:
        return "unknown"
    return f"{money(spent.cost)} and {counted(spent.unknown, 'answer')} of unknown price"


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def usage_text(usage: Usage) -> str:
    """The tokens of an answer: what was sent, how much of it was cached, what came back."""
    about = "about " if usage.estimated else ""
    cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
    received = usage.output + usage.reasoning
    return f"{about}{prompt_tokens(usage):,} tokens sent{cached}, {received:,} received"


def answer_line(usage: Usage | None, cost: float | None, seconds: float) -> str:
    """What one answer used, cost and took."""
    used = "tokens unknown" if usage is None else usage_text(usage)
    price = "cost unknown" if cost is None else money(cost)
    return f"{used} · {price} · {seconds:.1f} s"


def status_line(model: str, conversation: Conversation | None, *, saves: bool = True) -> str:
    """The line below the prompt: model, turns, tokens of the last prompt, cost so far."""
    turns = 0 if conversation is None else len(conversation.turns)
    usage = last_usage(conversation)
    pieces = [model, counted(turns, "turn")]
    if usage is not None:
        pieces.append(f"{prompt_tokens(usage):,} tokens in the last prompt")
    pieces.append(f"cost {cost_text(spent_on(all_turns(conversation)))}")
    if not saves:
        pieces.append("not saved")
    return " · ".join(pieces)


def all_turns(conversation: Conversation | None) -> tuple[Turn, ...]:
    """The turns of the path and their variants: all of them were paid for."""
    return () if conversation is None else conversation.turns + conversation.variants


def stats_lines(conversation: Conversation | None, sitting: Spent) -> Iterator[str]:
    """The conversation's figures, and those of this chat since it was started."""
    turns = 0 if conversation is None else len(conversation.turns)
    messages = 0 if conversation is None else conversation.message_count
    yield f"This conversation: {counted(turns, 'turn')}, {counted(messages, 'message')}"
    yield from _spent_lines(spent_on(all_turns(conversation)))
    yield f"Since the chat was started: {counted(sitting.answers, 'answer')}"
    yield from _spent_lines(sitting)


def _spent_lines(spent: Spent) -> Iterator[str]:
    usage = spent.usage
    about = "about " if usage.estimated else ""
    yield f"  tokens sent      {about}{prompt_tokens(usage):,}"
    yield f"    from cache     {usage.cache_read:,}"
    yield f"    into cache     {usage.cache_write:,}"
    yield f"  tokens received  {about}{usage.output + usage.reasoning:,}"
    yield f"  cost             {cost_text(spent)}"

"""The price of what was used before, by what a turn says of its provider and its model."""

from collections.abc import Callable
from datetime import datetime

from cllm.core.reply import Usage
from cllm.prices.book import PriceBook


def price_kept(book: PriceBook) -> Callable[[str, str, Usage, datetime], float | None]:
    """A price for turns that are kept; the model's name may have its provider's before it."""

    def price(provider: str, model: str, usage: Usage, at: datetime) -> float | None:
        cost = book.price(provider, model.removeprefix(f"{provider}/"), usage, at)
        return None if cost is None else float(cost)

    return price

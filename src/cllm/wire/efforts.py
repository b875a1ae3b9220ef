"""How hard a model is to think, in the words that all protocols share, and their order."""

EFFORT_ORDER = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def nearest_effort(wanted: str, efforts: tuple[str, ...]) -> str | None:
    """The effort closest to the one wanted, rather more than less; None if that is no effort."""
    if wanted not in EFFORT_ORDER or not efforts:
        return None
    rank = EFFORT_ORDER.index
    return min(efforts, key=lambda effort: (abs(rank(effort) - rank(wanted)), -rank(effort)))

"""The progress of slow work."""

from collections.abc import Iterable
from contextvars import Context

from cllm.stores.progress import current_track, show_progress


def test_without_an_interface_nothing_is_shown():
    assert Context().run(current_track, "Indexing") is None


def test_the_interface_gets_the_name_and_the_number():
    calls: list[tuple[str, int]] = []

    def show(items: Iterable[str], name: str, total: int) -> Iterable[str]:
        calls.append((name, total))
        return items

    token = show_progress.set(show)
    try:
        track = current_track("Indexing")
    finally:
        show_progress.reset(token)

    assert track is not None
    assert list(track(["a", "b"], 2)) == ["a", "b"]
    assert calls == [("Indexing", 2)]

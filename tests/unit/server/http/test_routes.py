"""The table of routes: no duplicates, and every endpoint exists."""

from collections import Counter
from importlib import import_module

from cllm.server.http.routes import ROUTES


def test_no_method_and_path_occurs_twice():
    counts = Counter((row.method, row.path) for row in ROUTES)

    assert [call for call, count in counts.items() if count > 1] == []


def test_every_endpoint_can_be_imported():
    for row in ROUTES:
        module, _, name = row.endpoint.partition(":")
        assert callable(getattr(import_module(f"cllm.server.{module}"), name)), row.endpoint

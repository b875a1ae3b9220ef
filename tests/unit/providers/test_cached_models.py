"""The cached model lists of providers."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cllm.providers.cached_models import FOLDER, CachedModels
from cllm.wire.remote_models import RemoteModel

NOW = datetime(2026, 11, 1, tzinfo=UTC)
MODELS = (RemoteModel("a", 100), RemoteModel("b"))


@pytest.fixture
def cache(tmp_path: Path) -> CachedModels:
    return CachedModels(tmp_path)


def write(folder: Path, content: str) -> None:
    (folder / FOLDER).mkdir(exist_ok=True)
    (folder / FOLDER / f"{len(list((folder / FOLDER).iterdir()))}.json").write_text(content)


@pytest.mark.parametrize(
    ("age", "is_current"),
    [
        (timedelta(), True),
        (timedelta(hours=23), True),
        (timedelta(days=1), False),
        (-timedelta(seconds=1), False),
    ],
)
def test_a_list_is_used_for_a_day(cache: CachedModels, age: timedelta, is_current: bool):
    cache.save("mine", "http://a/v1/models", MODELS, now=NOW)

    models = cache.read("mine", "http://a/v1/models", now=NOW + age)

    assert models == (MODELS if is_current else None)


def test_another_provider_or_address_has_another_list(cache: CachedModels):
    cache.save("mine", "http://a", MODELS, now=NOW)

    assert cache.read("other", "http://a", now=NOW) is None
    assert cache.read("mine", "http://b", now=NOW) is None


def test_the_names_are_those_of_all_lists_also_of_old_ones(cache: CachedModels, tmp_path: Path):
    cache.save("mine", "http://a", MODELS, now=NOW - timedelta(days=300))
    cache.save("other", "http://a", MODELS[:1], now=NOW)
    write(tmp_path, "{")
    write(tmp_path, json.dumps({"saved_at": NOW.isoformat(), "models": [["unnamed"]]}))

    assert sorted(cache.list_names()) == ["mine/a", "mine/b", "other/a"]


def test_without_a_folder_there_are_no_names(cache: CachedModels):
    assert list(cache.list_names()) == []
    cache.save("mine", "http://a", (), now=NOW)
    assert list(cache.list_names()) == []


def test_a_time_without_a_zone_is_not_current(cache: CachedModels, tmp_path: Path):
    cache.save("mine", "http://a", MODELS, now=NOW)
    (file,) = (tmp_path / FOLDER).iterdir()
    file.write_text(json.dumps({"saved_at": "2026-11-01T00:00:00", "models": [["a"]]}))

    assert cache.read("mine", "http://a", now=NOW) is None

"""The page with nothing configured: the local model replies."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.home import Home
from tests.server_process import DATABASE, Server
from tests.sqlite_template import write_database


@pytest.fixture(scope="module")
def server(served_home: Home, local_model: Path) -> Iterator[Server]:
    """A server without settings, with the model where a first use would have put it."""
    models = served_home.cache / "cllm/models"
    models.mkdir(parents=True)
    (models / "smollm2-135m.gguf").symlink_to(local_model)
    database = served_home.path / DATABASE
    write_database(database)
    environment, work = served_home.environment, served_home.work
    with Server(environment=environment, directory=work, store=f"sqlite:{database}") as running:
        yield running


def test_a_conversation_with_the_local_model(page: Page):
    page.goto("/")
    expect(page.locator("#composer [name=model]")).to_have_value("local/smollm2-135m")
    page.locator("#composer [name=prompt]").fill("Tell me a long story about a cat.")
    page.locator("#composer .send").click()

    expect(page.locator("#turns .live .text")).to_have_text(re.compile(r"\w{3}"), timeout=60_000)
    page.locator("#composer .stop").click()

    turn = page.locator("#turns .turn:not([data-state=running])")
    expect(turn.locator(".message[data-role=assistant] .text")).to_have_text(re.compile(r"\w{3}"))
    expect(turn.locator(".facts").first).to_contain_text("local/smollm2-135m")
    expect(page.locator("#composer .send")).to_be_visible()

"""Every text that a template or a script uses exists."""

import re
from importlib import resources

from cllm.server.page.texts import TEXTS

USE = re.compile(r"\btexts\.(?!js\b|py\b)(\w+)")


def test_every_text_in_templates_and_scripts_exists():
    page = resources.files("cllm.server.page")
    used = {
        (file.name, name)
        for folder in ("templates", "static")
        for file in page.joinpath(folder).iterdir()
        if file.name.endswith((".html", ".js"))
        for name in USE.findall(file.read_text(encoding="utf-8"))
    }
    assert len(used) > 50
    assert sorted((file, name) for file, name in used if name not in TEXTS) == []


def test_no_key_is_a_method():
    # Jinja2 reads `texts.copy` as the method.
    assert [key for key in TEXTS if hasattr(TEXTS, key)] == []

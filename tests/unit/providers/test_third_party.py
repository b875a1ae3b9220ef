"""Providers of other packages, opened by entry points of real, temporary packages."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from cllm.core.errors import SettingsError
from cllm.core.secret import Secret
from cllm.providers import third_party
from cllm.providers.third_party import (
    ProviderAccess,
    is_offered,
    open_offered,
)

MODULE = """
class Provider:
    def __init__(self, name):
        self.name = name
    async def prepare(self): ...
    async def ask(self, prompt): ...
    async def close(self): ...

def open_provider(name, access):
    return Provider(name)

def fail(name, access):
    raise ValueError(f"bad key {access.api_key.reveal()}\\nsecond line")

def wrong(name, access):
    return 5
"""


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Install a package whose entry points `acme` are these functions."""

    def offer(*functions: str, packages: int = 1) -> None:
        for number in range(packages):
            name = f"acme_{tmp_path.name}_{number}"
            (tmp_path / f"{name}.py").write_text(MODULE, encoding="utf-8")
            info = tmp_path / f"{name}-1.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
            lines = [f"acme = {name}:{function}" for function in functions]
            (info / "entry_points.txt").write_text("\n".join(["[cllm.providers]", *lines]))
        monkeypatch.syspath_prepend(tmp_path)
        third_party._find_entry_points.cache_clear()

    yield offer
    third_party._find_entry_points.cache_clear()


ACCESS = ProviderAccess(api_key=Secret("sk-12345678"))


def test_a_package_opens_its_provider(offer):
    offer("open_provider")

    assert is_offered("acme")
    assert not is_offered("other")
    assert open_offered("acme", name="mine", access=ACCESS).name == "mine"


def test_two_packages_with_the_same_entry_point_are_refused(offer):
    offer("open_provider", packages=2)

    with pytest.raises(SettingsError, match=r"\(.*_0', .*_1'\); uninstall all but one"):
        open_offered("acme", name="mine", access=ACCESS)


def test_an_error_of_the_package_is_reported_on_one_line_without_the_key(offer):
    offer("fail")

    with pytest.raises(SettingsError, match=r"ValueError: bad key \*\*\* second line") as raised:
        open_offered("acme", name="mine", access=ACCESS)
    assert "update or uninstall" in str(raised.value)


@pytest.mark.parametrize(("function", "text"), [("wrong", "returned int"), ("none", "Attribute")])
def test_anything_but_a_provider_is_refused(offer, function, text):
    offer(function)

    with pytest.raises(SettingsError, match=text):
        open_offered("acme", name="mine", access=ACCESS)


def test_an_entry_point_without_a_package_has_no_name():
    entry_point = EntryPoint(name="acme", value="x:y", group=third_party.GROUP)

    assert third_party._format_package(entry_point) == "without a name"


def test_the_repr_of_the_access_shows_no_secret():
    access = ProviderAccess(options={"a": "sk-1"}, environment={"B": "sk-2"})

    assert "sk-" not in repr(access) + str(access)
    assert access.timeouts.connect == 10

"""A provider that another package brings: installed, found by its entry point, and asked."""

from collections.abc import Callable
from typing import Any

import pytest

PREFIX = "Configuration error: "
PARROT = """
from cllm.core.message import plain_message
from cllm.core.reply import ReplyFinished, TextDelta


class Parrot:
    def __init__(self, name, settings):
        self.name = name
        key = settings.api_key.reveal() if settings.api_key else "no key"
        self.voice = settings.options.get("voice", "")
        self.told = f"{settings.api_base} {key} {settings.environment['HOME'] != ''} {settings!r}"

    async def prepare(self):
        pass

    async def ask(self, prompt):
        said = f"{self.voice}{prompt.model}: {prompt.messages[-1].text} ({self.told})"
        yield TextDelta(text=said)
        yield ReplyFinished(message=plain_message("assistant", said), stop_reason="end")

    async def close(self):
        pass


def broken(name, settings):
    raise RuntimeError(f"no feathers for {settings.api_key.reveal() if settings.api_key else ''}")


def wrong(name, settings):
    return 3
"""


@pytest.fixture
def install(home) -> Callable[..., dict[str, str]]:
    """Installs a package with these entry points; gives the environment it is found in."""
    site = home.path / "site"

    def install(package: str = "cllm-parrot", **offers: str) -> dict[str, str]:
        module = package.replace("-", "_")
        info = site / f"{module}-1.0.dist-info"
        info.mkdir(parents=True)
        metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        lines = [f"{name} = {value}" for name, value in offers.items()]
        (info / "METADATA").write_text(metadata, encoding="utf-8")
        (info / "entry_points.txt").write_text(
            "\n".join(["[cllm.providers]", *lines, ""]), encoding="utf-8"
        )
        (site / f"{module}.py").write_text(PARROT, encoding="utf-8")
        return {"PYTHONPATH": str(site)}

    return install


def test_an_installed_provider_answers(provider, settings, home, install, cllm):
    settings(model=..., api_base=..., api_key=...)
    env = install(parrot="cllm_parrot:Parrot")

    result = cllm("Hello", "-m", "parrot/grey/1", "--conversation", "demo", env=env).succeeded()

    assert result.out.startswith("grey/1: Hello (None no key True")
    assert result.err == ""
    assert home.load("demo")["model"] == "parrot/grey/1"
    assert provider.requests == []


def test_its_settings_are_its_own(settings, secret, install, cllm):
    row: dict[str, Any] = {"api_key": secret, "voice": "Squawk "}
    settings(model=..., api_base=..., api_key=..., providers={"parrot": row})
    env = install(parrot="cllm_parrot:Parrot")

    out = cllm("Hello", "-m", "parrot/grey", env=env).succeeded().out

    assert out.startswith("Squawk grey: Hello")
    assert f"None {secret} True" in out
    assert out.count(secret) == 1


def test_a_provider_of_one_s_own_name_can_be_of_its_type(settings, install, cllm):
    row = {"type": "parrot", "api_base": "http://127.0.0.1:9", "models": ["grey"]}
    settings(model="grey", api_base=..., api_key=..., providers={"polly": row})
    env = install(parrot="cllm_parrot:Parrot")

    assert cllm("Hello", env=env).succeeded().out.startswith("grey: Hello (http://127.0.0.1:9")


def test_no_package_takes_over_a_built_in_name(provider, settings, install, cllm):
    env = install(openai="cllm_parrot:Parrot", local="cllm_parrot:Parrot")

    assert cllm("Hello", env=env).succeeded().out == "echo: Hello\n"
    assert len(provider.requests) == 1


@pytest.mark.parametrize("kind", ["local", "groq"])
def test_no_package_takes_over_a_built_in_name_as_a_type(settings, install, cllm, kind):
    row = {"type": kind, "api_base": "http://127.0.0.1:9"}
    settings(model="mine/x", api_base=..., api_key=..., providers={"mine": row})
    env = install(**{kind: "cllm_parrot:Parrot"})

    cllm("Hello", env=env).failed_with_one_sentence("providers.mine", "type", prefix=PREFIX)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("cllm_nowhere:open", ["cllm-parrot", "ModuleNotFoundError"]),
        ("cllm_parrot:nothing", ["cllm-parrot", "AttributeError"]),
        ("cllm_parrot:broken", ["cllm-parrot", "no feathers"]),
        ("cllm_parrot:wrong", ["cllm-parrot", "not a Provider"]),
        ("cllm_parrot:__name__", ["cllm-parrot", "TypeError"]),
        ("", ["cllm-parrot"]),
    ],
)
def test_a_broken_package_is_one_sentence(settings, secret, install, cllm, value, words):
    settings(model="parrot/grey", api_base=..., api_key=secret)
    env = install(parrot=value)

    cllm("Hello", env=env).failed_with_one_sentence(*words, prefix=PREFIX)


def test_two_packages_with_one_name_are_one_sentence(settings, install, cllm):
    settings(model="parrot/grey", api_base=..., api_key=...)
    install("cllm-macaw", parrot="cllm_macaw:Parrot")
    env = install(parrot="cllm_parrot:Parrot")

    cllm("Hello", env=env).failed_with_one_sentence("cllm-macaw", "cllm-parrot", prefix=PREFIX)


def test_a_name_that_is_built_in_is_looked_up_nowhere(settings, install, home, cllm):
    """Reading the installed packages takes longer than everything else before the question."""
    install(parrot="cllm_parrot:Parrot")
    trap = home.path / "trap"
    trap.mkdir()
    (trap / "sitecustomize.py").write_text(
        "import sys\n"
        "class Trap:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'importlib.metadata':\n"
        "            raise RuntimeError('looked up')\n"
        "sys.meta_path.insert(0, Trap())\n",
        encoding="utf-8",
    )
    env = {"PYTHONPATH": str(trap)}

    assert cllm("Hello", env=env).succeeded().out == "echo: Hello\n"
    assert "looked up" in cllm("Hello", "-m", "parrot/grey", env=env).err

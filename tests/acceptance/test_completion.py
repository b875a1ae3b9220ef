"""What bash, zsh and fish offer when Tab is pressed: ids, models, named files, commands."""

import shlex

import pytest

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(params=SHELLS)
def offered(request, provider, settings, cllm):
    """The words that a shell is offered for the last word of a line."""

    def offered(*words: str) -> list[str]:
        env = {
            "_CLLM_COMPLETE": f"{request.param}_complete",
            "COMP_WORDS": shlex.join(["cllm", *words]),
            "COMP_CWORD": words[-1] if request.param == "fish" else str(len(words)),
        }
        lines: list[str] = cllm(env=env).succeeded().out.splitlines()
        match request.param:
            case "bash":
                return [line.split(",", 1)[1] for line in lines]
            case "zsh":
                return lines[1::3]
            case _:
                return [line.split(",", 1)[1].split("\t")[0] for line in lines]

    return offered


def test_ids_of_conversations_are_offered(offered, cllm):
    cllm("Hello", "--conversation", "cats").succeeded()
    cllm("Hello", "--conversation", "dogs").succeeded()

    assert offered("--conversation", "ca") == ["cats"]
    assert offered("conversations", "show", "do") == ["dogs"]


def test_models_are_offered(offered, settings, provider):
    settings(providers={"mine": {"api_base": provider.url, "models": ["llama-3"]}})

    assert offered("-m", "mine/") == ["mine/llama-3"]
    assert "local/smollm2-135m" in offered("-m", "local/")


def test_models_of_cached_lists_are_offered_without_a_request(offered, settings, provider, cllm):
    settings(
        providers={"mine": {"api_base": provider.url, "models": ["llama-3"]}},
        aliases={"minor": "mine/llama-3"},
    )
    provider.serve_models("llama-4", "llama-3")
    cllm("models", "list", "--provider", "mine").succeeded()
    count = len(provider.requests)

    assert offered("-m", "min") == ["minor", "mine/llama-3", "mine/llama-4"]
    assert len(provider.requests) == count


def test_named_files_are_offered(offered, home):
    (home.path / ".cllm" / "review.Cllmfile.yml").write_text("temperature: 0\n", encoding="utf-8")

    assert offered("-C", "re") == ["review"]


def test_commands_are_offered(offered):
    assert offered("doc") == ["doctor"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_each_shell_is_printed(shell, cllm):
    assert "_CLLM_COMPLETE" in cllm("completion", shell).succeeded().out

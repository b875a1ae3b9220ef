"""The library with the real model, in a program that names nothing."""

from pathlib import Path

import pytest


@pytest.fixture
def nothing_configured(home, settings, local_model):
    """No Cllmfile, and the model where a first use would have put it."""
    (home.path / ".cllm/Cllmfile.yml").unlink()
    models = home.cache / "cllm/models"
    models.mkdir(parents=True)
    (models / "smollm2-135m.gguf").symlink_to(local_model)


@pytest.mark.usefixtures("nothing_configured")
def test_the_real_model_uses_the_history_and_its_process_ends_with_the_program(
    program, home, until
):
    out = program(
        """
        import pathlib, cllm
        manager = cllm.ConversationManager(
            conversation="demo", system_prompt="Answer in one short sentence.", temperature=0,
            max_tokens=30,
        )
        manager.ask("My cat is called Luna.")
        print(manager.ask("What is my cat called?").text.replace("\\\\n", " "))
        tasks = pathlib.Path("/proc/self/task").iterdir()
        print(*(pid for task in tasks for pid in (task / "children").read_text().split()))
        """
    )

    answer, children = out.splitlines()
    assert "Luna" in answer
    assert children
    assert until(lambda: not any(Path("/proc", pid).exists() for pid in children.split()), 10)
    assert home.load("demo")["metadata"]["system"]["prompt"] == "Answer in one short sentence."

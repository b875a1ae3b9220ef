"""`cllm serve`: startup, address, settings and shutdown."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fake_provider import FakeProvider
from tests.server_process import Server, list_messages

HELLO = ("user", "Hello.")


def test_the_startup_is_cheap(serve: Callable[..., Server]):
    serve().close()

    fields = Path(f"/proc/{serve().process.pid}/stat").read_text(encoding="ascii").split()

    spent = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    assert spent < 5  # measured alone: about 1 s of processor time


def test_the_limit_of_open_files_is_raised(serve: Callable[..., Server]):
    limits = Path(f"/proc/{serve().process.pid}/limits").read_text(encoding="ascii")

    (open_files,) = (line for line in limits.splitlines() if line.startswith("Max open files"))
    now, most = open_files.split()[3:5]
    assert now == most or int(now) >= 65536


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_a_public_address_without_keys_is_rejected(
    cllm: Any, settings: Callable[..., Path], host: str
):
    result = cllm("serve", "--host", host, "--port", "0", "--store", "memory:")

    result.failed_with_one_sentence("server.keys", host)


def test_the_folder_of_files_cannot_be_the_store_of_a_server(
    cllm: Any, settings: Callable[..., Path]
):
    cllm("serve", "--store", "json:there").failed_with_one_sentence("sqlite:")


def test_several_workers_need_a_shared_store(cllm: Any, settings: Callable[..., Path]):
    result = cllm("serve", "--store", "memory:", "--workers", "2")

    result.failed_with_one_sentence("--workers 1")


@pytest.mark.parametrize("name", ["API_TOKENS", "REQUIRE_AUTH", "REASONING_DATABASE_URL"])
def test_variables_of_older_deployments_are_reported(
    serve: Callable[..., Server], cllm: Any, settings: Callable[..., Path], name: str
):
    port = serve().port

    result = cllm("serve", "--port", str(port), "--store", "memory:", env={name: "secret-value"})

    assert f"The environment variable {name} is ignored; " in result.err
    assert "secret-value" not in result.err


def test_a_port_in_use_is_an_error(
    serve: Callable[..., Server], cllm: Any, settings: Callable[..., Path]
):
    port = serve().port

    result = cllm("serve", "--port", str(port), "--store", "memory:")

    result.failed_with_one_sentence(f"port {port}", "--port")


@pytest.mark.parametrize(
    ("server_settings", "expected_words"),
    [
        ({"port": "high"}, ("server.port", "whole number")),
        ({"prot": 3000}, ("server.prot", "host, port")),
        ({"limits": {"depth": 0}}, ("server.limits.depth", "whole number")),
        ({"limits": [1]}, ("server.limits", "mapping")),
        ({"on_disconnect": "shrug"}, ("server.on_disconnect", "complete")),
    ],
)
def test_an_invalid_setting_is_named(
    cllm: Any, settings: Callable[..., Path], server_settings: Any, expected_words: tuple[str, ...]
):
    settings(server=server_settings)

    result = cllm("serve", "--store", "memory:")

    result.failed_with_one_sentence(*expected_words, prefix="Configuration error: ")


def test_ctrl_c_stops_the_server(serve: Callable[..., Server]):
    server = serve()

    server.process.send_signal(signal.SIGINT)

    assert server.wait() == 0
    assert "Traceback" not in server.log


def test_the_default_store_is_a_database_in_the_cllm_folder(
    home: Any, provider: FakeProvider, settings: Callable[..., Path]
):
    with Server(environment=home.environment, directory=home.work, store=None) as server:
        server.complete(HELLO, conversation="")

    assert (home.path / ".cllm/cllm.db").is_file()


def test_conversations_survive_a_restart(
    home: Any, provider: FakeProvider, settings: Callable[..., Path]
):
    with Server(environment=home.environment, directory=home.work, store=None) as server:
        first_response = server.complete(HELLO, conversation="")
    with Server(environment=home.environment, directory=home.work, store=None) as server:
        server.complete(("user", "Again."), conversation=first_response.conversation)
        assert len(list(list_messages(server, first_response.conversation))) == 4


def test_several_workers_serve_one_conversation(
    home: Any, provider: FakeProvider, settings: Callable[..., Path]
):
    with Server(
        environment=home.environment, directory=home.work, store=None, arguments=("--workers", "2")
    ) as server:
        conversation = server.complete(HELLO, conversation="").conversation
        for number in range(6):
            assert server.complete(("user", f"{number}"), conversation=conversation).status == 200
        assert len(list(list_messages(server, conversation))) == 14


def test_a_conversation_of_the_command_line_can_be_continued_over_http(
    home: Any, cllm: Any, provider: FakeProvider, settings: Callable[..., Path]
):
    settings(default_system_message="Be brief.")
    cllm("--conversation", "demo", "Hello.").succeeded()
    with Server(environment=home.environment, directory=home.work, store="memory:") as server:
        response = server.complete(
            ("system", "Be long."), ("user", "Again."), conversation="files:demo"
        )

    assert response.status == 200
    assert response.conversation == "files:demo"
    assert provider.requests[-1].message_pairs[0] == ("system", "Be brief.")
    assert [notice["code"] for notice in response.notices] == ["system_prompt_ignored"]
    assert [content for _, content in home.messages("demo")][-2:] == ["Again.", "echo: Again."]


def test_every_line_of_the_log_is_json(serve: Callable[..., Server]):
    server = serve()
    server.complete(HELLO)
    server.complete(conversation="../demo")
    server.terminate()
    server.wait()

    notes = ("Serving at", "Recording is off")
    lines = [line for line in server.log.splitlines() if not line.startswith(notes)]
    records = [json.loads(line) for line in lines]
    assert [record["status"] for record in records if record["message"] == "request"] == [200, 400]

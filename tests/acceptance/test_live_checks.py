"""The checks of `make live`, with fake services on loopback that reply as real ones would."""

import json
from typing import Any

import pytest
import yaml
from tests.fake_provider import Reply, Request, ToolCall
from tests.live.checks import CHECKS, FILE, LiveCommand, check_stream, check_text
from tests.live.services import SERVICES, Service

KEY = "sk-live-0123456789abcdef"
AWS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": KEY, "AWS_REGION": "us-east-1"}


def reply_as_a_model(request: Request) -> Reply:
    text = json.dumps(request.json)
    if "Run the command ls" in text:
        if FILE in text:
            return Reply(pieces=("Here is ", FILE))
        call = ToolCall(id="call_1", name="execute_bash_command", arguments='{"command": "ls"}')
        return Reply(tool_calls=(call,), finish="tool_calls")
    if "Which colour" in text:
        return Reply(pieces=("Red.",) if "iVBOR" in text else ("I see no image.",))
    if "Count from" in text:
        return Reply(pieces=tuple(f"{number} " for number in range(1, 21)))
    return Reply(pieces=("Luna.",) if "Luna" in text else ("I do not know.",))


def make_environment(service: Service, root: str) -> dict[str, str]:
    """The variables of a maintainer who has a key for this service."""
    own = AWS if service.name == "bedrock" else dict.fromkeys(service.keys, KEY)
    path = "" if service.name in ("anthropic", "bedrock") else "/v1"
    return {**own, f"CLLM_LIVE_{service.name.upper()}_URL": f"{root}{path}"}


@pytest.fixture
def start(cllm, home, provider):
    provider.choose = reply_as_a_model
    provider.refuse = lambda request: (
        "The model does not exist." if "no-such-model" in request.path + str(request.json) else None
    )

    def build(service: Service) -> LiveCommand:
        environ = make_environment(service, provider.root)
        assert service.find_problem(environ) is None
        (home.path / ".cllm").mkdir()
        settings = yaml.safe_dump(service.build_settings(environ))
        (home.path / ".cllm" / "Cllmfile.yml").write_text(settings, encoding="utf-8")
        return LiveCommand(cllm, service.find_model(environ), service.select_environment(environ))

    return build


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_every_check_passes_with_a_service_that_works(service, start, provider):
    live = start(service)
    for check in CHECKS:
        check(live)
    assert len(provider.requests) >= len(CHECKS) + 2
    assert all(KEY not in request.body.decode() for request in provider.requests)


@pytest.mark.parametrize("check", [check_text, check_stream])
def test_a_check_fails_with_a_service_that_does_not_work(check, start, provider):
    live = start(SERVICES[0])
    provider.choose = lambda _request: Reply(pieces=("Nothing.",))
    with pytest.raises(AssertionError):
        check(live)


def test_a_service_without_a_key_is_skipped():
    environ: dict[str, Any] = {"CLLM_LIVE_OLLAMA_URL": "http://127.0.0.1:9/v1"}
    problems = {service.name: service.find_problem(environ) for service in SERVICES}

    assert "OPENAI_API_KEY" in (problems["openai"] or "")
    assert "127.0.0.1:9" in (problems["ollama"] or "")
    assert all(problems.values())

"""Logs: nothing by default, as much as is asked for, and never a key."""

import json

import pytest

KEY = "sk-live-abcdef0123456789"


def test_by_default_nothing_is_logged(provider, settings, cllm):
    assert cllm("Hello").succeeded().err == ""


@pytest.mark.parametrize("flag", ["-v", "-vv", "-vvv", "--debug"])
def test_a_higher_verbosity_logs_more(flag, provider, settings, cllm):
    provider.queue_reply("Fine.")

    result = cllm("My secret plan", "--conversation", "demo", flag).succeeded()

    assert result.out == "Fine.\n"
    assert "asking model=openai/gpt-test" in result.err
    assert "stop_reason=end" in result.err
    assert ("parameters" in result.err) is (flag != "-v")
    assert ("My secret plan" in result.err) is (flag in ("-vvv", "--debug"))


def test_a_log_is_json_if_that_is_wanted(provider, settings, cllm):
    result = cllm("Hello", "-v", "--json-logs").succeeded()

    records = [json.loads(line) for line in result.err.splitlines()]
    assert [record["message"] for record in records] == ["asking", "answered"]
    assert records[1]["tokens"] == 18
    assert records[1]["sent"] == 11
    assert records[1]["cached"] == 0
    assert records[1]["cost"] == "unknown"
    assert {"time", "level", "logger"} <= records[0].keys()


def test_a_file_is_for_its_owner_alone_and_is_added_to(provider, settings, cllm, mode):
    cllm("Hello", "--log-file", "logs/cllm.log").succeeded()
    result = cllm("Hello", "--log-file", "logs/cllm.log").succeeded()

    file = cllm.home.work / "logs" / "cllm.log"
    assert mode(file) == 0o600
    assert file.read_text(encoding="utf-8").count("answered") == 2
    assert result.err == ""


def test_a_failure_is_in_the_file_too(provider, settings, cllm):
    provider.queue_error(401, x_request_id="req_42")

    cllm("Hello", "--log-file", "cllm.log").failed_with_one_sentence("401")

    text = (cllm.home.work / "cllm.log").read_text(encoding="utf-8")
    assert "AuthenticationError" in text
    assert "provider_request=req_42" in text


def test_a_failed_turn_of_a_chat_is_logged(provider, settings, cllm):
    settings(num_retries=0, log_file="cllm.log")
    provider.queue_error(429, "Limit 3, requested 4.", x_request_id="req_42")

    cllm("chat", stdin=b"Hello\n")

    text = (cllm.home.work / "cllm.log").read_text(encoding="utf-8")
    assert "Limit 3, requested 4." in text
    assert "kind=RateLimitedError provider_request=req_42" in text


def test_settings_and_variables_do_the_same(provider, settings, cllm):
    settings(verbosity=1, json_logs=True)
    assert json.loads(cllm("Hello").succeeded().err.splitlines()[0])["message"] == "asking"

    settings()
    env = {"CLLM_DEBUG": "true", "CLLM_LOG_FILE": "x.log"}
    assert "My words" in cllm("My words", env=env).succeeded().err
    assert (cllm.home.work / "x.log").exists()


@pytest.mark.parametrize("form", [(), ("--json-logs",)])
def test_no_key_is_ever_logged(form, provider, settings, cllm):
    settings(api_key=KEY, extra_headers={"X-Token": "header-secret-1"})
    env = {"OTHER_API_KEY": "env-secret-123456"}
    text = f"Is {KEY} or header-secret-1 or env-secret-123456 mine?"

    result = cllm(text, "-vvv", *form, "--log-file", "cllm.log", env=env).succeeded()

    logged = result.err + (cllm.home.work / "cllm.log").read_text(encoding="utf-8")
    assert "***" in logged
    for secret in (KEY, "header-secret-1", "env-secret-123456"):
        assert secret not in logged


def test_a_message_cannot_forge_a_log_line(provider, settings, cllm):
    cllm("One\n2026-01-01 ERROR cllm: forged\x1b[2J", "--log-file", "cllm.log", "-vvv").succeeded()

    lines = (cllm.home.work / "cllm.log").read_text(encoding="utf-8").splitlines()
    assert not any(line.startswith("2026-01-01") for line in lines)
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("path", ["/dev/null", ".", "/proc/none/x"])
def test_a_log_that_cannot_be_written_is_one_sentence(path, provider, settings, cllm):
    cllm("Hello", "--log-file", path).failed_with_one_sentence(
        "log file", prefix="Configuration error: "
    )

    assert provider.requests == []


@pytest.mark.parametrize("value", [4, -1, "loud", True])
def test_an_invalid_verbosity_is_an_error(value, settings, cllm):
    settings(verbosity=value)

    cllm("Hello").failed_with_one_sentence("verbosity", prefix="Configuration error: ")


@pytest.mark.parametrize("form", [(), ("--json-logs",)])
def test_a_secret_that_has_to_be_escaped_is_blotted_out_too(form, provider, settings, cllm):
    secret = 'pa"ss\\wordé12'

    result = cllm(
        "Hello", "-vvv", *form, "--exec", 'printf %s "$DB_PASSWORD"', env={"DB_PASSWORD": secret}
    ).succeeded()

    assert "***" in result.err
    assert "wordé12" not in result.err
    assert "wordé12" in provider.requests[0].message_pairs[-1][1]

"""The requests that a provider receives."""

import pytest


def test_a_request_has_the_key_the_model_and_the_messages(provider, settings, secret, cllm):
    cllm("Hello").succeeded()

    (request,) = provider.requests
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == f"Bearer {secret}"
    assert request.headers["content-type"].startswith("application/json")
    assert request.json == {
        "model": "gpt-test",
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_reply_without_streaming_is_requested_as_one_response(provider, settings, cllm):
    result = cllm("Hello", "--no-stream").succeeded()

    (request,) = provider.requests
    assert not request.json.get("stream")
    assert "stream_options" not in request.json
    assert result.out == "echo: Hello\n"


def test_the_settings_can_turn_streaming_off_and_the_flag_on_again(provider, settings, cllm):
    settings(stream=False)

    cllm("Hello").succeeded()
    cllm("Hello", "--stream").succeeded()

    assert [bool(request.json.get("stream")) for request in provider.requests] == [False, True]


def test_the_history_is_sent_in_order(provider, settings, cllm):
    provider.queue_reply("One.")
    provider.queue_reply("Two.")
    settings(default_system_message="Count.")

    for word in ("first", "second", "third"):
        cllm(word, "--conversation", "demo").succeeded()

    assert provider.requests[2].message_pairs == [
        ("system", "Count."),
        ("user", "first"),
        ("assistant", "One."),
        ("user", "second"),
        ("assistant", "Two."),
        ("user", "third"),
    ]


def test_the_prefix_of_a_history_is_sent_as_the_same_bytes(provider, settings, cllm):
    provider.queue_reply('Quotes " and \\ and ä and 🐈 and \u2028.')

    for word in ("first", "second", "third"):
        cllm(word, "--conversation", "demo").succeeded()

    second, third = (request.body for request in provider.requests[1:])
    start = second.index(b'"messages"')
    shared = second[start : second.index(b'"second"')]
    assert shared in third


def test_a_temperature_of_zero_is_sent(provider, settings, cllm):
    settings(temperature=0)

    cllm("Hello").succeeded()
    cllm("Hello", "-t", "0").succeeded()

    for request in provider.requests:
        assert request.json["temperature"] == 0


def test_the_command_line_wins_over_the_settings(provider, settings, cllm):
    settings(temperature=0.9, max_tokens=7)

    cllm("Hello", "-t", "0.25", "--max-tokens", "33").succeeded()
    cllm("Hello").succeeded()

    assert [
        (request.json["temperature"], request.json["max_tokens"]) for request in provider.requests
    ] == [(0.25, 33), (0.9, 7)]


def test_sampling_and_unknown_keys_go_into_the_body(provider, settings, cllm):
    settings(top_p=0.5, stop=["END"], seed=3, my_own_knob={"deep": [1, {"er": None}]})

    cllm("Hello").succeeded()

    body = provider.requests[0].json
    assert body["top_p"] == 0.5
    assert body["stop"] == ["END"]
    assert body["seed"] == 3
    assert body["my_own_knob"] == {"deep": [1, {"er": None}]}


def test_a_misspelt_key_is_passed_on_and_named(provider, settings, cllm):
    settings(temprature=0.5)

    result = cllm("Hello").succeeded()

    assert provider.requests[0].json["temprature"] == 0.5
    assert len(result.warnings) == 1
    assert "temprature" in result.err
    assert "temperature" in result.err


def test_the_settings_cannot_replace_the_messages(provider, settings, cllm):
    settings(messages=[{"role": "user", "content": "Something else"}])

    result = cllm("Hello")

    if result.code == 0:
        assert provider.requests[0].message_pairs == [("user", "Hello")]
    else:
        result.failed_with_one_sentence("messages", prefix="")
        assert provider.requests == []


def test_our_own_keys_never_go_into_the_body(home, provider, settings, secret, cllm):
    settings(
        default_system_message="Short.",
        conversations_path=str(home.path / "kept"),
        timeout=30,
        num_retries=0,
        fallbacks=[],
        extra_headers={"X-Team": "blue"},
        debug=False,
        json_logs=False,
        verbosity=0,
        raw_response=False,
        stream=True,
        on_interrupt="keep",
        window={"strategy": "turns", "max_turns": 10},
        variables={"NAME": "value"},
        context_commands=[],
        providers={},
        server={},
    )

    cllm("Hello", "--conversation", "demo").succeeded()

    (request,) = provider.requests
    assert set(request.json) == {"model", "messages", "stream", "stream_options"}
    assert secret.encode() not in request.body


def test_extra_headers_are_sent(provider, settings, cllm):
    settings(extra_headers={"X-Team": "blue", "X-Trace": "on"})

    cllm("Hello").succeeded()

    headers = provider.requests[0].headers
    assert (headers["x-team"], headers["x-trace"]) == ("blue", "on")


def test_the_model_of_the_environment_wins_over_the_settings(provider, settings, cllm):
    cllm("Hello", env={"CLLM_MODEL": "openai/gpt-env"}).succeeded()

    assert provider.requests[0].json["model"] == "gpt-env"


def test_the_model_of_the_command_line_wins_over_all(provider, settings, cllm):
    cllm("Hello", "-m", "openai/gpt-flag", env={"CLLM_MODEL": "openai/gpt-env"}).succeeded()

    assert provider.requests[0].json["model"] == "gpt-flag"


def test_a_model_name_keeps_its_own_slashes(provider, settings, cllm):
    cllm("Hello", "-m", "openai/team/gpt:4").succeeded()

    assert provider.requests[0].json["model"] == "team/gpt:4"


def test_the_key_can_come_from_the_environment(provider, settings, cllm):
    settings(api_key=...)

    cllm("Hello", env={"OPENAI_API_KEY": "sk-from-environment"}).succeeded()

    assert provider.requests[0].headers["authorization"] == "Bearer sk-from-environment"


def test_the_line_break_after_a_key_is_not_part_of_it(provider, settings, cllm):
    settings(api_key="sk-from-a-file\n")

    cllm("Hello").succeeded()

    assert provider.requests[0].headers["authorization"] == "Bearer sk-from-a-file"


def test_a_key_in_the_settings_can_name_a_variable(provider, settings, cllm):
    settings(api_key="${MY_KEY}")

    cllm("Hello", env={"MY_KEY": "sk-by-name"}).succeeded()

    assert provider.requests[0].headers["authorization"] == "Bearer sk-by-name"


def test_a_provider_of_ones_own_is_used_by_its_name(provider, settings, cllm):
    mine = {"type": "openai", "api_base": provider.url, "api_key": "sk-mine"}
    settings(model="mine/llama", api_base=..., api_key=..., providers={"mine": mine})

    cllm("Hello").succeeded()

    assert provider.requests[0].json["model"] == "llama"
    assert provider.requests[0].headers["authorization"] == "Bearer sk-mine"


def test_the_key_of_one_provider_is_never_sent_to_another(provider, settings, secret, cllm):
    settings(providers={"mine": {"type": "openai", "api_base": provider.url}})

    cllm("Hello", "-m", "mine/llama").succeeded()
    cllm("Hello", env={"CLLM_MODEL": "mine/llama"}).succeeded()

    for request in provider.requests:
        assert request.json["model"] == "llama"
        assert secret not in str(request.headers)


@pytest.mark.parametrize("base", ["{url}", "{url}/"], ids=["plain", "with a slash at the end"])
def test_the_base_url_may_end_in_a_slash(base, provider, settings, cllm):
    settings(api_base=base.format(url=provider.url))

    cllm("Hello").succeeded()

    assert provider.requests[0].path == "/v1/chat/completions"


def test_a_prompt_without_a_conversation_leaves_nothing_on_disk(home, settings, cllm):
    before = home.snapshot()

    cllm("Hello").succeeded()

    assert home.snapshot() == before

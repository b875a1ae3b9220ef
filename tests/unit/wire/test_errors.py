"""Errors that report a prompt above the context window, and the texts of msgspec."""

import json
import pickle
from typing import Annotated, Literal

import msgspec
import pytest

from cllm.wire.anthropic import response_decoder as anthropic_decoder
from cllm.wire.bedrock import response_decoder as bedrock_decoder
from cllm.wire.errors import FieldError, describe_problem, is_context_overflow
from cllm.wire.openai import response_decoder as openai_decoder

TOO_LONG = "prompt is too long: 208310 tokens > 200000 maximum"


@pytest.mark.parametrize(
    "message",
    [
        TOO_LONG,
        "The request has 208310 tokens > 200000.",
        "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, try again",
    ],
)
def test_counts_above_the_context_window_are_recognised(message):
    assert is_context_overflow(message)


OVERFLOWS = {
    "Anthropic on Vertex": "Prompt is too long",
    "Bedrock": "Input is too long for requested model.",
    "Bedrock Nova": "Input Tokens Exceeded: Number of input tokens exceeds maximum length.",
    "Bedrock Titan": "Too many input tokens. Max input tokens: 8192, request has: 9000",
    "OpenAI": "This model's maximum context length is 8192 tokens. However, your messages resulted "
    "in 9001 tokens.",
    "OpenAI Responses": "Your input exceeds the context window of this model.",
    "OpenAI, one request above the rate limit": "Request too large for gpt-4o on tokens per min "
    "(TPM): Limit 30000, Requested 50000.",
    "vLLM": "This model's maximum context length is 4096 tokens. However, you requested 5000 "
    "tokens (4000 in the messages, 1000 in the completion).",
    "vLLM 0.9": "'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum "
    "context length is 4096 tokens and your request has 2104 input tokens (2000 > 4096 - 2104).",
    "vLLM 0.15": "You passed 5001 input tokens and requested 100 output tokens. However, the "
    "model's context length is only 4096 tokens.",
    "vLLM engine": "The decoder prompt (length 5000) is longer than the maximum model length of "
    "4096.",
    "llama.cpp": "request (5000 tokens) exceeds the available context size (4096 tokens), try "
    "increasing it",
    "Ollama": "the input length exceeds the context length",
    "Ollama, newer": "prompt too long; exceeded max context length by 12 tokens",
    "Groq": "Please reduce the length of the messages or completion.",
    "Groq, one request above the rate limit": "Request too large for model `llama-3.1-8b` on "
    "tokens per minute (TPM): Limit 6000, Requested 8000, please reduce your message size.",
    "Mistral": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 "
    "maximum context length",
    "Gemini": "The input token count (1200000) exceeds the maximum number of tokens allowed "
    "(1048576).",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "LM Studio": "The number of tokens to keep from the initial prompt is greater than the context "
    "length.",
    "TGI": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097.",
}


@pytest.mark.parametrize("message", OVERFLOWS.values(), ids=OVERFLOWS)
def test_the_messages_of_every_service_are_recognised(message):
    assert is_context_overflow(message)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": OVERFLOWS["vLLM"], "type": "BadRequestError", "code": 400}},
        {"object": "error", "message": OVERFLOWS["Mistral"], "code": "3051"},
        {"error": OVERFLOWS["Ollama"]},
        [{"error": {"code": 400, "message": OVERFLOWS["Gemini"], "status": "INVALID_ARGUMENT"}}],
    ],
    ids=["error", "flat", "text", "list"],
)
def test_every_form_of_an_openai_compatible_error_can_be_too_long(body):
    details = openai_decoder.decode_error(json.dumps(body).encode())

    assert details.too_long
    assert details.message in OVERFLOWS.values()


@pytest.mark.parametrize(
    "message",
    [
        "",
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5096 "
            "tokens (96 in the messages, 5000 in the completion)."
        ),
        "'max_tokens' is too large: 5000. This model's maximum context length is 4096 tokens.",
        "Too many tokens, please wait before trying again.",
        "max_tokens: 64000 > 8192, which is the maximum for this model",
        "messages.0: at least 1 tokens > 5 wanted",
        f"{'9' * 5000} tokens > 200000 maximum",
        "1 + 1 > 3",
    ],
    ids=[
        "nothing",
        "an answer alone",
        "max_tokens alone",
        "a rate limit",
        "a limit on the answer",
        "not more",
        "no count",
        "a sum",
    ],
)
def test_other_errors_are_not_a_context_overflow(message):
    assert not is_context_overflow(message)


def test_only_an_invalid_anthropic_request_can_be_too_long():
    def too_long(kind: str) -> bool:
        error = {"type": kind, "message": TOO_LONG}
        return anthropic_decoder.decode_error(json.dumps({"error": error}).encode()).too_long

    assert too_long("invalid_request_error")
    assert not too_long("rate_limit_error")


def test_only_an_invalid_bedrock_request_can_be_too_long():
    body = json.dumps({"message": f"The model returned: {TOO_LONG}"}).encode()

    assert bedrock_decoder.decode_error(body, kind="ValidationException").too_long
    assert not bedrock_decoder.decode_error(body, kind="ThrottlingException").too_long


def test_the_error_code_of_anthropic_is_preserved():
    details = {"error_code": "storage_quota_exceeded"}
    error = {"type": "invalid_request_error", "message": "No.", "details": details}

    assert anthropic_decoder.decode_error(json.dumps({"error": error}).encode()).code == (
        "storage_quota_exceeded"
    )


class Body(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    size: Annotated[int, msgspec.Meta(ge=1)] | None = None
    kind: Literal["a", "b"] = "a"
    tags: Annotated[list[str], msgspec.Meta(max_length=1)] = []


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "'name' is required"),
        ({"name": "x", "other": 1}, "unknown field 'other'"),
        ({"name": 3}, "must be a string"),
        ({"name": "x", "size": "3"}, "must be an integer or null"),
        ({"name": "x", "size": 0}, "must be an integer >= 1"),
        ({"name": "x", "kind": "c"}, "'c' is not one of the allowed values"),
        ({"name": "x", "tags": ["a", "b"]}, "must be an array of length <= 1"),
    ],
)
def test_a_problem_of_msgspec_is_described_in_plain_words(fields, problem):
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(fields, Body)

    assert describe_problem(str(raised.value).partition(" - at `$")[0]) == problem


def test_another_problem_is_unchanged():
    assert (
        describe_problem("Invalid RFC3339 encoded datetime") == "Invalid RFC3339 encoded datetime"
    )


def test_an_error_of_a_field_can_be_sent_to_another_process():
    error = FieldError("messages[0].role", "must be a string")

    copied = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here

    assert str(copied) == str(error) == "messages[0].role: must be a string"
    assert (copied.path, copied.problem) == ("messages[0].role", "must be a string")

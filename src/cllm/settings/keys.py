"""The words of a Cllmfile, and where each goes: to cllm, to the provider, or into the body.

A table of names; it reads and checks nothing.
"""

CLLM_KEYS = frozenset(
    {
        "allow_dynamic_commands",
        "budget",
        "context_commands",
        "conversations_path",
        "debug",
        "default_provider",
        "default_system_message",
        "dynamic_commands",
        "json_logs",
        "json_schema",
        "json_schema_file",
        "log_file",
        "model",
        "on_interrupt",
        "providers",
        "raw_response",
        "server",
        "store",
        "stream",
        "strict",
        "variables",
        "verbosity",
        "window",
    }
)
PROVIDER_KEYS = frozenset(
    {
        "api_base",
        "api_key",
        "api_version",
        "base_url",
        "custom_llm_provider",
        "drop_params",
        "extra_headers",
        "fallbacks",
        "max_retries",
        "num_retries",
        "organization",
        "timeout",
    }
)
LITELLM_KEYS = ("api_version", "custom_llm_provider", "drop_params", "organization")
BODY_KEYS = frozenset(
    {
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "n",
        "parallel_tool_calls",
        "presence_penalty",
        "reasoning_effort",
        "response_format",
        "seed",
        "stop",
        "temperature",
        "tool_choice",
        "tools",
        "top_k",
        "top_logprobs",
        "top_p",
        "user",
    }
)
KNOWN_KEYS = CLLM_KEYS | PROVIDER_KEYS | BODY_KEYS

"""Adapters to services that answer. They carry; what the words mean is in `cllm.wire`."""

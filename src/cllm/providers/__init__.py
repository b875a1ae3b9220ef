"""Adapters to services. They transport; `cllm.wire` translates."""

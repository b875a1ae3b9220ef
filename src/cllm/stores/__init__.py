"""Stores of conversations. Every store passes the contract suite in `cllm.testing`."""

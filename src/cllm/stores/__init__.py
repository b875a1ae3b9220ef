"""Where conversations are kept. Every store passes the contract suite in `cllm.testing`."""

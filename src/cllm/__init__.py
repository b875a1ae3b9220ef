"""cllm keeps conversations with language models whole."""

__version__ = "0.1.0"

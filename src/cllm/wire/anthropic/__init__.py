"""Anthropic's Messages protocol, and the parameters that Claude models accept."""

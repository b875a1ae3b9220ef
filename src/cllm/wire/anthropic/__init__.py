"""Anthropic's Messages protocol, and what Claude models accept."""

"""OpenAI's Chat Completions protocol."""

"""`cllm chat` in the terminal."""

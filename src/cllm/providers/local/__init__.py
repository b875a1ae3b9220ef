"""The local model: a GGUF file, fetched once, run in a child process, asked over loopback."""

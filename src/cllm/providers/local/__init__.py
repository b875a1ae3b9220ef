"""The local model: a GGUF file, fetched once and run in a child process on loopback."""

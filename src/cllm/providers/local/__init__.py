"""The local model: a GGUF file, run in a child process on loopback."""

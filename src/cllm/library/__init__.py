"""The library behind `import cllm`."""

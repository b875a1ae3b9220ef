"""The library: what `import cllm` gives. A surface like the others, over the same engine."""

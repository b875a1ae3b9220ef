"""The cost of a turn and the context window of a model, if known."""

"""What a turn cost and how much fits a model, as far as that is known."""

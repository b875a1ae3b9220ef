"""The shell command: parses words and prints events. It decides nothing."""

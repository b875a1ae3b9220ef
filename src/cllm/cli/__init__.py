"""The command line: parses arguments and prints events. Contains no other logic."""

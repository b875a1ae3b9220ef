"""A conversation as a JSON file, and its transcripts."""

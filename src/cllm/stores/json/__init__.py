"""Conversations as JSON files."""

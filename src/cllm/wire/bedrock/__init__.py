"""Bedrock's Converse protocol."""

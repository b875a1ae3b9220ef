"""Conversations that leave or enter a store: export, import, move, backup and verification."""

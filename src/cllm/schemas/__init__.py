"""Structured output: a JSON schema is read, checked, sent, and held against the reply.

Knows nothing of conversations. What a schema could cost (time, memory, the network) is bounded
here, because schemas are written by others.
"""

"""Structured output. Schemas are untrusted: their cost in time, memory and network is bounded."""

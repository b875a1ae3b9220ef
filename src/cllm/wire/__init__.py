"""Codecs: JSON to values and back, one package per protocol. No I/O."""

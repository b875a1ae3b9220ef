"""Readers of the files of other programs, one module per format."""

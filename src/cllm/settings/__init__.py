"""Cllmfile.yml, environment and command line become one value. Reads files; starts nothing."""

"""One turn, the same for every surface: load, assemble, ask, keep."""

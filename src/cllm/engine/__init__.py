"""One turn, the same for every interface: load, assemble, call, save."""

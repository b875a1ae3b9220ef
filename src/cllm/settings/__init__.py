"""Settings from Cllmfile.yml, environment and command line. Reads files; starts nothing."""

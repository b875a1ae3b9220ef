"""Contract suites: tests that every store and every provider must pass."""
